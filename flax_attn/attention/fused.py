"""Dot-product attention in one kernel, cuDNN's, that holds no weights: for callers on an NVIDIA GPU who will not look at them.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm; `jax.nn.dot_product_attention` for the kernel.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.energies import zero_hidden


def available(query: Array, key: Array, value: Array) -> bool:
    """Whether there is such a GPU, and the kernel takes queries, keys and values `(..., t, heads, d)` of these dtypes and shapes."""
    if jax.default_backend() != "gpu" or "cuda" not in jax.devices()[0].client.platform_version:
        return False
    capability = tuple(int(number) for number in jax.devices()[0].compute_capability.split("."))
    dtypes, widths = {array.dtype for array in (query, key, value)}, {array.shape[-1] for array in (query, key, value)}
    lengths = query.shape[-3], key.shape[-3]
    return (
        capability >= (8, 0)
        and dtypes in ({jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float16)})
        and len(widths) == 1
        and all(width % 8 == 0 and width <= 128 for width in widths)
        and all(length > 0 and length % 2 == 0 for length in lengths)
    )


def attend(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool, implementation: Literal["cudnn", "xla"] = "cudnn"
) -> Array:
    """The context `(..., q, heads, d)` of `softmax(q k^T / sqrt(d)) v` under a mask with all axes of the weights `(..., heads, q, k)`.

    `causal` is causality from the first key on, without a mask. Rows and padding without any pair to attend are zeroed before
    and after, for the kernel knows a mask as a large negative bias.
    """
    if mask is not None:
        has_key = jnp.swapaxes(mask.any(axis=-1), -2, -1)[..., None]  # (..., q, heads or 1, 1)
        has_query = jnp.swapaxes(mask.any(axis=-2), -2, -1)[..., None]  # (..., k, heads or 1, 1)
        if mask.shape[-3] > 1:  # several heads may share a key head
            has_query = has_query.reshape(*has_query.shape[:-2], key.shape[-2], -1, 1).any(axis=-2)
        query, key, value = zero_hidden(query, key, value, has_key, has_query)
        mask = jnp.broadcast_to(mask, (*query.shape[:-3], mask.shape[-3], query.shape[-3], key.shape[-3]))
        mask = mask.reshape(-1, *mask.shape[-3:])
    q, k, v = (array.reshape(-1, *array.shape[-3:]) for array in (query, key, value))
    context = jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=causal, implementation=implementation).reshape(query.shape)
    return context if mask is None else jnp.where(has_key, context, 0)
