"""Softmax attention over blocks of queries and keys, with a derivative of its own.

The keys stream by. With `m` the largest score so far,

    s = sum_k exp(e_k - m),   c = sum_k exp(e_k - m) v_k,   context = c / s

and both sums are scaled by `exp(m_old - m_new)` when a block brings a larger score. What is kept
for the gradient is `l = m + log s` of every query. With it a block's weights are `w = exp(e - l)`,
and from the gradient `g` of the context follow

    dv_k = sum_q w_qk g_q,   de_qk = w_qk (g_q · v_k - g_q · context_q)

and, by `jax.vjp` of the score inside a block, the gradients of queries, keys, bias and everything
that the score closes over. No more than one block of scores exists at any time. A block whose
queries may attend to none of its keys is not computed.

Source: Rabe & Staats 2021 (arXiv:2112.05682), section 3; Milakov & Gimelshein 2018
(arXiv:1805.02867) for the sums; Dao et al. 2022 (arXiv:2205.14135), appendix B.2, for the gradient.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_attn.attention.arrays import hide, wide, with_rank
from flax_attn.attention.blocks import bias_blocks, indices, merge, split
from flax_attn.attention.closures import without_closure
from flax_attn.attention.pairs import Block, Pairs
from flax_attn.attention.reach import reachable, visible_blocks


class Blocks(NamedTuple):
    """The arrays in blocks, and the arrays that a block's scores and dropout depend on.

    `queries` is `(i, ..., q, d)`, `keys` and `values` are `(j, ..., k, d)`, `bias` is
    `(i, j, ..., q, k)` or None. Query block `i` attends to the first `counts[i]` of the key
    blocks `order[i]`.
    """

    queries: Array
    keys: Array
    values: Array
    bias: Array | None
    of_score: list[Array]
    of_dropout: list[Array]
    order: Int[Array, "i j"]
    counts: Int[Array, " i"]


class Parts(NamedTuple):
    """The functions of a block, which close over no array.

    Attributes:
        scores: from a block's queries, keys, values and bias, its numbers `i` and `j`, and
            `of_score`, to the scores, `-inf` where nothing may be attended, and the values.
        kept: from `i`, `j` and `of_dropout` to which weights dropout keeps; None without dropout.
        scale: of the weights that are kept.
        dtype: of scores and sums.
    """

    scores: Callable[..., tuple[Array, Array]]
    kept: Callable[..., Array] | None
    scale: float
    dtype: Any


def best_chunk_size(query: Array, key: Array, pairs: Pairs, score: Callable) -> int | None:
    """The block size for a caller who leaves it open; None for all scores at once.

    A fixed rule of sizes, limits and device, made from benchmarks: every process and every resumed
    run takes the same. On a CPU, the largest array inside the score of one block has about two
    million numbers. Causality or a window makes blocks smaller, so that blocks outside it can be
    left out.
    """
    num_queries, num_keys = pairs.shape[-2:]
    largest = _largest_inside(jax.make_jaxpr(score)(query, key).jaxpr)
    if jax.default_backend() != "cpu":
        return 1024 if largest > 2**28 else None
    rows = largest / max(num_queries * num_keys, 1)
    size = math.sqrt(2**21 / max(rows, 1))
    if pairs.right is not None:
        size = min(size, num_keys / 4)
    if pairs.left is not None and pairs.right is not None:
        size = min(size, (pairs.left + pairs.right + 1) / 2)
    size = 2 ** int(math.log2(min(max(size, 128), 1024)))
    return size if largest > 2**22 and size < max(num_queries, num_keys) else None


def _largest_inside(jaxpr: Any) -> int:
    """How many numbers the largest array has that a program computes."""
    largest = 0
    for equation in jaxpr.eqns:
        sizes = [math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars]
        inner = [value for value in equation.params.values() if hasattr(value, "jaxpr")]
        largest = max(largest, *sizes, *(_largest_inside(program.jaxpr) for program in inner))
    return largest


def attend(query: Array, key: Array, value: Array, pairs: Pairs, how: Any) -> tuple[Array, Array]:
    """Softmax attention in blocks of `how.chunk_size`.

    Returns:
        The context `(..., q, e)`, and `log sum_k exp(e_qk)` `(..., q)`, which is `inf` in a row
        with nothing to attend.
    """
    num_queries, num_keys = pairs.shape[-2:]
    sizes = min(how.chunk_size, num_queries), min(how.chunk_size, num_keys)
    if not pairs.looks_at_pairs:
        has_key, has_query = reachable(pairs)
        query, key, value = hide(query, has_key), hide(key, has_query), hide(value, has_query)
    blocks, parts = _in_blocks(query, key, value, pairs, (how.score, *sizes))
    context, log = _stream(parts, blocks)  # pyright: ignore
    return merge(context, num_queries), merge(log, num_queries)[..., 0]


def _in_blocks(
    query: Array, key: Array, value: Array, pairs: Pairs, how: tuple[Callable, int, int]
) -> tuple[Blocks, Parts]:
    """The arrays in blocks, and the functions of a block, with their arrays made arguments."""
    score, query_size, key_size = how
    num_queries, num_keys = pairs.shape[-2:]
    dtype = wide(query.dtype, key.dtype, value.dtype)
    queries, keys, values = split(query, query_size), split(key, key_size), split(value, key_size)
    bias = bias_blocks(pairs, query_size, key_size)

    def block_at(i: Array, j: Array, bias: Array | None) -> Block:
        rows, columns = indices(i, query_size, num_queries), indices(j, key_size, num_keys)
        return pairs.block(rows[:, None], columns[None, :], bias)

    def scores(query, key, value, bias, i, j):
        mask = (block := block_at(i, j, bias)).mask
        if mask is not None and pairs.looks_at_pairs:
            query, has_query = hide(query, mask.any(axis=-1)), mask.any(axis=-2)
            key, value = hide(key, has_query), hide(value, has_query)
        scores = score(query, key)
        shape = (*pairs.shape[:-2], query_size, key_size)
        if scores.shape != shape:
            raise ValueError(
                f"expected a score of shape {shape} for query {query.shape} and key {key.shape}, "
                f"got {scores.shape}"
            )
        scores = (scores if block.bias is None else scores + block.bias).astype(dtype)
        if num_keys % key_size:  # what fills up the last block is no key
            real = with_rank(j * key_size + jnp.arange(key_size) < num_keys, scores.ndim)
            mask = real if mask is None else mask & real
        return scores if mask is None else jnp.where(mask, scores, -jnp.inf), value

    def kept(i: Array, j: Array) -> Array:
        ones = jnp.ones((*pairs.shape[:-2], query_size, key_size), dtype)
        return pairs.drop(ones, block_at(i, j, None)) > 0

    number = jnp.asarray(0)
    first_bias = None if bias is None else bias[0, 0]
    of_block = queries[0], keys[0], values[0], first_bias, number, number
    scores, of_score = without_closure(scores, *of_block)
    drop, of_dropout = None, []
    if pairs.dropout_rate:
        drop, of_dropout = without_closure(kept, number, number)
    visible = visible_blocks(pairs, query_size, key_size)
    order, counts = jnp.argsort(~visible, axis=-1, stable=True), visible.sum(axis=-1)
    blocks = Blocks(queries, keys, values, bias, of_score, of_dropout, order, counts)
    return blocks, Parts(scores, drop, 1 / (1 - pairs.dropout_rate), dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stream(parts: Parts, blocks: Blocks) -> tuple[Array, Array]:
    """The contexts `(i, ..., q, e)` and `l`, the logarithms `(i, ..., q, 1)` of the sums."""
    queries, keys, values = blocks.queries, blocks.keys, blocks.values
    leading = _leading(parts, blocks)
    sizes = queries.shape[-2], values.shape[-1]

    def row(args: tuple) -> tuple[Array, Array]:
        i, query, bias_row, order, count = args

        def step(n: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            j, (largest, total, context) = order[n], carry
            bias = None if bias_row is None else bias_row[j]
            scores, value = parts.scores(blocks.of_score, query, keys[j], values[j], bias, i, j)
            new = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
            base = jnp.where(new == -jnp.inf, 0, new)  # nothing to attend so far
            shares, kept = jnp.exp(scores - base), jnp.exp(largest - base)
            total = kept * total + shares.sum(axis=-1, keepdims=True)
            if parts.kept is not None:
                shares = jnp.where(parts.kept(blocks.of_dropout, i, j), shares, 0)
            context = kept * context + _product("...qk,...ke->...qe", shares, value, parts.dtype)
            return new, total, context

        none = jnp.full((*leading, sizes[0], 1), -jnp.inf, parts.dtype)
        zero = jnp.zeros((*leading, sizes[0], 1), parts.dtype)
        start = none, zero, jnp.zeros((*leading, *sizes), parts.dtype)
        largest, total, context = jax.lax.fori_loop(0, count, step, start)
        safe = jnp.where(total > 0, total, 1)
        # exp(e - l) is then 0 in a row with nothing to attend
        log = jnp.where(total > 0, largest + jnp.log(safe), jnp.inf)
        log = jnp.where(jnp.isnan(total), jnp.nan, log)
        return parts.scale * context / jnp.where(jnp.isnan(total), jnp.nan, safe), log

    numbers = jnp.arange(len(queries))
    return jax.lax.map(row, (numbers, queries, blocks.bias, blocks.order, blocks.counts))


def _leading(parts: Parts, blocks: Blocks) -> tuple[int, ...]:
    """The axes of a block's scores in front of queries and keys."""
    number = jnp.asarray(0)
    bias = None if blocks.bias is None else blocks.bias[0, 0]
    arrays = blocks.queries[0], blocks.keys[0], blocks.values[0], bias
    scores, _ = jax.eval_shape(parts.scores, blocks.of_score, *arrays, number, number)
    return scores.shape[:-2]


