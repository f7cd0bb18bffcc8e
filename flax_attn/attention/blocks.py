"""Blocks of queries and keys, and attention over blocks of queries.

The latter is for normalisers that need a whole row of keys at a time.

A block is computed again for its gradient (`jax.checkpoint`), so no more than one block of scores
exists at any time.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

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
