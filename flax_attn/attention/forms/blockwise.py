"""Softmax attention over blocks of queries and keys: no array of the size of the weights exists.

The keys stream by. With `m` the largest score so far,

    s = sum_k exp(e_k - m),   c = sum_k exp(e_k - m) v_k,   context = c / s

and both sums are scaled by `exp(m_old - m_new)` when a block has a larger score. For the gradient,
`l = m + log s` is stored for every query. With the gradient `g` of the context, and a block's
weights `w = exp(e - l)`, which are computed again,

    dv_k = sum_q w_qk g_q,   de_qk = w_qk (g_q · v_k - g_q · context_q)

The gradients of queries, keys, bias and the arrays that the score closes over come from `jax.vjp`
of the score inside a block. A block whose queries see none of its keys is not computed.

Source: Rabe & Staats 2021 (arXiv:2112.05682), section 3; Milakov & Gimelshein 2018
(arXiv:1805.02867) for the sums; Dao et al. 2022 (arXiv:2205.14135), appendix B.2, for gradients.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Int

from flax_attn import platforms
from flax_attn.attention.arrays import (
    add,
    merge,
    most_over,
    product,
    split,
    varying,
    wide,
    with_rank,
)
from flax_attn.attention.checks import Score
from flax_attn.attention.normalizers import drop, is_softmax, needs_all_queries
from flax_attn.attention.scores import as_dot_product
from flax_attn.attention.visibility import Indices, hide
from flax_attn.types import Tree

if TYPE_CHECKING:
    from flax_attn.attention.core import Call

SMALLEST, LARGEST = 128, 1024
CPU_BLOCK = 2**21  # numbers in the largest array of one block: 8 MiB in float32
CPU_DENSE = 2**22  # numbers up to which all scores at once are as fast
# Hidden blocks are worth leaving out from so many numbers and tokens on. On two cores, gradients at
# 2 x 8 x 512 x 512 take 0.55 of the time in them with a window of 128, 0.6 with half of the keys,
# and 0.7 with causality; at 8 x 8 x 256 x 256, blocks gain nothing.
CPU_DENSE_HIDDEN, CPU_SHORT = 2**20, 512
DENSE = 2**28  # numbers up to which all scores fit in memory elsewhere: 1 GiB in float32


def why_not(call: "Call") -> str:
    """Tells why the form does not fit a call; nothing where it does."""
    if not is_softmax(call.normalizer):
        return "the normalizer is not softmax"
    return "" if block_size(call) else "all scores at once are as fast"


def attend(call: "Call") -> Array:
    """Computes the context `(..., q, e)`."""
    return context_and_logs(call)[0]


def block_size(call: "Call") -> int | None:
    """Returns the block size that the caller says, or the best one; None for all at once.

    The best one is a fixed rule of sizes, limits and device, made from benchmarks: every process
    and every resumed run takes the same. The rule looks at the largest array inside the score, such
    as the hidden layer of an additive one. Causality or a window makes blocks smaller, so that
    blocks outside it can be left out. Symbolic sizes, those of a program that is exported, are not
    known: such a program computes all scores at once, as one with explicit axes of a mesh does.
    """
    visible, is_fixed = call.visible, platforms.has_explicit_axes(call.query)
    if call.chunk_size is not None or visible.is_symbolic or is_fixed:
        return call.chunk_size
    num_queries, num_keys = call.query.shape[-2], call.key.shape[-2]
    largest = _largest_inside(call)  # a score's hidden layer counts
    if platforms.current() != platforms.CPU:
        return LARGEST if largest * platforms.num_copies() > DENSE else None
    numbers_a_pair = largest / max(num_queries * num_keys, 1)
    size = math.sqrt(CPU_BLOCK / max(numbers_a_pair, 1))  # of queries and keys alike
    if visible.right is not None:
        size = min(size, num_keys / 4)  # at least 4 blocks, of which causality hides some
    if visible.window_size is not None:
        size = min(size, visible.window_size / 2)  # blocks outside it can be left out
    size = 2 ** int(math.log2(min(max(size, SMALLEST), LARGEST)))
    hides_blocks = visible.limits & {"right", "left", "query_lengths", "key_lengths"}
    longest = max(num_queries, num_keys)
    gains = hides_blocks and longest >= CPU_SHORT and largest >= CPU_DENSE_HIDDEN
    return size if (largest > CPU_DENSE or gains) and size < longest else None


def _largest_inside(call: "Call") -> int:
    """Returns the size of the largest array of the score. Dot products are known untraced."""
    score, query, key = call.score, call.query, call.key
    if as_dot_product(score) is not None:
        pairs = math.prod(call.visible.shape[:-2]) * query.shape[-2] * key.shape[-2]
        return max(query.size, pairs)
    return _largest_in_program(jax.make_jaxpr(score)(query, key).jaxpr)  # traced, not computed


def _largest_in_program(jaxpr: Jaxpr) -> int:
    """Returns the size of the largest array that a program computes."""
    largest = 0
    for equation in jaxpr.eqns:
        sizes = [math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars]
        inner = [_largest_in_program(program) for program in _programs(equation.params)]
        largest = max(largest, *sizes, *inner)
    return largest


def _programs(params: dict) -> Iterator[Jaxpr]:
    """Yields the programs inside an equation: the body of a loop, the branches of a condition."""
    for value in params.values():
        for program in value if isinstance(value, tuple | list) else (value,):
            if isinstance(program, ClosedJaxpr):
                yield program.jaxpr
            elif isinstance(program, Jaxpr):
                yield program


def context_and_logs(call: "Call") -> tuple[Array, Array]:
    """Computes softmax attention in blocks.

    A caller who gives `indices` has zeroed what causality, window and lengths leave unseen.

    Returns:
        The context `(..., q, e)`, and `log sum_k exp(e_qk)` `(..., q)`, which is `inf` in a row
        with nothing to attend.
    """
    num_queries, num_keys = call.query.shape[-2], call.key.shape[-2]
    most = block_size(call)
    assert most is not None
    if call.indices is None:
        arrays = call.visible.without_unreachable(call.query, call.key, call.value)
        call = call._replace(indices=call.visible.all_indices())
        call = call._replace(query=arrays[0], key=arrays[1], value=arrays[2])
    functions, blocks = in_blocks(call, min(most, num_queries), min(most, num_keys))
    context, log = _stream(functions, blocks)  # pyright: ignore
    return merge(context, num_queries), merge(log, num_queries)[..., 0]  # (..., q, e), (..., q)


# Forward


class RunningSums(NamedTuple):
    """The largest score `m` so far, and the sums `s` and `c`, for each block of queries."""

    largest: Array  # (..., q, 1)
    total: Array  # (..., q, 1)
    context: Array  # (..., q, e)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stream(functions: "Functions", blocks: "Blocks") -> tuple[Array, Array]:
    """Computes the contexts `(i, ..., q, e)`, and `l` `(i, ..., q, 1)`, the logarithms of sums."""
    return add_keys(functions, blocks, None, finished)


def add_keys(
    functions: "Functions", blocks: "Blocks", sums: RunningSums | None, end: Callable
) -> Tree:
    """Adds all keys of the blocks to the sums of every block of queries.

    Args:
        functions, blocks: the functions and arrays of the blocks.
        sums: of the keys before these, or None.
        end: of the sums of one block of queries; `finished` after the last keys.
    """

    def of_queries(args: tuple) -> Tree:
        query, biases, row, order, count, start = args  # (..., q, d), (j, ..., q, k), (q,), (j,)

        def step(n: Array, sums: RunningSums) -> RunningSums:
            j, (largest, total, context) = order[n], sums
            bias = None if biases is None else biases[j]  # (..., q, k); axes of 1 stay
            key, value, column = blocks.keys[j], blocks.values[j], blocks.columns[j]
            scores, value = functions.scores(blocks.of_scores, query, key, value, bias, row, column)
            new = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))  # (..., q, 1)
            base = jnp.where(new == -jnp.inf, 0, new)  # nothing to attend so far
            shares, rescale = jnp.exp(scores - base), jnp.exp(largest - base)  # both at most 1
            total = rescale * total + shares.sum(axis=-1, keepdims=True)  # (..., q, 1)
            if functions.is_kept is not None:  # `total` is that before dropout
                shares = jnp.where(functions.is_kept(blocks.of_dropout, row, column), shares, 0)
            more = product("...qk,...ke->...qe", shares, value, functions.dtype)  # (..., q, e)
            return RunningSums(new, total, rescale * context + more)

        if start is None:
            start = no_sums(functions, functions.shape[:-1], blocks.values.shape[-1])
        start = varying(start, query)  # inside `shard_map`, sums vary as queries do
        return end(functions, jax.lax.fori_loop(0, count, step, start))  # not the hidden blocks

    limits = blocks.rows, blocks.order, blocks.counts
    return jax.lax.map(of_queries, (blocks.queries, blocks.bias, *limits, sums))


def no_sums(functions: "Functions", shape: tuple[int, ...], width: int) -> RunningSums:
    """Makes the sums of no keys, for queries of a shape `(..., q)` and values of a width."""
    largest, total = (jnp.full((*shape, 1), start, functions.dtype) for start in (-jnp.inf, 0))
    return RunningSums(largest, total, jnp.zeros((*shape, width), functions.dtype))  # (..., q, e)


def finished(functions: "Functions", sums: RunningSums) -> tuple[Array, Array]:
    """Divides the sums of a block of queries: its context, and `l`."""
    largest, total, context = sums
    safe = jnp.where(total > 0, total, 1)  # (..., q, 1)
    # exp(e - l) is then 0 in a row with nothing to attend
    log = jnp.where(total > 0, largest + jnp.log(safe), jnp.inf)  # (..., q, 1)
    log = jnp.where(jnp.isnan(total), jnp.nan, log)  # `total > 0` is False for NaN
    return functions.scale * context / jnp.where(jnp.isnan(total), jnp.nan, safe), log


# Backward


class Gradients(NamedTuple):
    """Gradients that are added up over blocks, in float32 or better.

    Those of keys and values are transposed, `(j, ..., d, k)`: the products that make them are then
    twice as fast on a CPU. Those of queries `(i, ..., q, d)` have any dtype.
    """

    queries: Array
    keys: Array
    values: Array
    of_scores: list[Array]


class QueryBlock(NamedTuple):
    """The block `i` of queries, and the arrays of its rows; `row` `(q,)` are their indices.

    It attends to the blocks of keys `order[:count]`. `along` `(..., q, 1)` is `g_q · context_q`
    less the gradient of `l_q`; it is subtracted from the gradient of a weight.
    """

    i: Array  # ()
    query: Array  # (..., q, d)
    bias: Array | None  # (j, ..., q, k); axes of 1 stay
    row: Array  # (q,)
    order: Array  # (j,)
    count: Array  # ()
    log: Array  # (..., q, 1)
    gradient: Array  # (..., q, e)
    along: Array  # (..., q, 1)


def _forward(functions: "Functions", blocks: "Blocks") -> tuple[tuple[Array, Array], tuple]:
    context, log = _stream(functions, blocks)  # pyright: ignore
    return (context, log), (blocks, context, log)


def _backward(functions: "Functions", results: tuple, gradients: tuple) -> tuple[Tree]:
    return (_gradients(functions, results, gradients),)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gradients(functions: "Functions", results: tuple, gradients: tuple[Array, Array]) -> Tree:
    """Computes the gradients of the blocks, from those of the contexts and of `l`."""
    blocks, contexts, logs = results
    rows = logs, gradients[0], along(contexts, gradients)  # (i, ..., q, _)
    sums = no_gradients(blocks, blocks.queries.dtype)
    return as_blocks(blocks, *add_gradients(functions, blocks, rows, sums))


def refuse(*args: Tree) -> Tree:
    """Raises the TypeError of a second derivative."""
    raise TypeError(
        "expected a first derivative of attention in blocks, got a second one; "
        "pass need_weights=True and chunk_size=None, and ring=False across devices"
    )


_stream.defvjp(_forward, _backward)
_gradients.defvjp(refuse, refuse)


def no_gradients(blocks: "Blocks", dtype: DTypeLike) -> Gradients:
    """Makes zero gradients to add to, with those of queries in a dtype."""
    floats, _ = _floats(blocks.of_scores)
    keys, values = (_zeros(_transposed(array)) for array in (blocks.keys, blocks.values))
    queries = varying(jnp.zeros(blocks.queries.shape, dtype), blocks.queries)  # (i, ..., q, d)
    return Gradients(queries, keys, values, [_zeros(array) for array in floats])


def along(contexts: Array, gradients: tuple[Array, Array]) -> Array:
    """Computes what is subtracted from the gradient of a weight: `g_q · context_q - dl_q`."""
    of_contexts, of_logs = gradients
    return jnp.sum(of_contexts * contexts, axis=-1, keepdims=True) - of_logs  # (i, ..., q, 1)


def add_gradients(
    functions: "Functions", blocks: "Blocks", rows: tuple[Array, Array, Array], sums: Gradients
) -> tuple[Gradients, Array | None]:
    """Adds the gradients by all keys of the blocks to the sums.

    Args:
        functions, blocks: the functions and arrays of the blocks.
        rows: `l` of the queries over all keys, also others than these; the gradients of the
            contexts; and `along`.
        sums: by other keys and queries.

    Returns:
        The sums, and the gradients of the bias.
    """

    def of_queries(sums: Gradients, block: QueryBlock) -> tuple[Gradients, Array | None]:
        step = functools.partial(_add_key_block, functions, blocks, block)
        of_bias = None if block.bias is None else varying(jnp.zeros_like(block.bias), block.bias)
        start = _zeros(block.query), of_bias, sums  # (..., q, d), (j, ..., q, k)
        of_query, of_bias, sums = jax.lax.fori_loop(0, block.count, step, start)
        queries = sums.queries.at[block.i].add(of_query.astype(sums.queries.dtype))
        return sums._replace(queries=queries), of_bias

    # the gradient of an array that devices share is added up over them in every step
    counts = most_over(blocks.counts, _floats(blocks.of_scores)[0])  # (i,)
    limits = blocks.bias, blocks.rows, blocks.order, counts
    numbers = jnp.arange(len(blocks.queries))  # (i,)
    return jax.lax.scan(of_queries, sums, QueryBlock(numbers, blocks.queries, *limits, *rows))


def _add_key_block(
    functions: "Functions", blocks: "Blocks", block: QueryBlock, n: Array, carry: tuple
) -> tuple[Array, Array | None, Gradients]:
    """Adds the gradients by one more block of keys, to those of a block of queries and the sums."""
    j, (of_query, of_bias, sums) = block.order[n], carry
    floats, with_floats = _floats(blocks.of_scores)
    bias, column = None if block.bias is None else block.bias[j], blocks.columns[j]

    def scores_of(floats: list, query: Array, transposed_key: Array, bias: Array | None):
        arrays, key = with_floats(floats, blocks.of_scores), _transposed(transposed_key)
        return functions.scores(arrays, query, key, blocks.values[j], bias, block.row, column)

    arguments = floats, block.query, _transposed(blocks.keys[j]), bias  # key (..., d, k)
    scores, pull, value = jax.vjp(scores_of, *arguments, has_aux=True)  # scores (..., q, k)
    weights = jnp.where(scores == -jnp.inf, 0, jnp.exp(scores - block.log))  # (..., q, k)
    change = product("...qe,...ke->...qk", block.gradient, value, functions.dtype)  # (..., q, k)
    dropped = weights
    if functions.is_kept is not None:
        is_kept = functions.is_kept(blocks.of_dropout, block.row, column)
        dropped, change = jnp.where(is_kept, weights, 0), jnp.where(is_kept, change, 0)
    turned = _transposed(block.gradient)  # (..., e, q)
    of_values = functions.scale * product("...eq,...qk->...ek", turned, dropped, functions.dtype)
    more = pull(weights * (functions.scale * change - block.along))  # shaped as the arguments
    add_up = lambda total, addend: total + addend.astype(total.dtype)
    sums = Gradients(
        sums.queries,
        sums.keys.at[j].add(more[2].astype(sums.keys.dtype)),  # (j, ..., d, k)
        sums.values.at[j].add(_sum_to(of_values, sums.values.shape[1:])),  # (j, ..., e, k)
        jax.tree.map(add_up, sums.of_scores, more[0]),
    )
    of_bias = None if of_bias is None else of_bias.at[j].set(more[3])  # each `j` once
    return add_up(of_query, more[1]), of_bias, sums


def as_blocks(blocks: "Blocks", sums: Gradients, of_bias: Array | None) -> "Blocks":
    """Puts gradients in the places of their arrays, in their dtypes; None without a gradient."""
    floats, with_floats = _floats(blocks.of_scores)
    of_floats = [array.astype(like.dtype) for array, like in zip(sums.of_scores, floats)]
    nothing: Tree = dict.fromkeys(("rows", "columns", "order", "counts"))
    return blocks._replace(
        queries=sums.queries.astype(blocks.queries.dtype),  # (i, ..., q, d)
        keys=_transposed(sums.keys).astype(blocks.keys.dtype),  # (j, ..., k, d)
        values=_transposed(sums.values).astype(blocks.values.dtype),  # (j, ..., k, e)
        bias=of_bias,
        of_scores=with_floats(of_floats, [None] * len(blocks.of_scores)),  # None for integers
        of_dropout=[None] * len(blocks.of_dropout),  # random keys have no gradient
        **nothing,  # indices have no gradient
    )


# The blocks


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


class Functions(NamedTuple):
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


def in_blocks(call: "Call", query_size: int, key_size: int) -> tuple[Functions, Blocks]:
    """Cuts the arrays of a call into blocks, and makes the functions of a block.

    The arrays that its score, mask and bias close over become arguments of the functions.
    """
    query, key, value, visible, indices = *call[:4], call.indices
    assert indices is not None
    queries, keys, values = split(query, query_size), split(key, key_size), split(value, key_size)
    rows, columns = indices.in_blocks(query_size, key_size, visible.shape[-1])  # (i, q), (j, k)
    bias = bias_blocks(indices, query_size, key_size)  # (i, j, ..., q, k); axes of 1 stay
    shape = (*visible.shape[:-2], query_size, key_size)  # (..., q, k) of a block
    dtype = wide(query.dtype, key.dtype, value.dtype)
    is_padded = indices.is_padded or len(indices.keys) % key_size > 0
    scores = functools.partial(_scores, call, dtype, is_padded)
    order, counts = in_order(visible.visible_blocks(rows, columns))  # (i, j), (i,)
    blocks = Blocks(queries, keys, values, bias, [], [], rows, columns, order, counts)
    closed, of_scores = without_closure(scores, *_first(blocks))
    alike = varying(blocks, (blocks, of_scores, call.dropout_rng))
    if any(old is not new for old, new in zip(jax.tree.leaves(blocks), jax.tree.leaves(alike))):
        blocks = alike  # they did not vary alike, inside a `jax.shard_map`
        closed, of_scores = without_closure(scores, *_first(blocks))
    is_kept, of_dropout = None, []
    if call.dropout_rate:
        keeps = functools.partial(_is_kept, call, shape, dtype, is_padded)
        is_kept, of_dropout = without_closure(keeps, *_first(blocks)[-2:])
    functions = Functions(closed, is_kept, 1 / (1 - call.dropout_rate), dtype, shape)
    return functions, blocks._replace(of_scores=of_scores, of_dropout=of_dropout)


def _scores(
    call: "Call",
    dtype: jnp.dtype,
    is_padded: bool,
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None,
    row: Array,
    column: Array,
) -> tuple[Array, Array]:
    """Computes the scores of a block, `-inf` where hidden, and its values."""
    mask, bias = call.visible.block(Indices(row, column, bias, is_padded))  # (..., q or 1, k or 1)
    if mask is not None and call.visible.hides_single_pairs:  # else it is zero already
        query, has_query = hide(query, mask.any(axis=-1)), mask.any(axis=-2)  # has_query (..., k)
        key, value = hide(key, has_query), hide(value, has_query)  # (..., k, d), (..., k, e)
    scores = varying(call.scores(query, key), query)  # (..., q, k)
    scores = (scores if bias is None else add(scores, bias)).astype(dtype)  # (..., q, k)
    if is_padded:
        real = with_rank(column <= call.visible.shape[-1] - 1, scores.ndim)  # (..., 1, k)
        mask = real if mask is None else mask & real  # padding repeats the last key
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf), value


def _is_kept(
    call: "Call",
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    is_padded: bool,
    row: Array,
    column: Array,
) -> Array:
    """Tells which weights of a block dropout keeps."""
    column = jnp.minimum(column, call.visible.shape[-1] - 1) if is_padded else column
    return drop(jnp.ones(shape, dtype), call.dropout_rate, call.dropout_rng, row, column) > 0


def bias_blocks(indices: Indices, *sizes: int) -> Array | None:
    """Cuts the array of biases along queries, or queries and keys; blocks stand in front.

    It is cut beforehand: the gradient of a block is then a block, not zeros around one.
    """
    if indices.bias is None:
        return None
    lengths = len(indices.queries), len(indices.keys)
    numbers = [-(-length // size) for length, size in zip(lengths, sizes)]  # of blocks per axis
    blocks = indices.bias
    for axis, size in reversed(list(zip((-2, -1), sizes))):  # keys first, so `i` ends up in front
        blocks = split(blocks, size, axis) if blocks.shape[axis] > 1 else blocks[None]
    return jnp.broadcast_to(blocks, (*numbers, *blocks.shape[len(numbers) :]))


def in_order(visible: Bool[Array, "..."]) -> tuple[Array, Array]:
    """Orders blocks of keys `(..., j)`, the visible ones first, and counts those."""
    return jnp.argsort(~visible, axis=-1, stable=True), visible.sum(axis=-1)  # (..., j), (...)


def without_closure(function: Callable, *examples: Tree) -> tuple[Callable, list[Tree]]:
    """Makes the arrays that a function closes over its first argument. Returns both.

    A function with a derivative of its own (`jax.custom_vjp`) may not close over arrays that are
    differentiated or vectorised. `jax.closure_convert` makes arguments only of arrays of floats
    that are differentiated; here it is all arrays, so also the lengths under `jax.vmap`.

    The examples are arguments of the shapes and dtypes that it will be called with.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    # `call` keeps no array alive: newer JAX has the arrays in the program itself
    bare = ClosedJaxpr(closed.jaxpr, [None] * len(closed.consts))
    tree, jaxpr = jax.tree.structure(shape), bare.jaxpr

    def call(arrays: list[Tree], *args: Tree) -> Tree:
        outputs = jaxpr_as_fun(ClosedJaxpr(jaxpr, arrays))(*jax.tree.leaves(args))
        return jax.tree.unflatten(tree, outputs)

    return call, [jnp.asarray(array) for array in closed.consts]  # a number may be a Python one


