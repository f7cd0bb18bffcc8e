"""Dot-product attention by cuDNN's fused kernel on NVIDIA GPUs, in linear memory.

The kernel gets the limits in its own terms: causality, a causal window, lengths and the scale. So
no array of all pairs exists. What it has no terms for goes to another form.

A row of the kernel is never empty: its lengths are 1 or above, and query lengths leave out the
queries that a window leaves without a key. What the kernel computes for a query without a key is
selected away, and so are the arrays' entries that nothing sees, in values and gradients. So nothing
that it leaves beyond the lengths gets out.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm. `jax.nn.dot_product_attention` calls
the kernel.
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn import platforms
from flax_attn.attention.forms import kernels
from flax_attn.attention.visibility import Visibility, hide, hide_unseen

if TYPE_CHECKING:
    from flax_attn.attention.core import Call

HALVES = [{jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float16)}]
TERMS = {"left", "right", "query_lengths", "key_lengths"}


def why_not(call: "Call") -> str:
    """Tells why the kernel does not fit a call; nothing where it does."""
    if reason := kernels.why_not_here(call, platforms.CUDA, "GPU of NVIDIA"):
        return reason
    if platforms.capability() < (8, 0):
        return "the capability of the GPU is below 8.0"
    return _why_not_arrays(call) or _why_not_terms(call)


def _why_not_arrays(call: "Call") -> str:
    """Tells why the kernel does not take the arrays."""
    if {array.dtype for array in call[:3]} not in HALVES:
        return "the arrays are not all in bfloat16, or all in float16"
    most = 256 if platforms.capability() >= platforms.HOPPER else 128
    widths = {array.shape[-1] for array in call[:3]}
    if len(widths) != 1 or any(width % 8 or not 0 < width <= most for width in widths):
        return f"the arrays have no common width that is a multiple of 8 up to {most}"
    return ""


def _why_not_terms(call: "Call") -> str:
    """Tells what of a call the kernel has no terms for."""
    visible, score = call.visible, kernels.constant_score(call)
    if score is None or score.softcap is not None:
        return "it is not softmax of dot products with a constant scale and no soft-cap"
    if reason := kernels.why_not_terms(call, TERMS):
        return reason
    is_bounded = (visible.left, visible.right) != (None, None)
    offset = visible.query_offset
    is_causal = visible.right == 0 and isinstance(offset, int) and offset == 0
    if is_bounded and not is_causal and not _is_one_query(visible):
        return "the kernel's window is causal, and counts from the first key"
    return ""


class KernelTerms(NamedTuple):
    """The arguments of the kernel.

    Attributes:
        is_causal: whether query `i` sees no key after `i`.
        left: the number of keys before that it sees, under causality; None for all.
        query_lengths, key_lengths: `(rows,)`, 1 or above; None where all are real.
    """

    is_causal: bool = False
    left: int | None = None
    query_lengths: Array | None = None
    key_lengths: Array | None = None


def terms_of(visible: Visibility) -> KernelTerms:
    """Says what the queries see in the terms of the kernel.

    Queries and keys of an odd number are padded by one, since JAX refuses odd lengths in training.
    Lengths then hide it, unless causality does.
    """
    num_queries, num_keys = visible.shape[-2:]
    one_query, left = _is_one_query(visible), visible.left
    is_causal = visible.right == 0 and not one_query
    no_lengths = visible.query_lengths is None and visible.key_lengths is None
    if left is not None and left >= num_keys - 1 and no_lengths and num_queries <= num_keys:
        left = None
    some_see_nothing = left is not None and num_queries + num_queries % 2 > num_keys + left
    shows_padding = num_keys % 2 == 1 and not (is_causal and num_queries <= num_keys)
    if not one_query and no_lengths and not some_see_nothing and not shows_padding:
        return KernelTerms(is_causal, left)
    of_rows = lambda numbers: jnp.broadcast_to(jnp.ravel(jnp.asarray(numbers)), _num_rows(visible))
    of_keys = of_rows(num_keys if visible.key_lengths is None else visible.key_lengths)
    of_queries = of_rows(num_queries if visible.query_lengths is None else visible.query_lengths)
    if one_query:  # its causality is a length
        assert visible.right is not None
        of_keys = jnp.minimum(of_keys, of_rows(visible.query_offset) + visible.right + 1)
    of_keys = jnp.clip(of_keys, 1, num_keys)
    if left is not None:
        of_queries = jnp.minimum(of_queries, of_keys + left)
    of_queries = jnp.clip(of_queries, 1, num_queries)
    return KernelTerms(is_causal, left, of_queries.astype(jnp.int32), of_keys.astype(jnp.int32))


def attend(call: "Call") -> Array:
    """Computes the context `(..., heads, q, d)` of `softmax(scale q k^T) v`.

    The heads of the call may be in groups `(key heads, group)`. JAX knows only after tracing where
    a program will run, for its arrays may lie on another device. There XLA computes the same terms,
    with an array of all pairs.
    """
    visible, terms = call.visible, terms_of(call.visible)
    has_key, has_query = visible.reachable()
    query, key, value = hide_unseen(*call[:3], has_key, has_query)

    def heads_last(array: Array) -> Array:
        """Reshapes to `(rows, t, heads, d)` with an even length, as the kernel takes it."""
        array = array.reshape(*_num_rows(visible), -1, *array.shape[-2:])
        array = jnp.pad(array, [(0, 0), (0, 0), (0, array.shape[-2] % 2), (0, 0)])
        return jnp.swapaxes(array, 1, 2)

    score = kernels.constant_score(call)
    assert score is not None
    window = None if terms.left is None else (terms.left, 0)
    compute = functools.partial(
        in_terms, scale=score.scale, is_causal=terms.is_causal, window=window
    )
    arrays, same = mapped_alike(*map(heads_last, (query, key, value)), *terms[2:])
    context = jax.lax.platform_dependent(
        *arrays,
        cuda=functools.partial(compute, implementation="cudnn"),
        # nothing of the size of the weights is stored for its gradient
        default=jax.checkpoint(functools.partial(compute, implementation="xla")),
    )
    context = jnp.swapaxes(same(context)[:, : query.shape[-2]], 1, 2).reshape(
        *query.shape[:-1], value.shape[-1]
    )
    return hide(context, has_key)


def mapped_alike(*arrays: Array | None) -> tuple[list[Array | None], Callable[[Array], Array]]:
    """Makes `jax.vmap` map all arrays where it maps one, as JAX's rule for the kernel expects.

    Returns the arrays, and a function that does the same to the context, for its gradient. XLA
    removes what is added here.
    """
    parts = [jax.lax.stop_gradient(array[..., :0]) for array in arrays if array is not None]
    never = functools.reduce(jnp.logical_or, [jnp.any(empty != 0) for empty in parts])
    same = lambda array: jnp.where(never, jnp.zeros_like(array), array)
    return [None if array is None else same(array) for array in arrays], same


@functools.partial(jax.jit, static_argnames=("scale", "is_causal", "window", "implementation"))
def in_terms(
    query: Array,
    key: Array,
    value: Array,
    query_lengths: Array | None,
    key_lengths: Array | None,
    *,
    scale: float | None,
    is_causal: bool,
    window: tuple[int, int] | None,
    implementation: Literal["cudnn", "xla"],
) -> Array:
    """Computes the context `(rows, q, heads, d)`. Layers of one shape are traced once."""
    with jax.numpy_dtype_promotion("standard"):  # JAX promotes here
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            scale=scale,
            is_causal=is_causal,
            query_seq_lengths=query_lengths,
            key_value_seq_lengths=key_lengths,
            local_window_size=window,
            implementation=implementation,
        )


def _is_one_query(visible: Visibility) -> bool:
    """Tells whether there is one query with an end of what it sees, as in decoding."""
    return visible.shape[-2] == 1 and visible.right is not None and visible.left is None


def _num_rows(visible: Visibility) -> tuple[int]:
    return (math.prod(visible.rows),)
