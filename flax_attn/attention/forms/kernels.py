"""Dot-product attention by the fused kernels of GPUs and TPUs, in linear memory.

cuDNN's kernel runs on NVIDIA GPUs. It gets the limits in its own terms: causality, a causal window,
lengths and the scale. So no array of all pairs exists. What it has no terms for goes to another
form. A row of the kernel is never empty: its lengths are 1 or above, and query lengths leave out
the queries that a window leaves without a key. What the kernel computes for a query without a key
is selected away, and so are the arrays' entries that nothing sees, in values and gradients. So
nothing that it leaves beyond the lengths gets out.

Splash attention is the block-sparse kernel that JAX has for TPUs. It gets causality and windows as
a mask that it computes itself, so it never visits blocks outside. Lengths and segments become ids:
a query sees the keys with its id. The scale is put on the queries, and rounded once. The kernel
hides by a large negative number. So a query whose visited keys are all hidden gets the mean of
their values, and no 0. Hence a call is taken only if it is known of each query whether it sees a
key. Those that see none, and keys that no query sees, are zeroed and get the id -1. Their context
is selected away, in values and gradients.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm. `jax.nn.dot_product_attention` calls
cuDNN's kernel, `jax.experimental.pallas.ops.tpu` has splash attention.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flax_attn import platforms
from flax_attn.attention.arrays import as_dtype_of, wide
from flax_attn.attention.normalizers import is_softmax
from flax_attn.attention.scores import DotProduct, as_dot_product
from flax_attn.attention.visibility import Reached, Visibility, hide, hide_unseen
from flax_attn.types import Options, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.attention.core import Call

CUDNN_DTYPES = [{jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float16)}]
CUDNN_TERMS = {"left", "right", "query_lengths", "key_lengths"}

LANES = 128  # block sizes are multiples
LARGEST = 1024  # twice as much does not fit into the memory of a v5e's core
LARGEST_AT_ONCE = 512  # keys of a block
TPU_DENSE = 2**26  # scores up to which the formula is taken; no time was measured
SPLASH_DTYPES = [{jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float32)}]
SPLASH_TERMS = {"left", "right", "query_lengths", "key_lengths", "query_segments", "key_segments"}
PRECISIONS = ("default", "bfloat16")  # JAX compiles the kernel in no other


def why_not_here(call: "Call", platform: str, device: str) -> str:
    """Tells why no kernel of a platform, whose devices are called `device`, fits a call at all."""
    if platforms.of(call.query) != platform:
        return f"the program is not for a {device}"
    if not platforms.uses_kernels():
        return "kernels are turned off"
    if not call.visible.heads or call.indices is not None or call.chunk_size is not None:
        return "the call has no heads, some queries only, or a chunk_size"
    return ""


def why_not_terms(call: "Call", terms: set[str]) -> str:
    """Tells what of a call a kernel with these terms for its limits cannot take."""
    if call.dropout_rate or call.visible.is_symbolic:
        return "it has dropout, or sizes that are not known"
    others = call.visible.limits - terms
    return f"the kernel has no terms for {', '.join(sorted(others))}" if others else ""


def constant_score(call: "Call") -> DotProduct | None:
    """Returns the dot product of a softmax call with known numbers; None for another call."""
    score = as_dot_product(call.score) if is_softmax(call.normalizer) else None
    is_known = score is not None and all(n is None or isinstance(n, float) for n in score)
    return score if is_known else None


def why_not_cudnn(call: "Call") -> str:
    """Tells why the kernel does not fit a call; nothing where it does."""
    if reason := why_not_here(call, platforms.CUDA, "GPU of NVIDIA"):
        return reason
    if platforms.capability() < (8, 0):  # Ampere and later
        return "the capability of the GPU is below 8.0"
    return _why_not_cudnn_arrays(call) or _why_not_cudnn_terms(call)


def _why_not_cudnn_arrays(call: "Call") -> str:
    """Tells why the kernel does not take the arrays."""
    if {array.dtype for array in call[:3]} not in CUDNN_DTYPES:
        return "the arrays are not all in bfloat16, or all in float16"
    most = 256 if platforms.capability() >= platforms.HOPPER else 128
    widths = {array.shape[-1] for array in call[:3]}
    if len(widths) != 1 or any(width % 8 or not 0 < width <= most for width in widths):
        return f"the arrays have no common width that is a multiple of 8 up to {most}"
    return ""


def _why_not_cudnn_terms(call: "Call") -> str:
    """Tells what of a call the kernel has no terms for."""
    visible, score = call.visible, constant_score(call)
    if score is None or score.softcap is not None:
        return "it is not softmax of dot products with a constant scale and no soft-cap"
    if reason := why_not_terms(call, CUDNN_TERMS):
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
        left = None  # a window over all keys is none
    some_see_nothing = left is not None and num_queries + num_queries % 2 > num_keys + left
    shows_padding = num_keys % 2 == 1 and not (is_causal and num_queries <= num_keys)
    if not one_query and no_lengths and not some_see_nothing and not shows_padding:
        return KernelTerms(is_causal, left)
    of_rows = lambda numbers: jnp.broadcast_to(jnp.ravel(jnp.asarray(numbers)), _num_rows(visible))
    of_keys = of_rows(num_keys if visible.key_lengths is None else visible.key_lengths)  # (rows,)
    of_queries = of_rows(num_queries if visible.query_lengths is None else visible.query_lengths)
    if one_query:  # its causality is a length
        assert visible.right is not None
        of_keys = jnp.minimum(of_keys, of_rows(visible.query_offset) + visible.right + 1)  # (rows,)
    of_keys = jnp.clip(of_keys, 1, num_keys)  # a row of the kernel is never empty
    if left is not None:
        of_queries = jnp.minimum(of_queries, of_keys + left)  # later queries see no key
    of_queries = jnp.clip(of_queries, 1, num_queries)  # (rows,)
    return KernelTerms(is_causal, left, of_queries.astype(jnp.int32), of_keys.astype(jnp.int32))


def attend_by_cudnn(call: "Call") -> Array:
    """Computes the context `(..., heads, q, d)` of `softmax(scale q k^T) v`.

    The heads of the call may be in groups `(key heads, group)`. JAX knows only after tracing where
    a program will run, for its arrays may lie on another device. There XLA computes the same terms,
    with an array of all pairs.
    """
    visible, terms = call.visible, terms_of(call.visible)
    has_key, has_query = visible.reachable()  # (..., q), (..., k)
    query, key, value = hide_unseen(*call[:3], has_key, has_query)

    def heads_last(array: Array) -> Array:
        """Reshapes to `(rows, t, heads, d)` with an even length, as the kernel takes it."""
        array = array.reshape(*_num_rows(visible), -1, *array.shape[-2:])  # (rows, heads, t, d)
        array = jnp.pad(array, [(0, 0), (0, 0), (0, array.shape[-2] % 2), (0, 0)])
        return jnp.swapaxes(array, 1, 2)  # (rows, t, heads, d)

    score = constant_score(call)
    assert score is not None
    window = None if terms.left is None else (terms.left, 0)
    compute = functools.partial(
        in_terms, scale=score.scale, is_causal=terms.is_causal, window=window
    )
    arrays, same = mapped_alike(*map(heads_last, (query, key, value)), *terms[2:])
    context = jax.lax.platform_dependent(  # (rows, q, heads, d), q even
        *arrays,
        cuda=functools.partial(compute, implementation="cudnn"),
        # nothing of the size of the weights is stored for its gradient
        default=jax.checkpoint(functools.partial(compute, implementation="xla")),
    )
    context = jnp.swapaxes(same(context)[:, : query.shape[-2]], 1, 2).reshape(
        *query.shape[:-1], value.shape[-1]
    )
    return hide(context, has_key)  # (..., heads, q, d)


def mapped_alike(*arrays: Array | None) -> tuple[list[Array | None], Callable[[Array], Array]]:
    """Makes `jax.vmap` map all arrays where it maps one, as JAX's rule for the kernel expects.

    Returns the arrays, and a function that does the same to the context, for its gradient. XLA
    removes what is added here.
    """
    parts = [jax.lax.stop_gradient(array[..., :0]) for array in arrays if array is not None]
    never = functools.reduce(jnp.logical_or, [jnp.any(empty != 0) for empty in parts])  # False
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


def why_not_splash(call: "Call") -> str:
    """Tells why the kernel does not fit a call; nothing where it does."""
    if reason := why_not_here(call, platforms.TPU, "TPU"):
        return reason
    if {array.dtype for array in call[:3]} not in SPLASH_DTYPES:
        return "the arrays are not all in bfloat16, or all in float32"
    if platforms.may_cut_arrays(*call[:3]):
        return "XLA may cut the arrays over the devices of a mesh"
    if platforms.is_shard_map_checked():
        return "the jax.shard_map around has no check_vma=False"
    if reason := _why_not_splash_terms(call):
        return reason
    if (precision := platforms.matmul_precision()) not in PRECISIONS:
        return f"the kernel cannot multiply in the precision {precision}"
    few = math.prod(call.visible.shape) * platforms.num_copies() < TPU_DENSE
    return "all scores at once are as fast" if few else ""


def _why_not_splash_terms(call: "Call") -> str:
    """Tells what of a call the kernel has no terms for."""
    visible = call.visible
    if constant_score(call) is None:
        return "it is not softmax of dot products with a constant scale and soft-cap"
    if reason := why_not_terms(call, SPLASH_TERMS):
        return reason
    if not isinstance(visible.query_offset, int) or visible.query_offset < 0:
        return "the offset of the queries is not known, or below 0"
    is_bounded = (visible.left, visible.right) != (None, None)
    lengths = {"query_lengths", "key_lengths"} & visible.limits
    meets_itself = visible.is_packed and visible.query_offset == 0 and not lengths
    if visible.query_segments is not None and is_bounded and not meets_itself:
        return "a query may see no key of its segment in its window"
    return ""


def attend_by_splash(call: "Call") -> Array:
    """Computes the context `(..., heads, q, e)`.

    JAX knows only after tracing where a program will run, for its arrays may lie on another device.
    There the formula computes it.
    """
    by = lambda compute: (
        lambda *three: compute(call._replace(query=three[0], key=three[1], value=three[2]))
    )
    formula = by(lambda call: call.dense()[0].astype(call.query.dtype))
    # nothing of the size of the weights is stored for the gradient of the formula
    default = jax.checkpoint(formula)
    return jax.lax.platform_dependent(*call[:3], tpu=by(splash), default=default)


def splash(call: "Call", interpret: bool = False) -> Array:
    """Computes the context by the kernel.

    Args:
        call: its heads may be in groups `(key heads, group)`.
        interpret: computes what the kernel does by XLA, on any device.
    """
    visible, (num_queries, num_keys) = call.visible, call.visible.shape[-2:]
    queries, keys = splash_block_size(num_queries), splash_block_size(num_keys)
    padded = -(-num_queries // queries) * queries, -(-num_keys // keys) * keys
    ids, has_key, has_query = ids_of(visible, *padded)  # (rows, t) each, (..., q), (..., k)
    query, key, value = hide_unseen(*call[:3], has_key, has_query)
    score = constant_score(call)
    assert score is not None
    scale = query.shape[-1] ** -0.5 if score.scale is None else score.scale
    scaled = query.astype(wide(query.dtype))  # so that only the product is rounded
    query = (scaled * as_dtype_of(scaled, scale)).astype(query.dtype)  # (..., heads, q, d)

    def in_rows(array: Array, length: int) -> Array:
        """Reshapes to `(rows, heads, t, d)`, padded with zeros."""
        array = array.reshape(math.prod(visible.rows), -1, *array.shape[-2:])  # (rows, heads, t, d)
        return jnp.pad(array, [(0, 0), (0, 0), (0, length - array.shape[-2]), (0, 0)])

    arrays = in_rows(query, padded[0]), in_rows(key, padded[1]), in_rows(value, padded[1])
    window, num_heads = (visible.left, visible.right, visible.query_offset), arrays[0].shape[1]
    softcap: UserInput = score.softcap
    run = splash_kernel(*padded, queries, keys, num_heads, window, softcap, interpret)
    context = jax.vmap(run)(*arrays, *([] if ids is None else [ids]))[:, :, :num_queries]
    return hide(context.reshape(*query.shape[:-1], value.shape[-1]), has_key)  # (..., q, e)


def splash_block_size(length: int) -> int:
    """Returns the largest block that cuts a length with the least padding."""
    number = -(-length // LARGEST)
    return -(-length // (number * LANES)) * LANES


@functools.lru_cache(maxsize=64)
def splash_kernel(
    num_queries: int,
    num_keys: int,
    query_block: int,
    key_block: int,
    num_heads: int,
    window: tuple[int | None, int | None, int],
    softcap: float | None,
    interpret: bool,
) -> Callable[..., Tree]:
    """Makes the kernel for lengths and a window `(left, right, offset)`. To lay it out takes time.

    It maps `(heads, q, d)`, `(key heads, k, d)`, `(key heads, k, e)`, and perhaps ids, to the
    context `(heads, q, e)`.
    """
    # these modules load Pallas, which takes a second
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    (left, right, offset), shape = window, (num_queries, num_keys)
    before = math.inf if left is None else left
    after = math.inf if right is None else right

    class Window(masks.LocalMask):
        """A window that tells of a whole block at once whether it is visible, by one number."""

        def __getitem__(self, block: tuple[slice, slice]) -> np.ndarray:
            queries, keys = block
            first, last = queries.start + offset, queries.stop - 1 + offset
            if last - before <= keys.start and keys.stop - 1 <= first + after:
                return np.ones((1, 1), bool)  # every pair is visible
            if keys.stop - 1 < first - before or last + after < keys.start:
                return np.zeros((1, 1), bool)  # no pair is visible
            return super().__getitem__(block)  # on the edge: pair by pair

    is_full = (left, right) == (None, None)
    mask = masks.FullMask(shape) if is_full else Window(shape, (left, right), offset)
    at_once = LARGEST_AT_ONCE if key_block % LARGEST_AT_ONCE == 0 else key_block
    blocks: Options = {"block_q": query_block, "block_kv": key_block, "block_kv_compute": at_once}
    blocks |= {"block_q_dq": query_block, "block_kv_dq": key_block}
    blocks |= {"block_q_dkv": query_block, "block_kv_dkv": key_block}
    make = functools.partial(
        kernels.make_splash_mha,
        masks.MultiHeadMask([mask] * num_heads),
        block_sizes=kernels.BlockSizes(**blocks, block_kv_dkv_compute=at_once),
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=softcap,
        interpret=interpret,
    )
    # its arrays are of no trace and no mesh around, whose devices may not be here
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(make).result()


def ids_of(
    visible: Visibility, num_queries: int, num_keys: int
) -> tuple[tuple[Array, Array] | None, Reached, Reached]:
    """Says by ids what the mask of the kernel does not hide, for padded lengths.

    Returns:
        The ids of queries and keys, `(rows, t)`, or None where the mask hides all; which queries
        see a key `(..., q)`, and which keys a query sees `(..., k)`.
    """
    window = dataclasses.replace(visible, query_segments=None, key_segments=None)
    has_key, has_query = window.reachable()
    all_reached = isinstance(has_key, np.ndarray) and bool(has_key.all() and has_query.all())
    if all_reached and visible.query_segments is None and _mask_hides_padding(visible, num_keys):
        return None, has_key, has_query
    rows = math.prod(visible.rows)

    def in_rows(array: Array) -> Array:
        """Reshapes to `(rows, t)`; the axes of heads are 1."""
        full = jnp.broadcast_to(array, (*visible.rows, *array.shape[len(visible.rows) :]))
        return full.reshape(rows, array.shape[-1])

    has_key, has_query = in_rows(jnp.asarray(has_key)), in_rows(jnp.asarray(has_query))
    if visible.query_segments is None or visible.key_segments is None:
        query_ids, key_ids = jnp.zeros_like(has_key, int), jnp.zeros_like(has_query, int)
    else:
        segments = in_rows(visible.query_segments[..., 0]), in_rows(visible.key_segments[..., 0, :])
        query_ids, key_ids = jax.vmap(ranks)(*segments)  # (rows, q), (rows, k)
        if visible.left is None and visible.right is None:  # else a token meets itself
            has_key &= jax.vmap(is_among)(query_ids, key_ids, has_query)  # (rows, q)
            has_query &= jax.vmap(is_among)(key_ids, query_ids, has_key)  # (rows, k)
    pad = lambda ids, length: jnp.pad(
        ids.astype(jnp.int32), [(0, 0), (0, length - ids.shape[-1])], constant_values=-1
    )
    query_ids, key_ids = jnp.where(has_key, query_ids, -1), jnp.where(has_query, key_ids, -1)
    ids = segment_ids(pad(query_ids, num_queries), pad(key_ids, num_keys))  # (rows, t)
    axes = (*visible.rows, *(1,) * len(visible.heads))
    return ids, has_key.reshape(*axes, -1), has_query.reshape(*axes, -1)  # (..., q), (..., k)


def segment_ids(query_ids: Array, key_ids: Array) -> tuple[Array, Array]:
    """Puts the ids into the pair that the kernel takes."""
    from jax.experimental.pallas.ops.tpu.splash_attention import SegmentIds

    return SegmentIds(query_ids, key_ids)


def _mask_hides_padding(visible: Visibility, num_keys: int) -> bool:
    """Tells whether the mask of the kernel alone keeps each query from the keys that pad."""
    if num_keys == visible.shape[-1]:
        return True
    if visible.right is None or not isinstance(visible.query_offset, int):
        return False
    return visible.shape[-2] - 1 + visible.query_offset + visible.right < visible.shape[-1]


def ranks(
    query_ids: Int[Array, " q"], key_ids: Int[Array, " k"]
) -> tuple[Int[Array, " q"], Int[Array, " k"]]:
    """Numbers any integers from 0 on, equal ones alike, so that -1 is free."""
    in_order = jnp.sort(jnp.concatenate([query_ids, key_ids]))  # (q + k,)
    return jnp.searchsorted(in_order, query_ids), jnp.searchsorted(in_order, key_ids)  # (q,), (k,)


def is_among(
    ids: Int[Array, " t"], others: Int[Array, " s"], is_real: Bool[Array, " s"]
) -> Bool[Array, " t"]:
    """Tells of each id whether a real one of the others equals it, in `n log n` time."""
    others = jnp.sort(jnp.where(is_real, others, jnp.iinfo(others.dtype).max))  # (s,)
    nearest = jnp.searchsorted(others, ids)  # (t,); `s` beyond the largest
    return others[jnp.minimum(nearest, len(others) - 1)] == ids  # (t,)
