"""Which queries, keys, and blocks of them can meet: the ones that some pair leaves visible."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from flax_attn.attention import masks
from flax_attn.attention.arrays import aligned, hide
from flax_attn.attention.pairs import Pairs

Real = Bool[Array | np.ndarray, "..."]


def reachable(pairs: Pairs, chunk_size: int | None = None) -> tuple[Real, Real]:
    """Which queries `(..., q)` have a key to attend, and which keys `(..., k)` have a query.

    The axes before are those of the weights, or 1. A mask, a bias and segments are looked at
    pair by pair, with a `chunk_size` for that many queries at once.
    """
    if not pairs.may_hide_single_pairs:
        return _reachable_in_window(pairs)
    num_queries, num_keys = pairs.shape[-2:]
    size = num_queries if chunk_size is None else min(chunk_size, max(num_queries, 1))

    def rows(start: Array) -> tuple[Array, Array]:
        queries = jnp.minimum(start + jnp.arange(size), num_queries - 1)[:, None]
        mask = pairs.block(queries, jnp.arange(num_keys)[None, :]).mask
        mask = jnp.ones((1,) * len(pairs.shape), bool) if mask is None else mask
        mask = jnp.broadcast_to(mask, (*mask.shape[:-2], size, num_keys))
        return mask.any(axis=-1), mask.any(axis=-2)

    if size == num_queries:
        return rows(jnp.asarray(0))
    has_key, has_query = jax.lax.map(rows, jnp.arange(0, num_queries, size))
    has_key = jnp.moveaxis(has_key, 0, -2).reshape(*has_key.shape[1:-1], -1)
    return has_key[..., :num_queries], has_query.any(axis=0)


def hide_unreachable(
    query: Array, key: Array, value: Array, pairs: Pairs
) -> tuple[Array, Array, Array]:
    """Zeros where lengths, causality or a window leave nothing to attend, or nothing attends.

    Where single pairs may be hidden, each block is looked at in its turn.
    """
    if pairs.may_hide_single_pairs:
        return query, key, value
    has_key, has_query = reachable(pairs)
    return hide(query, has_key), hide(key, has_query), hide(value, has_query)


def reachable_in_any_head(pairs: Pairs, chunk_size: int | None = None) -> tuple[Real, Real]:
    """`reachable`, without head axes."""
    axes = tuple(range(-1 - len(pairs.heads), -1))
    has_key, has_query = reachable(pairs, chunk_size)
    return has_key.any(axis=axes), has_query.any(axis=axes)  # pyright: ignore


def _reachable_in_window(pairs: Pairs) -> tuple[Real, Real]:
    """`reachable` by lengths, causality and window alone: the ends of each window decide."""
    num_queries, num_keys = pairs.shape[-2:]
    known = isinstance(pairs.query_offset, int) and not pairs.is_symbolic
    known = known and pairs.query_lengths is None and pairs.key_lengths is None
    xp: Any = np if known else jnp  # known while tracing
    last: Any = lambda term: term if isinstance(term, int) or not term.ndim else term[..., 0]
    offset = last(pairs.query_offset)
    real_queries = num_queries if pairs.query_lengths is None else last(pairs.query_lengths)
    real_keys = num_keys if pairs.key_lengths is None else last(pairs.key_lengths)
    rank = (1,) * (len(pairs.shape) - 2)
    queries, keys = (
        xp.arange(num_queries).reshape(*rank, -1),
        xp.arange(num_keys).reshape(*rank, -1),
    )
    positions = queries + offset
    first_key = 0 if pairs.left is None else xp.maximum(positions - pairs.left, 0)
    last_key = xp.minimum(real_keys, num_keys) - 1
    last_key = last_key if pairs.right is None else xp.minimum(positions + pairs.right, last_key)
    first_query, last_query = offset, offset + xp.minimum(real_queries, num_queries) - 1
    if pairs.right is not None:
        first_query = xp.maximum(keys - pairs.right, first_query)
    if pairs.left is not None:
        last_query = xp.minimum(keys + pairs.left, last_query)
    has_key = xp.logical_and(first_key <= last_key, queries < real_queries)
    has_query = xp.logical_and(first_query <= last_query, keys < real_keys)
    return has_key, has_query


def visible_blocks(pairs: Pairs, rows: Array, columns: Array) -> Bool[Array, "i j"]:
    """Which blocks of keys the queries of a block may attend to, in any batch row and head.

    A block counts as visible unless it is known to be hidden. A bias is not looked at. Of segments,
    only the least and the largest id of a block are compared.

    Args:
        pairs: what is visible.
        rows, columns: the indices of queries `(i, q)` and keys `(j, k)` in blocks. A key at an
            index beyond the last one is none.
    """
    num_keys = pairs.shape[-1]
    first_query, last_query = rows.min(axis=-1)[:, None], rows.max(axis=-1)[:, None]
    first_key = columns.min(axis=-1)[None, :]
    last_key = jnp.minimum(columns.max(axis=-1), num_keys - 1)[None, :]
    visible = [jnp.broadcast_to(first_key < num_keys, (len(rows), len(columns)))]
    if pairs.left is not None:  # the nearest pair decides
        before = jnp.subtract(*aligned(pairs.positions(first_query), last_key))
        visible.append(before <= pairs.left)
    if pairs.right is not None:
        after = jnp.subtract(*aligned(first_key, pairs.positions(last_query)))
        visible.append(after <= pairs.right)
    if pairs.query_lengths is not None:
        visible.append(jnp.less(*aligned(first_query, pairs.query_lengths)))
    if pairs.key_lengths is not None:
        visible.append(jnp.less(*aligned(first_key, pairs.key_lengths)))
    columns = jnp.minimum(columns, num_keys - 1)
    if pairs.query_segments is not None and pairs.key_segments is not None:
        least, most = _ends(jnp.swapaxes(pairs.query_segments, -1, -2), rows)
        least_key, most_key = _ends(pairs.key_segments, columns)
        visible.append(least[..., 0, :, None] <= most_key)
        visible.append(least_key <= most[..., 0, :, None])
    blocks = functools.reduce(masks.both, visible)
    blocks = blocks.any(axis=tuple(range(blocks.ndim - 2)))
    if pairs.mask is None:
        return blocks
    masked = dataclasses.replace(
        Pairs(pairs.shape, pairs.heads, pairs.mask), query_offset=pairs.query_offset
    )

    def of_row(row: Array) -> Array:
        mask = masked.block(row[:, None], columns.reshape(1, -1)).mask
        assert mask is not None
        some = jnp.broadcast_to(mask, (*mask.shape[:-2], len(row), columns.size))
        some = some.any(axis=tuple(range(some.ndim - 1)))
        return some.reshape(columns.shape).any(axis=-1)

    return blocks & jax.lax.map(of_row, rows)


def _ends(ids: Array, blocks: Array) -> tuple[Array, Array]:
    """The least and the largest id in each block of indices, for ids `(..., t)`."""
    in_blocks = jnp.take(ids, blocks, axis=-1, mode="clip")
    return in_blocks.min(axis=-1), in_blocks.max(axis=-1)
