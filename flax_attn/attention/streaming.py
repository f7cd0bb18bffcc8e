"""Softmax attention over blocks of queries and keys, with a derivative of its own.

The keys stream by. With `m` the largest score so far,

    s = sum_k exp(e_k - m),   c = sum_k exp(e_k - m) v_k,   context = c / s

and both sums are scaled by `exp(m_old - m_new)` when a block has a larger score. For the gradient,
`l = m + log s` is stored for every query. A block's weights are then `w = exp(e - l)`. With the
gradient `g` of the context,

    dv_k = sum_q w_qk g_q,   de_qk = w_qk (g_q · v_k - g_q · context_q)

The gradients of queries, keys, bias and the arrays that the score closes over come from `jax.vjp`
of the score inside a block. No more than one block of scores exists at any time. A block whose
queries may attend to none of its keys is not computed.

Source: Rabe & Staats 2021 (arXiv:2112.05682), section 3; Milakov & Gimelshein 2018
(arXiv:1805.02867) for the sums; Dao et al. 2022 (arXiv:2205.14135), appendix B.2, for the gradient.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.arrays import hide, merge, wide
from flax_attn.attention.blocks import BlockFunctions, Blocks, in_blocks
from flax_attn.attention.how import How
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.parts import whole
from flax_attn.attention.reach import reachable
from flax_attn.types import Tree


def attend(query: Array, key: Array, value: Array, pairs: Pairs, how: How) -> tuple[Array, Array]:
    """Softmax attention in blocks of `how.chunk_size`.

    Returns:
        The context `(..., q, e)`, and `log sum_k exp(e_qk)` `(..., q)`, which is `inf` in a row
        with nothing to attend.
    """
    num_queries, num_keys = pairs.shape[-2:]
    most = max(pairs.shape[-2:]) if how.chunk_size is None else how.chunk_size
    sizes = min(most, num_queries), min(most, num_keys)
    if not pairs.may_hide_single_pairs:
        has_key, has_query = reachable(pairs)
        query, key, value = hide(query, has_key), hide(key, has_query), hide(value, has_query)
    functions, blocks = in_blocks(query, key, value, pairs, (how.score, *sizes), whole(pairs))
    context, log = _stream(functions, blocks)  # pyright: ignore
    return merge(context, num_queries), merge(log, num_queries)[..., 0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stream(of: BlockFunctions, blocks: Blocks) -> tuple[Array, Array]:
    """The contexts `(i, ..., q, e)` and `l`, the logarithms `(i, ..., q, 1)` of the sums."""
    rows = (*of.shape[:-1], 1)

    def of_queries(args: tuple) -> tuple[Array, Array]:
        query, bias_row, row, order, count = args

        def step(n: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            j, (largest, total, context) = order[n], carry
            bias = None if bias_row is None else bias_row[j]
            key, value = blocks.keys[j], blocks.values[j]
            column = blocks.columns[j]
            scores, value = of.scores(blocks.of_scores, query, key, value, bias, row, column)
            new = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
            base = jnp.where(new == -jnp.inf, 0, new)  # nothing to attend so far
            shares, rescale = jnp.exp(scores - base), jnp.exp(largest - base)
            total = rescale * total + shares.sum(axis=-1, keepdims=True)
            if of.is_kept is not None:
                shares = jnp.where(of.is_kept(blocks.of_dropout, row, column), shares, 0)
            more = _product("...qk,...ke->...qe", shares, value, of.dtype)
            return new, total, rescale * context + more

        start = jnp.full(rows, -jnp.inf, of.dtype), jnp.zeros(rows, of.dtype)
        start = *start, jnp.zeros((*of.shape[:-1], blocks.values.shape[-1]), of.dtype)
        largest, total, context = jax.lax.fori_loop(0, count, step, start)
        safe = jnp.where(total > 0, total, 1)
        # exp(e - l) is then 0 in a row with nothing to attend
        log = jnp.where(total > 0, largest + jnp.log(safe), jnp.inf)
        log = jnp.where(jnp.isnan(total), jnp.nan, log)
        return of.scale * context / jnp.where(jnp.isnan(total), jnp.nan, safe), log

    limits = blocks.rows, blocks.order, blocks.counts
    return jax.lax.map(of_queries, (blocks.queries, blocks.bias, *limits))


def _forward(of: BlockFunctions, blocks: Blocks) -> tuple[tuple[Array, Array], tuple]:
    context, log = _stream(of, blocks)  # pyright: ignore
    return (context, log), (blocks, context, log)


def _backward(of: BlockFunctions, results: tuple, gradients: tuple[Array, Array]) -> tuple[Tree]:
    return (_gradients(of, results, gradients),)


class Sums(NamedTuple):
    """Gradients that are added up over all blocks of queries, in float32 or better.

    Those of keys and values are transposed, `(j, ..., d, k)`: the products that make them are then
    twice as fast on a CPU.
    """

    keys: Array
    values: Array
    of_scores: list[Array]


class QueryRow(NamedTuple):
    """A block of queries, and the arrays of its rows; `row` `(q,)` are their indices.

    It attends to the blocks of keys `order[:count]`. `along` `(..., q, 1)` is `g_q · context_q`
    less the gradient of `l_q`; it is subtracted from the gradient of a weight.
    """

    query: Array
    bias: Array | None
    row: Array
    order: Array
    count: Array
    log: Array
    gradient: Array
    along: Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gradients(of: BlockFunctions, results: tuple, gradients: tuple[Array, Array]) -> Tree:
    """The gradients of the blocks, from those of the contexts and of `l`."""
    blocks, contexts, logs = results
    floats, with_floats = _floats(blocks.of_scores)
    zeros = lambda array: jnp.zeros(array.shape, wide(array.dtype))

    def of_queries(sums: Sums, row: QueryRow) -> tuple[Sums, tuple[Array, Array | None]]:
        step = functools.partial(_gradients_of_block, of, blocks, row)
        of_bias = None if row.bias is None else jnp.zeros_like(row.bias)
        start = zeros(row.query), of_bias, sums
        of_query, of_bias, sums = jax.lax.fori_loop(0, row.count, step, start)
        return sums, (of_query.astype(row.query.dtype), of_bias)

    gradient, of_log = gradients
    along = jnp.sum(gradient * contexts, axis=-1, keepdims=True) - of_log
    limits = blocks.bias, blocks.rows, blocks.order, blocks.counts
    rows = QueryRow(blocks.queries, *limits, logs, gradient, along)
    start = Sums(
        _transposed(zeros(blocks.keys)),
        _transposed(zeros(blocks.values)),
        [zeros(array) for array in floats],
    )
    sums, (of_query_blocks, of_bias) = jax.lax.scan(of_queries, start, rows)
    of_floats = [array.astype(like.dtype) for array, like in zip(sums.of_scores, floats)]
    gradients_of: Tree = Blocks  # None stands for no gradient
    return gradients_of(
        of_query_blocks,
        _transposed(sums.keys).astype(blocks.keys.dtype),
        _transposed(sums.values).astype(blocks.values.dtype),
        of_bias,
        with_floats(of_floats, [None] * len(blocks.of_scores)),
        [None] * len(blocks.of_dropout),
        *[None] * 4,
    )


def _gradients_of_block(
    of: BlockFunctions, blocks: Blocks, row: QueryRow, n: Array, carry: tuple
) -> tuple[Array, Array | None, Sums]:
    """The gradients of a row's queries and bias, and the sums, after one more block of keys."""
    j, (of_query, of_bias, sums) = row.order[n], carry
    floats, with_floats = _floats(blocks.of_scores)
    bias, column = None if row.bias is None else row.bias[j], blocks.columns[j]

    def scores_of(floats: list, query: Array, transposed_key: Array, bias: Array | None):
        arrays, key = with_floats(floats, blocks.of_scores), _transposed(transposed_key)
        return of.scores(arrays, query, key, blocks.values[j], bias, row.row, column)

    arguments = floats, row.query, _transposed(blocks.keys[j]), bias
    scores, pull, value = jax.vjp(scores_of, *arguments, has_aux=True)
    weights = jnp.where(scores == -jnp.inf, 0, jnp.exp(scores - row.log))
    change = _product("...qe,...ke->...qk", row.gradient, value, of.dtype)
    kept = weights
    if of.is_kept is not None:
        is_kept = of.is_kept(blocks.of_dropout, row.row, column)
        kept, change = jnp.where(is_kept, weights, 0), jnp.where(is_kept, change, 0)
    turned = _transposed(row.gradient)
    of_values = of.scale * _product("...eq,...qk->...ek", turned, kept, of.dtype)
    more = pull(weights * (of.scale * change - row.along))
    add_up = lambda total, part: total + part.astype(total.dtype)
    sums = Sums(
        sums.keys.at[j].add(more[2].astype(sums.keys.dtype)),
        sums.values.at[j].add(_sum_to(of_values, sums.values.shape[1:])),
        jax.tree.map(add_up, sums.of_scores, more[0]),
    )
    of_bias = None if of_bias is None else of_bias.at[j].set(more[3])
    return add_up(of_query, more[1]), of_bias, sums


