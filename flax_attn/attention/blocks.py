"""Attention in blocks: of queries for any normaliser, of queries and keys for softmax.

A normaliser may need a whole row of keys at a time. `over_queries` then goes from one block of
queries to the next. A block is computed again for its gradient (`jax.checkpoint`), so no more than
one block of scores exists at any time.

Softmax needs no whole row. `in_blocks` cuts the arrays for `streaming`, which has a derivative of
its own: its functions may close over no array.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from flax_attn.attention.all_queries import in_blocks_of_queries
from flax_attn.attention.arrays import add, hide, merge, split, varying, wide, with_rank
from flax_attn.attention.checks import check_result
from flax_attn.attention.closures import without_closure
from flax_attn.attention.how import How
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.parts import Part
from flax_attn.attention.reach import visible_blocks
from flax_attn.attention.types import Score


def over_queries(
    dense: Callable[..., tuple[Array, Array]],
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    how: How,
    part: Part,
) -> Array:
    """The context `(..., q, e)` of `dense`, one block of queries after another."""
    num_queries = query.shape[-2]
    size = num_queries if how.chunk_size is None else min(how.chunk_size, num_queries)

    def row(args: tuple[Array, Array, Array | None]) -> Array:
        indices, query, bias = args
        block = part._replace(queries=indices, bias=bias).block(pairs)
        with in_blocks_of_queries():
            return dense(query, key, value, pairs, how, block)[0]

    arguments = split(part.queries, size, -1), split(query, size), bias_blocks(part, size)
    return merge(jax.lax.map(jax.checkpoint(row), arguments), num_queries)


def score_over_queries(score: Score, size: int) -> Score:
    """The same score, one block of queries after another.

    The values between, such as the hidden layer of an additive score, then never exist at once.
    """

    def in_turn(query: Array, key: Array) -> Array:
        length = min(size, query.shape[-2])
        rows = jax.lax.map(jax.checkpoint(lambda query: score(query, key)), split(query, length))
        return merge(rows, query.shape[-2])

    return in_turn


def bias_blocks(part: Part, *sizes: int) -> Array | None:
    """The array of biases, cut along queries, or queries and keys; blocks in front.

    It is cut beforehand: the gradient of a block is then a block, not zeros around one.
    """
    if part.bias is None:
        return None
    lengths = len(part.queries), len(part.keys)
    numbers = [-(-length // size) for length, size in zip(lengths, sizes)]
    blocks = part.bias
    for axis, size in reversed(list(zip((-2, -1), sizes))):
        blocks = split(blocks, size, axis) if blocks.shape[axis] > 1 else blocks[None]
    return jnp.broadcast_to(blocks, (*numbers, *blocks.shape[len(numbers) :]))


class Blocks(NamedTuple):
    """The arrays in blocks, and the arrays that a block's scores and dropout depend on.

    `queries` is `(i, ..., q, d)`, `keys` and `values` are `(j, ..., k, d)`, `bias` is
    `(i, j, ..., q, k)` or None. `rows` `(i, q)` and `columns` `(j, k)` are the indices of queries
    and keys. Query block `i` attends to the first `counts[i]` of the key blocks `order[i]`.

    Inside a `jax.shard_map` all of these vary over the same axes. The arrays that a score closes
    over may vary over fewer.
    """

    queries: Array
    keys: Array
    values: Array
    bias: Array | None
    of_scores: list[Array]
    of_dropout: list[Array]
    rows: Int[Array, "i q"]
    columns: Int[Array, "j k"]
    order: Int[Array, "i j"]
    counts: Int[Array, " i"]


class BlockFunctions(NamedTuple):
    """The functions of a block, which close over no array.

    Attributes:
        scores: from `of_scores`, a block's queries, keys, values and bias, and its row and column
            of indices, to the scores, `-inf` where nothing may be attended, and the values.
        is_kept: from `of_dropout`, a row and a column to which weights dropout keeps; None without
            it.
        scale: of the weights that are kept.
        dtype: of scores and sums.
        shape: of a block's scores, `(..., q, k)`.
    """

    scores: Callable[..., tuple[Array, Array]]
    is_kept: Callable[..., Array] | None
    scale: float
    dtype: jnp.dtype
    shape: tuple[int, ...]


def in_blocks(
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    how: tuple[Callable, int, int],
    part: Part,
) -> tuple[BlockFunctions, Blocks]:
    """The functions of a block, with their arrays made arguments, and the arrays in blocks."""
    _, query_size, key_size = how
    queries, keys, values = split(query, query_size), split(key, key_size), split(value, key_size)
    rows, columns = part.in_blocks(query_size, key_size, pairs.shape[-1])
    bias = bias_blocks(part, query_size, key_size)
    dtype = wide(query.dtype, key.dtype, value.dtype)
    scores, is_kept = _of_block(pairs, how, dtype, part.is_filled or len(part.keys) % key_size > 0)
    order, counts = in_order(visible_blocks(pairs, rows, columns))
    blocks = Blocks(queries, keys, values, bias, [], [], rows, columns, order, counts)
    closed, of_scores = without_closure(scores, *_first(blocks))
    alike = varying(blocks, (blocks, of_scores, pairs.dropout_rng))
    if any(old is not new for old, new in zip(jax.tree.leaves(blocks), jax.tree.leaves(alike))):
        blocks = alike  # they did not vary alike, inside a `jax.shard_map`
        closed, of_scores = without_closure(scores, *_first(blocks))
    of_dropout = []
    if pairs.dropout_rate:
        is_kept, of_dropout = without_closure(is_kept, *_first(blocks)[-2:])
    shape = (*pairs.shape[:-2], query_size, key_size)
    functions = BlockFunctions(
        closed, is_kept if pairs.dropout_rate else None, 1 / (1 - pairs.dropout_rate), dtype, shape
    )
    return functions, blocks._replace(of_scores=of_scores, of_dropout=of_dropout)


def _first(blocks: Blocks) -> tuple:
    """The arguments of `scores` for the first block of queries and the first of keys."""
    bias = None if blocks.bias is None else blocks.bias[0, 0]
    arrays = blocks.queries[0], blocks.keys[0], blocks.values[0]
    return *arrays, bias, blocks.rows[0], blocks.columns[0]


def in_order(visible: Bool[Array, "..."]) -> tuple[Array, Array]:
    """The order of blocks of keys `(..., j)` with the visible ones first, and their number."""
    return jnp.argsort(~visible, axis=-1, stable=True), visible.sum(axis=-1)


def _of_block(
    pairs: Pairs, how: tuple[Callable, int, int], dtype: jnp.dtype, is_filled: bool
) -> tuple[Callable, Callable]:
    """The functions `scores` and `is_kept` of a block, which still close over arrays."""
    score, query_size, key_size = how
    last_key = pairs.shape[-1] - 1
    shape = (*pairs.shape[:-2], query_size, key_size)

    def scores(
        query: Array, key: Array, value: Array, bias: Array | None, row: Array, column: Array
    ) -> tuple[Array, Array]:
        block = Part(row, column, bias, is_filled).block(pairs)
        mask = block.mask
        if mask is not None and pairs.may_hide_single_pairs:
            query, has_query = hide(query, mask.any(axis=-1)), mask.any(axis=-2)
            key, value = hide(key, has_query), hide(value, has_query)
        scores = score(query, key)
        check_result("a score", scores, shape, query, key)
        scores = varying(scores, query)
        scores = (scores if block.bias is None else add(scores, block.bias)).astype(dtype)
        if is_filled:
            real = with_rank(column <= last_key, scores.ndim)
            mask = real if mask is None else mask & real
        return scores if mask is None else jnp.where(mask, scores, -jnp.inf), value

    def is_kept(row: Array, column: Array) -> Array:
        block = Part(row, column, None, is_filled).block(pairs)
        return pairs.drop(jnp.ones(shape, dtype), block) > 0

    return scores, is_kept
