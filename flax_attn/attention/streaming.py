"""Softmax attention over blocks of queries and keys, with a derivative of its own.

The keys stream by. With `m` the largest score so far,

    s = sum_k exp(e_k - m),   c = sum_k exp(e_k - m) v_k,   context = c / s

and both sums are scaled by `exp(m_old - m_new)` when a block has a larger score. For the gradient,
`l = m + log s` is stored for every query. No more than one block of scores exists at any time. A
block whose queries may attend to none of its keys is not computed.

Source: Rabe & Staats 2021 (arXiv:2112.05682), section 3; Milakov & Gimelshein 2018
(arXiv:1805.02867) for the sums.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.arrays import merge, product, varying
from flax_attn.attention.blocks import BlockFunctions, Blocks, in_blocks
from flax_attn.attention.gradients import add_gradients, along, as_blocks, no_gradients
from flax_attn.attention.how import How
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.parts import Part, whole
from flax_attn.attention.reach import hide_unreachable
from flax_attn.types import Tree


class RunningSums(NamedTuple):
    """The largest score `m` so far, and the sums `s` and `c`, for each block of queries."""

    largest: Array
    total: Array
    context: Array


def attend(
    query: Array, key: Array, value: Array, pairs: Pairs, how: How, part: Part | None = None
) -> tuple[Array, Array]:
    """Softmax attention in blocks of `how.chunk_size`.

    Without a `part`, the arrays are the whole. Those of a part are zeros where nothing reaches.

    Returns:
        The context `(..., q, e)`, and `log sum_k exp(e_qk)` `(..., q)`, which is `inf` in a row
        with nothing to attend.
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    most = max(num_queries, num_keys) if how.chunk_size is None else how.chunk_size
    sizes = min(most, num_queries), min(most, num_keys)
    if part is None:
        part = whole(pairs)
        query, key, value = hide_unreachable(query, key, value, pairs)
    functions, blocks = in_blocks(query, key, value, pairs, (how.score, *sizes), part)
    context, log = _stream(functions, blocks)  # pyright: ignore
    return merge(context, num_queries), merge(log, num_queries)[..., 0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stream(of: BlockFunctions, blocks: Blocks) -> tuple[Array, Array]:
    """The contexts `(i, ..., q, e)` and `l`, the logarithms `(i, ..., q, 1)` of the sums."""
    return add_keys(of, blocks, None, finished)


def add_keys(of: BlockFunctions, blocks: Blocks, sums: RunningSums | None, end: Callable) -> Tree:
    """Adds all keys of the blocks to the sums of every block of queries.

    Args:
        of, blocks: the functions and arrays of the blocks.
        sums: of the keys before these, or None.
        end: of the sums of one block of queries; `finished` after the last keys.
    """

    def of_queries(args: tuple) -> Tree:
        query, bias_row, row, order, count, start = args

        def step(n: Array, sums: RunningSums) -> RunningSums:
            j, (largest, total, context) = order[n], sums
            bias = None if bias_row is None else bias_row[j]
            key, value, column = blocks.keys[j], blocks.values[j], blocks.columns[j]
            scores, value = of.scores(blocks.of_scores, query, key, value, bias, row, column)
            new = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
            base = jnp.where(new == -jnp.inf, 0, new)  # nothing to attend so far
            shares, rescale = jnp.exp(scores - base), jnp.exp(largest - base)
            total = rescale * total + shares.sum(axis=-1, keepdims=True)
            if of.is_kept is not None:
                shares = jnp.where(of.is_kept(blocks.of_dropout, row, column), shares, 0)
            more = product("...qk,...ke->...qe", shares, value, of.dtype)
            return RunningSums(new, total, rescale * context + more)

        if start is None:
            start = no_sums(of, of.shape[:-1], blocks.values.shape[-1])
        start = varying(start, query)
        return end(of, jax.lax.fori_loop(0, count, step, start))

    limits = blocks.rows, blocks.order, blocks.counts
    return jax.lax.map(of_queries, (blocks.queries, blocks.bias, *limits, sums))


def no_sums(of: BlockFunctions, shape: tuple[int, ...], width: int) -> RunningSums:
    """The sums of no keys, for queries of a shape `(..., q)` and values of a width."""
    largest, total = (jnp.full((*shape, 1), start, of.dtype) for start in (-jnp.inf, 0))
    return RunningSums(largest, total, jnp.zeros((*shape, width), of.dtype))


def finished(of: BlockFunctions, sums: RunningSums) -> tuple[Array, Array]:
    """The context and `l` of a block of queries."""
    largest, total, context = sums
    safe = jnp.where(total > 0, total, 1)
    # exp(e - l) is then 0 in a row with nothing to attend
    log = jnp.where(total > 0, largest + jnp.log(safe), jnp.inf)
    log = jnp.where(jnp.isnan(total), jnp.nan, log)
    return of.scale * context / jnp.where(jnp.isnan(total), jnp.nan, safe), log


def _forward(of: BlockFunctions, blocks: Blocks) -> tuple[tuple[Array, Array], tuple]:
    context, log = _stream(of, blocks)  # pyright: ignore
    return (context, log), (blocks, context, log)


def _backward(of: BlockFunctions, results: tuple, gradients: tuple[Array, Array]) -> tuple[Tree]:
    return (_gradients(of, results, gradients),)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gradients(of: BlockFunctions, results: tuple, gradients: tuple[Array, Array]) -> Tree:
    """The gradients of the blocks, from those of the contexts and of `l`."""
    blocks, contexts, logs = results
    rows = logs, gradients[0], along(contexts, gradients)
    sums = no_gradients(blocks, blocks.queries.dtype)
    return as_blocks(blocks, *add_gradients(of, blocks, rows, sums))


def refuse(*args: Tree) -> Tree:
    """Raises the TypeError of a second derivative."""
    raise TypeError(
        "expected a first derivative of attention in blocks, got a second one; "
        "pass need_weights=True and chunk_size=None, and ring=False across devices"
    )


_stream.defvjp(_forward, _backward)
_gradients.defvjp(refuse, refuse)