def _first(blocks: Blocks) -> tuple:
    """Returns the arguments of `scores` for the first blocks of queries and keys."""
    bias = None if blocks.bias is None else blocks.bias[0, 0]
    arrays = blocks.queries[0], blocks.keys[0], blocks.values[0]
    return *arrays, bias, blocks.rows[0], blocks.columns[0]


def _floats(arrays: list[Array]) -> tuple[list[Array], Callable[[list, list], list]]:
    """Splits off the arrays that have gradients; the function puts others where they were."""
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
    """Sums over axes that are 1 in the shape."""
    axes = tuple(i for i, (have, want) in enumerate(zip(array.shape, shape)) if have != want)
    return array.sum(axis=axes, keepdims=True) if axes else array


# Blocks of queries with all keys, for any normaliser of rows.


def why_not_in_rows(call: "Call") -> str:
    """Tells why blocks of queries with all keys do not fit a call; nothing where they do."""
    return "no chunk_size is given" if call.chunk_size is None else ""


def attend_in_rows(call: "Call") -> Array:
    """Computes the context `(..., q, e)`, one block of queries after another, each with all keys.

    A block is computed again for its gradient (`jax.checkpoint`), so no more than one block of
    scores exists at any time. A normaliser that needs all queries gets all scores at once; what a
    score computes on the way, such as the hidden layer of an additive one, then comes in blocks.
    """
    assert call.chunk_size is not None
    if needs_all_queries(call.normalizer):
        return call._replace(score=score_in_blocks(call.score, call.chunk_size)).dense()[0]
    num_queries = call.query.shape[-2]
    size = min(call.chunk_size, num_queries)
    indices = call.visible.all_indices() if call.indices is None else call.indices

    def of_block(args: tuple[Array, Array, Array | None]) -> Array:
        queries, query, bias = args  # (q,), (..., q, d), (..., q, k)
        block = indices._replace(queries=queries, bias=bias)
        return call._replace(query=query, indices=block).dense()[0]  # (..., q, e)

    blocks = split(indices.queries, size, -1), split(call.query, size), bias_blocks(indices, size)
    return merge(jax.lax.map(jax.checkpoint(of_block), blocks), num_queries)  # (..., q, e)


def score_in_blocks(score: Score, size: int) -> Score:
    """Makes the same score, computed for one block of queries after another."""

    def in_turn(query: Array, key: Array) -> Array:
        length = min(size, query.shape[-2])
        rows = jax.lax.map(jax.checkpoint(lambda query: score(query, key)), split(query, length))
        return merge(rows, query.shape[-2])  # (..., q, k)

    return in_turn
