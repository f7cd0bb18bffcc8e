"""Dot-product attention by splash attention, the block-sparse kernel that JAX has for TPUs.

The kernel gets causality and windows as a mask that it computes itself, so it never visits blocks
outside. Lengths and segments become ids: a query sees the keys with its id. The scale is put on the
queries, and rounded once.

The kernel hides by a large negative number. So a query whose visited keys are all hidden gets the
mean of their values, and no 0. Hence a call is taken only if it is known of each query whether it
sees a key. Those that see none, and keys that no query sees, are zeroed and get the id -1. Their
context is selected away, in values and gradients.

Source: Dao et al. 2022 (arXiv:2205.14135) for the algorithm, `jax.experimental.pallas.ops.tpu`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flax_attn import platforms
from flax_attn.attention.arrays import as_dtype_of, wide
from flax_attn.attention.forms import kernels
from flax_attn.attention.visibility import Reached, Visibility, hide, hide_unseen
from flax_attn.types import Options, Tree, UserInput

if TYPE_CHECKING:
    from flax_attn.attention.core import Call

LANES = 128  # block sizes are multiples
LARGEST = 1024  # twice as much does not fit into the memory of a v5e's core
LARGEST_AT_ONCE = 512  # keys of a block
TPU_DENSE = 2**26  # scores up to which the formula is taken; no time was measured
DTYPES = [{jnp.dtype(jnp.bfloat16)}, {jnp.dtype(jnp.float32)}]
TERMS = {"left", "right", "query_lengths", "key_lengths", "query_segments", "key_segments"}
PRECISIONS = ("default", "bfloat16")  # JAX compiles the kernel in no other


def why_not(call: "Call") -> str:
    """Tells why the kernel does not fit a call; nothing where it does."""
    if reason := kernels.why_not_here(call, platforms.TPU, "TPU"):
        return reason
    if {array.dtype for array in call[:3]} not in DTYPES:
        return "the arrays are not all in bfloat16, or all in float32"
    if platforms.may_cut_arrays(*call[:3]):
        return "XLA may cut the arrays over the devices of a mesh"
    if platforms.is_shard_map_checked():
        return "the jax.shard_map around has no check_vma=False"
    if reason := _why_not_terms(call):
        return reason
    if (precision := platforms.matmul_precision()) not in PRECISIONS:
        return f"the kernel cannot multiply in the precision {precision}"
    few = math.prod(call.visible.shape) * platforms.num_copies() < TPU_DENSE
    return "all scores at once are as fast" if few else ""


def _why_not_terms(call: "Call") -> str:
    """Tells what of a call the kernel has no terms for."""
    visible = call.visible
    if kernels.constant_score(call) is None:
        return "it is not softmax of dot products with a constant scale and soft-cap"
    if reason := kernels.why_not_terms(call, TERMS):
        return reason
    if not isinstance(visible.query_offset, int) or visible.query_offset < 0:
        return "the offset of the queries is not known, or below 0"
    is_bounded = (visible.left, visible.right) != (None, None)
    lengths = {"query_lengths", "key_lengths"} & visible.limits
    meets_itself = visible.is_packed and visible.query_offset == 0 and not lengths
    if visible.query_segments is not None and is_bounded and not meets_itself:
        return "a query may see no key of its segment in its window"
    return ""


def attend(call: "Call") -> Array:
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
    return jax.lax.platform_dependent(*call[:3], tpu=by(by_kernel), default=default)


def by_kernel(call: "Call", interpret: bool = False) -> Array:
    """Computes the context by the kernel.

    Args:
        call: its heads may be in groups `(key heads, group)`.
        interpret: computes what the kernel does by XLA, on any device.
    """
    visible, (num_queries, num_keys) = call.visible, call.visible.shape[-2:]
    queries, keys = block_size(num_queries), block_size(num_keys)
    padded = -(-num_queries // queries) * queries, -(-num_keys // keys) * keys
    ids, has_key, has_query = ids_of(visible, *padded)
    query, key, value = hide_unseen(*call[:3], has_key, has_query)
    score = kernels.constant_score(call)
    assert score is not None
    scale = query.shape[-1] ** -0.5 if score.scale is None else score.scale
    scaled = query.astype(wide(query.dtype))
    query = (scaled * as_dtype_of(scaled, scale)).astype(query.dtype)

    def in_rows(array: Array, length: int) -> Array:
        """Reshapes to `(rows, heads, t, d)`, padded with zeros."""
        array = array.reshape(math.prod(visible.rows), -1, *array.shape[-2:])
        return jnp.pad(array, [(0, 0), (0, 0), (0, length - array.shape[-2]), (0, 0)])

    arrays = in_rows(query, padded[0]), in_rows(key, padded[1]), in_rows(value, padded[1])
    window, num_heads = (visible.left, visible.right, visible.query_offset), arrays[0].shape[1]
    softcap: UserInput = score.softcap
    run = kernel(*padded, queries, keys, num_heads, window, softcap, interpret)
    context = jax.vmap(run)(*arrays, *([] if ids is None else [ids]))[:, :, :num_queries]
    return hide(context.reshape(*query.shape[:-1], value.shape[-1]), has_key)


def block_size(length: int) -> int:
    """Returns the largest block that cuts a length with the least padding."""
    number = -(-length // LARGEST)
    return -(-length // (number * LANES)) * LANES


@functools.lru_cache(maxsize=64)
def kernel(
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
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
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
                return np.ones((1, 1), bool)
            if keys.stop - 1 < first - before or last + after < keys.start:
                return np.zeros((1, 1), bool)
            return super().__getitem__(block)

    is_full = (left, right) == (None, None)
    mask = masks.FullMask(shape) if is_full else Window(shape, (left, right), offset)
    at_once = LARGEST_AT_ONCE if key_block % LARGEST_AT_ONCE == 0 else key_block
    blocks: Options = {"block_q": query_block, "block_kv": key_block, "block_kv_compute": at_once}
    blocks |= {"block_q_dq": query_block, "block_kv_dq": key_block}
    blocks |= {"block_q_dkv": query_block, "block_kv_dkv": key_block}
    make = functools.partial(
        splash.make_splash_mha,
        masks.MultiHeadMask([mask] * num_heads),
        block_sizes=splash.BlockSizes(**blocks, block_kv_dkv_compute=at_once),
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
        query_ids, key_ids = jax.vmap(ranks)(*segments)
        if visible.left is None and visible.right is None:  # else a token meets itself
            has_key &= jax.vmap(is_among)(query_ids, key_ids, has_query)
            has_query &= jax.vmap(is_among)(key_ids, query_ids, has_key)
    pad = lambda ids, length: jnp.pad(
        ids.astype(jnp.int32), [(0, 0), (0, length - ids.shape[-1])], constant_values=-1
    )
    query_ids, key_ids = jnp.where(has_key, query_ids, -1), jnp.where(has_query, key_ids, -1)
    ids = segment_ids(pad(query_ids, num_queries), pad(key_ids, num_keys))
    axes = (*visible.rows, *(1,) * len(visible.heads))
    return ids, has_key.reshape(*axes, -1), has_query.reshape(*axes, -1)


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
    in_order = jnp.sort(jnp.concatenate([query_ids, key_ids]))
    return jnp.searchsorted(in_order, query_ids), jnp.searchsorted(in_order, key_ids)


def is_among(
    ids: Int[Array, " t"], others: Int[Array, " s"], is_real: Bool[Array, " s"]
) -> Bool[Array, " t"]:
    """Tells of each id whether a real one of the others equals it, in `n log n` time."""
    others = jnp.sort(jnp.where(is_real, others, jnp.iinfo(others.dtype).max))
    nearest = jnp.searchsorted(others, ids)
    return others[jnp.minimum(nearest, len(others) - 1)] == ids
