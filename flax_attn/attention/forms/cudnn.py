"""Dot-product attention by cuDNN's fused kernel on NVIDIA GPUs. It does not store the weights.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm. `jax.nn.dot_product_attention` calls
the kernel.
"""

import math
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.normalizers import is_softmax
from flax_attn.attention.scores import DotProduct, scaled_dot
from flax_attn.attention.visibility import hide

if TYPE_CHECKING:
    from flax_attn.attention.core import Call


def why_not(call: "Call") -> str:
    """Tells why the kernel does not fit a call; nothing where it does."""
    if not call.visible.heads or call.indices is not None or call.chunk_size is not None:
        return "the call has no heads, some queries only, or a chunk_size"
    is_plain = call.score is scaled_dot or call.score == DotProduct()
    if not is_plain or not is_softmax(call.normalizer):
        return "it is not softmax of scaled dot products"
    if call.visible.bias is not None or call.dropout_rate:
        return "it has a bias or dropout"
    return unavailable(call.query, call.key, call.value)


def unavailable(query: Array, key: Array, value: Array) -> str:
    """Tells why the device has no kernel for arrays `(..., t, d)`; nothing where it has one."""
    if jax.default_backend() != "gpu" or "cuda" not in jax.devices()[0].client.platform_version:
        return "the device is no GPU of NVIDIA"
    capability = tuple(int(number) for number in jax.devices()[0].compute_capability.split("."))
    if capability < (8, 0):
        return "the capability of the GPU is below 8.0"
    dtypes = {array.dtype for array in (query, key, value)}
    if dtypes not in ({jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float16)}):
        return "the arrays are not all in bfloat16, or all in float16"
    widths = {array.shape[-1] for array in (query, key, value)}
    if len(widths) != 1 or any(width % 8 or width > 128 for width in widths):
        return "the arrays have no common width that is a multiple of 8 up to 128"
    is_odd = any(length == 0 or length % 2 for length in (query.shape[-2], key.shape[-2]))
    return "a length is odd" if is_odd else ""


def attend(call: "Call", implementation: Literal["cudnn", "xla"] = "cudnn") -> Array:
    """Computes the context `(..., heads, q, d)` of `softmax(q k^T / sqrt(d)) v`.

    The kernel applies a mask as a large negative bias, so a NaN in padding would leak. Queries with
    nothing to attend, and keys that no query may attend, are therefore zeroed before the kernel
    runs. Afterwards the context of a query with nothing to attend is set to 0. Causality from the
    first key on, with no more keys than queries, needs no mask.

    Args:
        call: its heads may be in groups `(key heads, group)`.
        implementation: of `jax.nn.dot_product_attention`.
    """
    visible, (num_queries, num_keys) = call.visible, call.visible.shape[-2:]
    causal = visible.is_causal_from_start and num_keys <= num_queries
    query, key, value, mask = call.query, call.key, call.value, None
    if not causal and not visible.all_visible:
        query, key, value, mask, _ = visible.shown(query, key, value)

    def heads_last(array: Array) -> Array:
        """`(b, t, heads, d)`, as the kernel takes it."""
        array = array.reshape(-1, *array.shape[len(visible.rows) :])
        array = array.reshape(len(array), -1, *array.shape[-2:])
        return jnp.swapaxes(array, 1, 2)

    merged = None
    if mask is not None:
        axes = mask.shape[len(visible.rows) : -2]
        heads = visible.heads if math.prod(axes) > 1 else axes
        merged = jnp.broadcast_to(mask, (*visible.rows, *heads, *mask.shape[-2:]))
        merged = merged.reshape(-1, math.prod(heads), *mask.shape[-2:])
    context = jax.nn.dot_product_attention(
        *map(heads_last, (query, key, value)),
        mask=merged,
        is_causal=causal,
        implementation=implementation,
    )
    context = jnp.swapaxes(context, 1, 2).reshape(*query.shape[:-1], value.shape[-1])
    return context if mask is None else hide(context, mask.any(axis=-1))
