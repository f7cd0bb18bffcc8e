"""Blocks of queries and keys, and attention over blocks of queries.

The latter is for normalisers that need a whole row of keys at a time.

A block is computed again for its gradient (`jax.checkpoint`), so no more than one block of scores
exists at any time.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from flax_attn.attention import masks
from flax_attn.attention.arrays import aligned
from flax_attn.attention.normalizers import in_blocks
from flax_attn.attention.pairs import Pairs


def over_queries(
    dense: Callable[..., tuple[Array, Array]],
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    how,
) -> Array:
    """The context `(..., q, e)` of `dense`, one block of queries after another."""
    num_queries, num_keys = pairs.shape[-2:]
    size = min(how.chunk_size, num_queries)
    keys = jnp.arange(num_keys)[None, :]

    def row(args: tuple[Array, Array, Array | None]) -> Array:
        i, query, bias = args
        block = pairs.block(indices(i, size, num_queries)[:, None], keys, bias)
        with in_blocks():
            return dense(query, key, value, pairs, how, block)[0]

    arguments = jnp.arange(-(-num_queries // size)), split(query, size), bias_blocks(pairs, size)
    return merge(jax.lax.map(jax.checkpoint(row), arguments), num_queries)


def score_over_queries(score: Callable[..., Array], size: int) -> Callable[..., Array]:
    """The same score, one block of queries after another.

    The values between, such as the hidden layer of an additive score, then never exist at once.
    """

    def in_turn(query: Array, key: Array) -> Array:
        length = min(size, query.shape[-2])
        rows = jax.lax.map(jax.checkpoint(lambda query: score(query, key)), split(query, length))
        return merge(rows, query.shape[-2])

    return in_turn


def bias_blocks(pairs: Pairs, *sizes: int) -> Array | None:
    """The bias, where it is an array, cut along queries, or queries and keys; blocks in front.

    It is cut beforehand: the gradient of a block is then a block, not zeros around one.
    """
    if pairs.bias is None or callable(pairs.bias):
        return None
    numbers = [-(-full // size) for full, size in zip(pairs.shape[-2:], sizes)]
    blocks = pairs.bias
    for axis, size in reversed(list(zip((-2, -1), sizes))):
        blocks = split(blocks, size, axis) if blocks.shape[axis] > 1 else blocks[None]
    return jnp.broadcast_to(blocks, (*numbers, *blocks.shape[len(numbers) :]))


def indices(block: Array, size: int, length: int) -> Array:
    """The indices of a block's entries. What fills up the last block repeats the last entry."""
    return jnp.minimum(block * size + jnp.arange(size), length - 1)


def split(array: Array, size: int, axis: int = -2) -> Array:
    """Blocks of the given size along an axis, in front; the last repeats its last entry.

    Zeros would not do: the gradient of a score need not be finite there.
    """
    number = -(-array.shape[axis] // size)
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, number * size - array.shape[axis])
    axis %= array.ndim
    padded = jnp.pad(array, padding, mode="edge")
    blocks = padded.reshape(*array.shape[:axis], number, size, *array.shape[axis + 1 :])
    return jnp.moveaxis(blocks, axis, 0)


def merge(blocks: Array, length: int) -> Array:
    """Blocks `(n, ..., size, d)` as one array `(..., length, d)`."""
    array = jnp.moveaxis(blocks, 0, -3)
    number, size, width = array.shape[-3:]
    return array.reshape(*array.shape[:-3], number * size, width)[..., :length, :]


def visible_blocks(pairs: Pairs, query_size: int, key_size: int) -> Bool[Array, "i j"]:
    """Which blocks of keys the queries of a block may attend to, in any batch row and head.

    A block of which it is not known counts as visible: a bias is not looked at, and of segments
    the least and the largest id in a block decide.
    """
    num_queries, num_keys = pairs.shape[-2:]
    rows, columns = -(-num_queries // query_size), -(-num_keys // key_size)
    first_query = jnp.arange(rows)[:, None] * query_size
    first_key = jnp.arange(columns)[None, :] * key_size
    last_query = jnp.minimum(first_query + query_size, num_queries) - 1
    last_key = jnp.minimum(first_key + key_size, num_keys) - 1
    visible = [jnp.ones((rows, columns), bool)]
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
    if pairs.query_segments is not None and pairs.key_segments is not None:
        least, most = _ends(jnp.swapaxes(pairs.query_segments, -1, -2), query_size)
        least_key, most_key = _ends(pairs.key_segments, key_size)
        visible.append(least[..., None] <= most_key[..., None, :])
        visible.append(least_key[..., None, :] <= most[..., None])
    blocks = functools.reduce(masks.both, visible)
    blocks = blocks.any(axis=tuple(range(blocks.ndim - 2)))
    if pairs.mask is None:
        return blocks
    masked = dataclasses.replace(
        Pairs(pairs.shape, pairs.heads, pairs.mask), query_offset=pairs.query_offset
    )

    def row(i: Array) -> Array:
        queries = indices(i, query_size, num_queries)[:, None]
        keys = jnp.arange(columns * key_size)[None, :]
        mask = masked.block(queries, jnp.minimum(keys, num_keys - 1)).mask
        assert mask is not None
        some = jnp.broadcast_to(mask, (*mask.shape[:-2], query_size, columns * key_size))
        some = some.any(axis=tuple(range(some.ndim - 1)))
        return some.reshape(columns, key_size).any(axis=-1)

    return blocks & jax.lax.map(row, jnp.arange(rows))


def _ends(ids: Array, size: int) -> tuple[Array, Array]:
    """The least and the largest id in each block of `(..., t)`."""
    number = -(-ids.shape[-1] // size)
    padding = [(0, 0)] * (ids.ndim - 1) + [(0, number * size - ids.shape[-1])]
    blocks = jnp.pad(ids, padding, mode="edge").reshape(*ids.shape[:-1], number, size)
    return blocks.min(axis=-1), blocks.max(axis=-1)