def _forward(parts: Parts, blocks: Blocks) -> tuple[tuple[Array, Array], tuple]:
    context, log = _stream(parts, blocks)  # pyright: ignore
    return (context, log), (blocks, context, log)


def _backward(parts: Parts, kept: tuple, gradients: tuple[Array, Array]) -> tuple[Any]:
    return (_gradients(parts, kept, gradients),)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gradients(parts: Parts, kept: tuple, gradients: tuple[Array, Array]) -> Any:
    """The gradients of the blocks, from those of the contexts and of `l`."""
    blocks, contexts, logs = kept
    differentiable = [jnp.issubdtype(array.dtype, jnp.inexact) for array in blocks.of_score]
    floats = [array for array, is_float in zip(blocks.of_score, differentiable) if is_float]

    def with_floats(floats: list[Array]) -> list[Array]:
        rest = iter(floats)
        return [
            next(rest) if is_float else array
            for array, is_float in zip(blocks.of_score, differentiable)
        ]

    zeros = lambda array: jnp.zeros(array.shape, wide(array.dtype))

    def row(sums: tuple, args: tuple) -> tuple[tuple, tuple]:
        i, query, bias_row, order, count, context, log, gradient, of_log = args
        turned = jnp.swapaxes(gradient, -1, -2)
        along = jnp.sum(gradient * context, axis=-1, keepdims=True) - of_log

        def step(n: Array, carry: tuple) -> tuple:
            j, (of_query, of_bias, (of_keys, of_values, of_floats)) = order[n], carry
            bias = None if bias_row is None else bias_row[j]

            def scored(floats, query, key, bias):
                arrays, key = with_floats(floats), jnp.swapaxes(key, -1, -2)
                return parts.scores(arrays, query, key, blocks.values[j], bias, i, j)

            arguments = floats, query, jnp.swapaxes(blocks.keys[j], -1, -2), bias
            scores, pull, value = jax.vjp(scored, *arguments, has_aux=True)
            weights = jnp.where(scores == -jnp.inf, 0, jnp.exp(scores - log))
            change = _product("...qe,...ke->...qk", gradient, value, parts.dtype)
            dropped = weights
            if parts.kept is not None:
                is_kept = parts.kept(blocks.of_dropout, i, j)
                dropped, change = jnp.where(is_kept, weights, 0), jnp.where(is_kept, change, 0)
            more = _product("...eq,...qk->...ek", turned, dropped, parts.dtype)
            more_floats, more_query, more_key, more_bias = pull(
                weights * (parts.scale * change - along)
            )
            add = lambda total, part: total + part.astype(total.dtype)
            of_keys = of_keys.at[j].add(more_key.astype(of_keys.dtype))
            of_values = of_values.at[j].add(parts.scale * _sum_to(more, of_values.shape[1:]))
            of_floats = jax.tree.map(add, of_floats, more_floats)
            of_bias = None if bias is None else of_bias.at[j].set(more_bias)
            return add(of_query, more_query), of_bias, (of_keys, of_values, of_floats)

        of_bias = None if bias_row is None else jnp.zeros_like(bias_row)
        start = zeros(query), of_bias, sums
        of_query, of_bias, sums = jax.lax.fori_loop(0, count, step, start)
        return sums, (of_query.astype(query.dtype), of_bias)

    turn = lambda array: jnp.swapaxes(array, -1, -2)
    start = turn(zeros(blocks.keys)), turn(zeros(blocks.values)), [zeros(array) for array in floats]
    rows = jnp.arange(len(blocks.queries)), blocks.queries, blocks.bias, blocks.order, blocks.counts
    sums, (of_queries, of_bias) = jax.lax.scan(row, start, (*rows, contexts, logs, *gradients))
    of_keys, of_values, of_floats = sums
    rest = iter(array.astype(like.dtype) for array, like in zip(of_floats, floats))
    gradients_of: Any = Blocks  # None stands for no gradient
    return gradients_of(
        of_queries,
        turn(of_keys).astype(blocks.keys.dtype),
        turn(of_values).astype(blocks.values.dtype),
        of_bias,
        [next(rest) if is_float else None for is_float in differentiable],
        [None] * len(blocks.of_dropout),
        None,
        None,
    )


def _refuse(parts: Parts, *args: Any) -> Any:
    raise TypeError(
        "expected a first derivative of attention in blocks, got a second one; "
        "pass need_weights=True and chunk_size=None for second derivatives"
    )


_stream.defvjp(_forward, _backward)
_gradients.defvjp(_refuse, _refuse)


def _product(formula: str, weights: Array, vectors: Array, dtype: Any) -> Float[Array, "..."]:
    """A product with half precision multiplied as it is, and added up in float32 or better."""
    return jnp.einsum(formula, weights.astype(vectors.dtype), vectors, preferred_element_type=dtype)


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """The sum over axes that are 1 in the shape."""
    axes = tuple(i for i, (have, want) in enumerate(zip(array.shape, shape)) if have != want)
    return array.sum(axis=axes, keepdims=True) if axes else array