def _refuse(*args: Tree) -> Tree:
    raise TypeError(
        "expected a first derivative of attention in blocks, got a second one; "
        "pass need_weights=True and chunk_size=None for second derivatives"
    )


_stream.defvjp(_forward, _backward)
_gradients.defvjp(_refuse, _refuse)


def _floats(arrays: list[Array]) -> tuple[list[Array], Callable[[list, list], list]]:
    """The arrays that have gradients, and a function that puts others where they were."""
    is_float = [jnp.issubdtype(array.dtype, jnp.inexact) for array in arrays]

    def with_floats(floats: list, arrays: list) -> list:
        rest = iter(floats)
        return [next(rest) if float_ else array for array, float_ in zip(arrays, is_float)]

    return [array for array, float_ in zip(arrays, is_float) if float_], with_floats


def _transposed(array: Array) -> Array:
    return jnp.swapaxes(array, -1, -2)


def _product(formula: str, a: Array, b: Array, dtype: jnp.dtype) -> Float[Array, "..."]:
    """A product with half precision multiplied as it is, and added up in float32 or better."""
    return jnp.einsum(formula, a.astype(b.dtype), b, preferred_element_type=dtype)


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """The sum over axes that are 1 in the shape."""
    axes = tuple(i for i, (have, want) in enumerate(zip(array.shape, shape)) if have != want)
    return array.sum(axis=axes, keepdims=True) if axes else array
