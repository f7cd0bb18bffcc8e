"""The gradients of softmax attention, block by block.

With the gradient `g` of the context, and a block's weights `w = exp(e - l)`,

    dv_k = sum_q w_qk g_q,   de_qk = w_qk (g_q · v_k - g_q · context_q)

The gradients of queries, keys, bias and the arrays that the score closes over come from `jax.vjp`
of the score inside a block.

Source: Dao et al. 2022 (arXiv:2205.14135), appendix B.2.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from flax_attn.attention.arrays import most_over, product, varying, wide
from flax_attn.attention.blocks import BlockFunctions, Blocks
from flax_attn.types import Tree


class Sums(NamedTuple):
    """Gradients that are added up over blocks, in float32 or better.

    Those of keys and values are transposed, `(j, ..., d, k)`: the products that make them are then
    twice as fast on a CPU. Those of queries `(i, ..., q, d)` have any dtype.
    """

    queries: Array
    keys: Array
    values: Array
    of_scores: list[Array]


class QueryRow(NamedTuple):
    """The block `i` of queries, and the arrays of its rows; `row` `(q,)` are their indices.

    It attends to the blocks of keys `order[:count]`. `along` `(..., q, 1)` is `g_q · context_q`
    less the gradient of `l_q`; it is subtracted from the gradient of a weight.
    """

    i: Array
    query: Array
    bias: Array | None
    row: Array
    order: Array
    count: Array
    log: Array
    gradient: Array
    along: Array


def no_gradients(blocks: Blocks, dtype: DTypeLike) -> Sums:
    """Sums of no gradients, with those of queries in a dtype."""
    floats, _ = _floats(blocks.of_scores)
    keys, values = (_zeros(_transposed(array)) for array in (blocks.keys, blocks.values))
    queries = varying(jnp.zeros(blocks.queries.shape, dtype), blocks.queries)
    return Sums(queries, keys, values, [_zeros(array) for array in floats])


def along(contexts: Array, gradients: tuple[Array, Array]) -> Array:
    """What is subtracted from the gradient of a weight: `g_q · context_q` less that of `l_q`."""
    of_contexts, of_logs = gradients
    return jnp.sum(of_contexts * contexts, axis=-1, keepdims=True) - of_logs


def add_gradients(
    of: BlockFunctions, blocks: Blocks, rows: tuple[Array, Array, Array], sums: Sums
) -> tuple[Sums, Array | None]:
    """Adds the gradients by all keys of the blocks to the sums.

    Args:
        of, blocks: the functions and arrays of the blocks.
        rows: `l` of the queries over all keys, also others than these; the gradients of the
            contexts; and `along`.
        sums: by other keys and queries.

    Returns:
        The sums, and the gradients of the bias.
    """

    def of_queries(sums: Sums, row: QueryRow) -> tuple[Sums, Array | None]:
        step = functools.partial(_of_block, of, blocks, row)
        of_bias = None if row.bias is None else varying(jnp.zeros_like(row.bias), row.bias)
        start = _zeros(row.query), of_bias, sums
        of_query, of_bias, sums = jax.lax.fori_loop(0, row.count, step, start)
        queries = sums.queries.at[row.i].add(of_query.astype(sums.queries.dtype))
        return sums._replace(queries=queries), of_bias

    # the gradient of an array that devices share is added up over them in every step
    counts = most_over(blocks.counts, _floats(blocks.of_scores)[0])
    limits = blocks.bias, blocks.rows, blocks.order, counts
    numbers = jnp.arange(len(blocks.queries))
    return jax.lax.scan(of_queries, sums, QueryRow(numbers, blocks.queries, *limits, *rows))


def as_blocks(blocks: Blocks, sums: Sums, of_bias: Array | None) -> Blocks:
    """The gradients in the places of their arrays, of the same dtypes; None without a gradient."""
    floats, with_floats = _floats(blocks.of_scores)
    of_floats = [array.astype(like.dtype) for array, like in zip(sums.of_scores, floats)]
    nothing: Tree = dict.fromkeys(("rows", "columns", "order", "counts"))
    return blocks._replace(
        queries=sums.queries.astype(blocks.queries.dtype),
        keys=_transposed(sums.keys).astype(blocks.keys.dtype),
        values=_transposed(sums.values).astype(blocks.values.dtype),
        bias=of_bias,
        of_scores=with_floats(of_floats, [None] * len(blocks.of_scores)),
        of_dropout=[None] * len(blocks.of_dropout),
        **nothing,
    )


def _of_block(
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
    change = product("...qe,...ke->...qk", row.gradient, value, of.dtype)
    kept = weights
    if of.is_kept is not None:
        is_kept = of.is_kept(blocks.of_dropout, row.row, column)
        kept, change = jnp.where(is_kept, weights, 0), jnp.where(is_kept, change, 0)
    turned = _transposed(row.gradient)
    of_values = of.scale * product("...eq,...qk->...ek", turned, kept, of.dtype)
    more = pull(weights * (of.scale * change - row.along))
    add_up = lambda total, part: total + part.astype(total.dtype)
    sums = Sums(
        sums.queries,
        sums.keys.at[j].add(more[2].astype(sums.keys.dtype)),
        sums.values.at[j].add(_sum_to(of_values, sums.values.shape[1:])),
        jax.tree.map(add_up, sums.of_scores, more[0]),
    )
    of_bias = None if of_bias is None else of_bias.at[j].set(more[3])
    return add_up(of_query, more[1]), of_bias, sums


def _floats(arrays: list[Array]) -> tuple[list[Array], Callable[[list, list], list]]:
    """The arrays that have gradients, and a function that puts others where they were."""
    is_float = [jnp.issubdtype(array.dtype, jnp.inexact) for array in arrays]

    def with_floats(floats: list, arrays: list) -> list:
        rest = iter(floats)
        return [next(rest) if float_ else array for array, float_ in zip(arrays, is_float)]

    return [array for array, float_ in zip(arrays, is_float) if float_], with_floats


def _transposed(array: Array) -> Array:
    return jnp.swapaxes(array, -1, -2)


def _zeros(array: Array) -> Array:
    return varying(jnp.zeros(array.shape, wide(array.dtype)), array)


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """The sum over axes that are 1 in the shape."""
    axes = tuple(i for i, (have, want) in enumerate(zip(array.shape, shape)) if have != want)
    return array.sum(axis=axes, keepdims=True) if axes else array
