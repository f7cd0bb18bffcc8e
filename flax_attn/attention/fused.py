"""Dot-product attention by cuDNN's kernel, which holds no weights, on an NVIDIA GPU.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm; `jax.nn.dot_product_attention` for the kernel.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.arrays import hide
from flax_attn.attention.pairs import Pairs


def available(query: Array, key: Array, value: Array) -> bool:
    """Whether a GPU has the kernel, and it takes arrays `(..., t, heads, d)` like these."""
    if jax.default_backend() != "gpu" or "cuda" not in jax.devices()[0].client.platform_version:
        return False
    capability = tuple(int(number) for number in jax.devices()[0].compute_capability.split("."))
    dtypes = {array.dtype for array in (query, key, value)}
    widths = {array.shape[-1] for array in (query, key, value)}
    lengths = query.shape[-3], key.shape[-3]
    return (
        capability >= (8, 0)
        and dtypes in ({jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float16)})
        and len(widths) == 1
        and all(width % 8 == 0 and width <= 128 for width in widths)
        and all(length > 0 and length % 2 == 0 for length in lengths)
    )


def limits(pairs: Pairs) -> tuple[Array | None, bool]:
    """The mask of the pairs, and whether they are causal from the first key on without a mask."""
    if pairs.all_visible:
        return None, False
    num_queries, num_keys = pairs.shape[-2:]
    only_causal = pairs.only_causal and isinstance(pairs.query_offset, int)
    if only_causal and pairs.query_offset == 0 and num_keys <= num_queries:
        return None, True
    return pairs.whole().mask, False


def attend(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    causal: bool,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> Array:
    """The context `(..., q, heads, d)` of `softmax(q k^T / sqrt(d)) v`.

    The mask has all axes of the weights `(..., heads, q, k)`. With `causal`, query `i` sees keys
    0 to `i`, without a mask. Rows and padding without any pair to attend are zeroed before and
    after, for the kernel knows a mask as a large negative bias.
    """
    if mask is not None:
        has_key = jnp.swapaxes(mask.any(axis=-1), -2, -1)  # (..., q, heads or 1)
        has_query = jnp.swapaxes(mask.any(axis=-2), -2, -1)  # (..., k, heads or 1)
        if mask.shape[-3] > 1:  # several heads may share a key head
            has_query = has_query.reshape(*has_query.shape[:-1], key.shape[-2], -1).any(axis=-1)
        query, key, value = hide(query, has_key), hide(key, has_query), hide(value, has_query)
        full = (*query.shape[:-3], mask.shape[-3], query.shape[-3], key.shape[-3])
        mask = jnp.broadcast_to(mask, full).reshape(-1, *full[-3:])
    q, k, v = (array.reshape(-1, *array.shape[-3:]) for array in (query, key, value))
    context = jax.nn.dot_product_attention(
        q, k, v, mask=mask, is_causal=causal, implementation=implementation
    ).reshape(query.shape)
    return context if mask is None else hide(context, has_key)
