"""Dot-product attention by cuDNN's fused kernel on NVIDIA GPUs. It does not store the weights.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm. `jax.nn.dot_product_attention` calls
the kernel.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.arrays import hide
from flax_attn.attention.pairs import Pairs


def available(query: Array, key: Array, value: Array) -> bool:
    """Whether the GPU has the kernel, and the kernel takes these arrays, `(..., t, heads, d)`."""
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
    """The arguments `mask` and `causal` of `attend` for these pairs.

    Causality alone, from the first key on, needs no mask. Other limits become a mask.
    """
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

    The kernel applies a mask as a large negative bias, so a NaN in padding would leak. Queries with
    nothing to attend, and keys that no query may attend, are therefore zeroed before the kernel
    runs. Afterwards the context of a query with nothing to attend is set to 0.

    Args:
        query, key, value: `(..., q, heads, d)` and `(..., k, key_heads, d)`.
        mask: with all axes of the weights `(..., heads, q, k)`, of full size or 1. None for no
            mask.
        causal: query `i` attends to keys 0 to `i`. It replaces a mask.
        implementation: of `jax.nn.dot_product_attention`.
    """
    if mask is not None:
        has_key = jnp.swapaxes(mask.any(axis=-1), -2, -1)  # (..., q, heads or 1)
        has_query = jnp.swapaxes(mask.any(axis=-2), -2, -1)  # (..., k, heads or 1)
        if mask.shape[-3] > 1:  # heads may share a key head
            has_query = has_query.reshape(*has_query.shape[:-1], key.shape[-2], -1).any(axis=-1)
        query, key, value = hide(query, has_key), hide(key, has_query), hide(value, has_query)
        shape = (*query.shape[:-3], mask.shape[-3], query.shape[-3], key.shape[-3])
        mask = jnp.broadcast_to(mask, shape).reshape(-1, *shape[-3:])
    q, k, v = (array.reshape(-1, *array.shape[-3:]) for array in (query, key, value))
    context = jax.nn.dot_product_attention(
        q, k, v, mask=mask, is_causal=causal, implementation=implementation
    ).reshape(query.shape)
    return context if mask is None else hide(context, has_key)
