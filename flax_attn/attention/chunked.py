"""Attention over blocks of queries and keys: the context and the gradients of `attend` without the matrix of weights.

For softmax the keys stream by. With `m` the largest energy seen so far,

    s = sum_k exp(e_k - m),   c = sum_k exp(e_k - m) v_k,   context = c / s

and both sums are scaled by `exp(m_old - m_new)` when a block brings a larger energy. The result does not depend on `m`,
so it is held fixed in the gradient. A block's energies are computed again on the way back (`jax.checkpoint`), so no more
than one block of them exists at any time, whatever the score function.

Source: Rabe & Staats 2021 (arXiv:2112.05682), section 3; Milakov & Gimelshein 2018 (arXiv:1805.02867) for the sums.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.checks import as_term, term_at
from flax_attn.attention.dropout import drop
from flax_attn.attention.energies import hide_padding, masked_scores, normalized, weighted_sum
from flax_attn.attention.masks import grid
from flax_attn.attention.normalizers import in_blocks, masked_softmax, needs_all_queries

Function = Callable[..., Array]
Dropout = tuple[float, Array | None]
Block = tuple[Array, Array, Array | None]  # number of a block of queries, the queries, and the bias on them


def attend(
    query: Array,
    key: Array,
    value: Array,
    score: Function,
    normalizer: Function,
    mask: Array | Function | None,
    bias: Array | Function | None,
    dropout: Dropout,
    chunk_size: int,
    shape: tuple[int, ...],
) -> Array:
    """The context of `core.attend`, whose arguments these are, checked; `shape` is that of the weights."""
    terms = Terms(mask, bias, dropout, shape)
    if needs_all_queries(normalizer):
        context = _over_scores(query, key, value, score, normalizer, terms, chunk_size)
    elif normalizer is masked_softmax:
        context = _over_queries_and_keys(query, key, value, score, terms, chunk_size)
    else:
        context = _over_queries(query, key, value, score, normalizer, terms, chunk_size)
    return context.astype(query.dtype)


class Terms(NamedTuple):
    """What applies to a weight by its place: mask, bias and dropout, for the weights of the given shape."""

    mask: Array | Function | None
    bias: Array | Function | None
    dropout: Dropout
    shape: tuple[int, ...]

    def mask_at(self, queries: Array, keys: Array) -> Array | None:
        """The mask at the positions `(q, 1)` and `(1, k)`."""
        return None if self.mask is None else term_at("mask", self.mask, self.shape, queries, keys)

    def bias_at(self, queries: Array, keys: Array, block: Array | None) -> Array | None:
        """The bias at the positions: what its function returns, or the block of its array."""
        return term_at("bias", self.bias, self.shape, queries, keys) if callable(self.bias) else block

    def bias_blocks(self, *sizes: int) -> Array | None:
        """The bias, where it is an array, cut along the queries, or along queries and keys, with the blocks in front.

        It is cut beforehand, for a block's gradient is then a block, not an array of zeros around one.
        """
        if self.bias is None or callable(self.bias):
            return None
        blocks, numbers = self.bias, [-(-full // size) for full, size in zip(self.shape[-2:], sizes)]
        for axis, size in reversed(list(zip((-2, -1), sizes))):
            blocks = _split(blocks, size, axis) if blocks.shape[axis] > 1 else blocks[None]
        return jnp.broadcast_to(blocks, (*numbers, *blocks.shape[len(numbers) :]))

    def drop(self, weights: Array, queries: Array, keys: Array) -> Array:
        return drop(weights, *self.dropout, queries, keys)


def _over_queries_and_keys(query: Array, key: Array, value: Array, score: Function, terms: Terms, chunk_size: int) -> Array:
    num_queries, num_keys = terms.shape[-2:]
    size, key_size = min(chunk_size, num_queries), min(chunk_size, num_keys)
    queries, keys, values = _split(query, size), _split(key, key_size), _split(value, key_size)

    def row(args: Block) -> Array:
        i, query, bias_row = args
        query_positions = _places(i, size, num_queries)[:, None]

        def step(carry: tuple[Array, Array, Array], args: tuple[Array, Array, Array, Array | None]) -> tuple[tuple, None]:
            largest, total, context = carry
            j, key, value, bias = args
            key_positions = _places(j, key_size, num_keys)[None, :]
            mask, bias = terms.mask_at(query_positions, key_positions), terms.bias_at(query_positions, key_positions, bias)
            scores, value, mask = masked_scores(query, key, value, score, mask, bias)
            if num_keys % key_size:
                real = as_term("mask", j * key_size + jnp.arange(key_size)[None, :] < num_keys, scores.shape)
                mask = real if mask is None else mask & real
            scores = scores.astype(total.dtype) if mask is None else jnp.where(mask, scores.astype(total.dtype), -jnp.inf)
            new = jax.lax.stop_gradient(jnp.maximum(largest, scores.max(axis=-1, keepdims=True)))
            base = jnp.where(new == -jnp.inf, 0, new)  # so far nothing to attend
            shares, kept = jnp.exp(scores - base), jnp.exp(largest - base)
            total = kept * total + shares.sum(axis=-1, keepdims=True)
            context = kept * context + weighted_sum(terms.drop(shares, query_positions, key_positions), value)
            return (new, total, context), None

        wide, leading = jnp.result_type(query, key, value, jnp.float32), terms.shape[:-2]
        none = jnp.full((*leading, size, 1), -jnp.inf, wide), jnp.zeros((*leading, size, 1), wide)
        start = (*none, jnp.zeros((*leading, size, value.shape[-1]), wide))
        (_, total, context), _ = jax.lax.scan(jax.checkpoint(step), start, (jnp.arange(len(keys)), keys, values, bias_row))
        return context / jnp.where(total > 0, total, 1)

    return _merge(_map(row, queries, terms.bias_blocks(size, key_size)), num_queries)


def _over_queries(query: Array, key: Array, value: Array, score: Function, normalizer: Function, terms: Terms, chunk_size: int) -> Array:
    def row(args: Block) -> Array:
        queries, keys, scores, visible, mask = _scores_of_row(args, key, value, score, terms)
        with in_blocks():
            weights = normalized(normalizer, scores, mask)
        return weighted_sum(terms.drop(weights, queries, keys), visible)

    size = min(chunk_size, terms.shape[-2])
    return _merge(_map(row, _split(query, size), terms.bias_blocks(size)), terms.shape[-2])


def _over_scores(query: Array, key: Array, value: Array, score: Function, normalizer: Function, terms: Terms, chunk_size: int) -> Array:
    """Only the scores are computed in blocks, so that what a score function needs between does not exist at once."""

    def row(args: Block) -> tuple[Array, Array]:
        _, _, scores, _, mask = _scores_of_row(args, key, value, score, terms)
        return scores, jnp.broadcast_to(True if mask is None else mask, scores.shape)

    size = min(chunk_size, terms.shape[-2])
    rows = _map(row, _split(query, size), terms.bias_blocks(size))
    scores, mask = (_merge(blocks, terms.shape[-2]) for blocks in rows)
    _, _, value = hide_padding(query, key, value, mask)
    return weighted_sum(terms.drop(normalized(normalizer, scores, mask), *grid(*terms.shape[-2:])), value)


def _scores_of_row(args: Block, key: Array, value: Array, score: Function, terms: Terms) -> tuple[Array, Array, Array, Array, Array | None]:
    """Positions of a block of queries and of all keys, and what `masked_scores` makes of them."""
    i, query, bias = args
    size = query.shape[-2]
    queries, keys = _places(i, size, terms.shape[-2])[:, None], jnp.arange(terms.shape[-1])[None, :]
    mask, bias = terms.mask_at(queries, keys), terms.bias_at(queries, keys, bias)
    return queries, keys, *masked_scores(query, key, value, score, mask, bias)


def _places(block: Array, size: int, length: int) -> Array:
    """The places of a block's entries; what fills up the last block stands where the last entry does."""
    return jnp.minimum(block * size + jnp.arange(size), length - 1)


def _map(row: Callable, queries: Array, bias: Array | None):
    """`row((i, query block, bias block))` for every block of queries, in turn; on the way back each is computed again."""
    return jax.lax.map(jax.checkpoint(row), (jnp.arange(len(queries)), queries, bias))


def _split(array: Array, size: int, axis: int = -2) -> Array:
    """Blocks of the given size along an axis, in front; the last is filled up with its last entry.

    Not with zeros, where the gradient of a score need not be finite.
    """
    number = -(-array.shape[axis] // size)
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, number * size - array.shape[axis])
    axis %= array.ndim
    blocks = jnp.pad(array, padding, mode="edge").reshape(*array.shape[:axis], number, size, *array.shape[axis + 1 :])
    return jnp.moveaxis(blocks, axis, 0)


def _merge(blocks: Array, length: int) -> Array:
    """Blocks `(n, ..., size, d)` as one array `(..., length, d)`."""
    array = jnp.moveaxis(blocks, 0, -3)
    return array.reshape(*array.shape[:-3], -1, array.shape[-1])[..., :length, :]
