"""Normalisers turn scores into weights along the last axis, the keys.

A normaliser is a pure function `(scores, mask=None, *, ...) -> weights`. `attend` passes the mask
by keyword. These rules hold for all of them:

- A key that the mask hides has weight 0 and gradient 0. Its score is never read, not even a NaN.
- A score of -inf hides its key as the mask does.
- A row without a visible key has weights 0 and gradients 0.
- A NaN among the visible scores of a row makes the row's weights NaN. So does +inf, for which
  softmax has no value.
- They run in float32 or better, and return the dtype that they ran in.

A normaliser looks at one row of scores at a time. So `attend` may pass it only some of the
queries. `across_queries` marks a normaliser that needs all of them, such as the monotonic ones at
the end of this file. Dropout of the weights stands here, too.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Key, UInt32

from flax_attn.attention.arrays import as_dtype_of, varying
from flax_attn.attention.checks import (
    AllMask,
    AllScores,
    AllWeights,
    Normalizer,
    RowMask,
    RowScores,
    RowWeights,
    as_array,
    as_mask,
    as_number,
    broadcastable,
)

# Sparsemax gives no weight to a score 1 or more below the largest, and entmax-1.5 to one 2 or more
# below it. A score further down than this counts as this far down.
FLOOR = -4.0


def across_queries(normalizer: Normalizer) -> Normalizer:
    """Marks a normaliser that must see all queries at once. `attend` then passes it all scores.

    Mark a function that calls a marked normaliser, too.
    """

    @functools.wraps(normalizer)
    def whole(*args: Any, **kwargs: Any) -> Array:  # Any: a normaliser has options of its own
        return normalizer(*args, **kwargs)

    whole.across_queries = True  # pyright: ignore
    return whole


def needs_all_queries(normalizer: Normalizer) -> bool:
    """Returns whether `across_queries` marks a normaliser, also inside a `functools.partial`."""
    while isinstance(normalizer, functools.partial):
        normalizer = normalizer.func
    return getattr(normalizer, "across_queries", False)


def is_softmax(normalizer: Normalizer) -> bool:
    """Tells whether a normaliser is `masked_softmax`, also inside a `functools.partial`."""
    while isinstance(normalizer, functools.partial) and not normalizer.keywords:
        normalizer = normalizer.func
    return normalizer is masked_softmax


def masked_softmax(scores: RowScores, mask: RowMask | None = None) -> RowWeights:
    """Computes softmax over the visible keys.

        w_k = exp(e_k) / sum_j exp(e_j)   for visible k and j, else 0

    The mask is True where a key may be attended. It broadcasts to the scores. One that is not
    boolean is a TypeError.
    """
    scores = _widened(scores)
    if mask is None:
        return _softmax(scores)
    visible = _spread("mask", as_mask(mask), scores.shape)  # (..., k)
    return _softmax(jnp.where(visible, scores, -jnp.inf))  # a selection: no hidden NaN is read


@jax.custom_jvp
def _softmax(scores: Array) -> Array:
    """Computes softmax. Its derivative `dw = w (de - sum w de)` needs the weights alone.

    A score of -inf has weight 0, and a row of nothing else has weights 0. Where a weight is 0,
    `de` does not count, not even a NaN.

    JAX has the same rule behind its flag `jax_softmax_custom_jvp`, which is off by default. Ours
    does not depend on the flag, which belongs to the user, and JAX's lets a NaN in `de` through.

    `base` and `total` are bounded by maxima because XLA fuses those on a CPU, and not `where`. The
    bounds change only rows of nothing but -inf: in any other row, the largest share is 1. The bound
    is no `initial` of the maximum, which programs that translate to ONNX do not take.
    """
    if 0 in scores.shape:  # `jnp.max` of no keys is an error
        return scores
    lowest = float(jnp.finfo(scores.dtype).min)
    base = jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), lowest)  # (..., 1)
    shares = jnp.exp(scores - base)  # (..., k)
    return shares / jnp.maximum(jnp.sum(shares, axis=-1, keepdims=True), 1)  # (..., k)


@_softmax.defjvp
def _softmax_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    weights = _softmax(*primals)
    change = jnp.where(weights != 0, tangents[0], 0)  # (..., k); 0 times NaN would be NaN
    return weights, weights * (change - jnp.sum(weights * change, axis=-1, keepdims=True))


def sparsemax(scores: RowScores, mask: RowMask | None = None) -> RowWeights:
    """Projects the scores onto the simplex, to its nearest point; many weights are exactly 0.

        w_k = max(e_k - tau, 0),   sum_k w_k = 1

    The gradient is that of the support held fixed (eq. 14).

    Source: Martins & Astudillo 2016 (arXiv:1602.02068), algorithm 1.
    """
    scores, mask = prepared(scores, mask)
    shifted = _shifted(scores, mask)  # (..., k), from FLOOR to 0
    ordered = _ordered(shifted)  # (..., k), falling
    rank, total = _ranks(ordered), jnp.cumsum(ordered, axis=-1)  # (..., k)
    support = mask & (shifted > _largest((total - 1) / rank))  # (..., k); the largest is tau
    tau = _mean(shifted, support) - 1 / _size(support, scores.dtype)  # (..., 1), with a gradient
    return jnp.where(support, shifted - tau, 0) + _nan_rows(scores)  # (..., k)


def entmax15(scores: RowScores, mask: RowMask | None = None) -> RowWeights:
    """Computes the 1.5-entmax, between softmax and sparsemax.

        w_k = max(e_k / 2 - tau, 0)^2,   sum_k w_k = 1

    The gradient is that of the support held fixed.

    Source: Peters, Niculae & Martins 2019 (arXiv:1905.05702), algorithm 2.
    """
    scores, mask = prepared(scores, mask)
    halves = _shifted(scores, mask) / 2  # (..., k)
    ordered = _ordered(halves)  # (..., k), falling
    rank = _ranks(ordered)  # (..., k)
    mean = jnp.cumsum(ordered, axis=-1) / rank  # (..., k), of the first 1, 2, ...
    spread = jnp.cumsum(jnp.square(ordered), axis=-1) - rank * jnp.square(mean)  # (..., k)
    tau = mean - jnp.sqrt(jnp.maximum(1 - spread, 0) / rank)  # (..., k), one for each size
    support = mask & (halves > _largest(jnp.where(tau <= ordered, tau, -jnp.inf)))  # (..., k)
    center = _mean(halves, support)  # (..., 1)
    spread = jnp.where(support, jnp.square(halves - center), 0).sum(axis=-1, keepdims=True)
    tau = center - jnp.sqrt((1 - spread) / _size(support, scores.dtype))  # (..., 1)
    return jnp.square(jnp.where(support, halves - tau, 0)) + _nan_rows(scores)  # (..., k)


def hard(
    scores: RowScores, mask: RowMask | None = None, *, temperature: ArrayLike = 1.0
) -> RowWeights:
    """Puts all weight on the largest score, the first of equal ones.

    The gradient is that of `softmax(e / temperature)` (straight-through). So +inf gives NaN: it is
    the largest score, but that softmax has no gradient there.

    Source: Xu et al. 2015 (arXiv:1502.03044), section 4.1, for hard attention; Bengio et al. 2013
    (arXiv:1308.3432) for the estimator.

    Raises:
        TypeError: a temperature that is no number.
        ValueError: a temperature that is not above 0.
    """
    number = _checked_temperature(temperature)
    scores, mask = prepared(scores, mask)
    if not scores.size:  # `jnp.argmax` of no keys is an error
        return scores
    soft = masked_softmax(scores / as_dtype_of(scores, number), mask=mask)  # (..., k)
    largest = jnp.argmax(jnp.where(mask, scores, -jnp.inf), axis=-1)  # (...)
    chosen = jnp.where(mask, jax.nn.one_hot(largest, scores.shape[-1], dtype=soft.dtype), 0)
    return chosen + (soft - jax.lax.stop_gradient(soft))  # `chosen` forward, `soft` backward


@across_queries
def sampled_hard(
    scores: RowScores,
    mask: RowMask | None = None,
    *,
    rng: Key[Array, ""],
    temperature: ArrayLike = 1.0,
) -> RowWeights:
    """Puts all weight on one key, drawn with the probabilities of softmax.

    With `g` from the Gumbel distribution, `argmax_k (e_k + g_k)` is a draw from `softmax(e)`. The
    gradient is that of the Gumbel-softmax, `softmax((e + g) / temperature)` (straight-through).

    Source: Jang, Gu & Poole 2017 (arXiv:1611.01144), section 2.2.

    Raises:
        TypeError, ValueError: as `hard` does.
    """
    scores = _widened(scores)
    *leading, num_queries, num_keys = (1, *scores.shape) if scores.ndim == 1 else scores.shape
    # A draw depends on the positions of its query and key alone, not on the number of either.
    indices = jnp.arange(num_queries), jnp.arange(num_keys)  # (q,), (k,)
    bits = positional_bits(rng, tuple(leading), *indices).reshape(scores.shape)  # (..., k)
    # In (0, 1), without both ends. With one bit more, the largest number would round to 1.
    uniform = ((bits >> 9).astype(scores.dtype) + 0.5) / 2**23
    return hard(scores - jnp.log(-jnp.log(uniform)), mask=mask, temperature=temperature)


def top_k(scores: RowScores, mask: RowMask | None = None, *, k: int) -> RowWeights:
    """Computes softmax over the `k` largest visible scores, the first of equal ones.

    The others have weight 0 and gradient 0.

    Source: Gupta et al. 2021 (arXiv:2106.06899), section 2.

    Raises:
        ValueError: `k` below 1.
    """
    if k < 1:
        raise ValueError(f"expected k of 1 or above, got {k}")
    scores, mask = prepared(scores, mask)
    falling = jnp.argsort(jnp.where(mask, scores, -jnp.inf), axis=-1, descending=True)  # (..., k)
    is_among = jnp.argsort(falling, axis=-1) < min(k, scores.shape[-1])  # by the rank of each key
    return masked_softmax(scores, mask=mask & (is_among | ~_finite(scores)))  # NaN rows stay whole


def with_sink(sink: ArrayLike, normalizer: Normalizer = masked_softmax) -> Normalizer:
    """Makes a normaliser in which a sink competes with the keys, and has no value.

        w_k = exp(e_k) / (exp(s) + sum_j exp(e_j))

    The weights of a row then sum to less than 1. A sink of -inf changes nothing. One of 0 is
    softmax with a one added to its sum ("softmax1").

    Source: Xiao et al. 2024 (arXiv:2309.17453), section 3.2, for keys that serve as sinks; OpenAI
    2025 (arXiv:2508.10925), section 2.2, for one learned number a head.

    Args:
        sink: `s`, which broadcasts to the scores with one key, `(..., q, 1)`.
        normalizer: what the scores and the sink are given to; softmax in the formula.
    """

    def weigh(scores: Array, mask: Array | None = None) -> Array:
        scores = _widened(scores)
        column = (*scores.shape[:-1], 1)  # (..., q, 1)
        sinks = _spread("sink", jnp.asarray(sink, scores.dtype), column)  # (..., q, 1)
        visible = jnp.ones((), bool) if mask is None else as_mask(mask)
        visible = _spread("mask", visible, scores.shape)  # (..., q, k)
        visible = jnp.concatenate([visible, jnp.ones(column, bool)], axis=-1)  # (..., k + 1)
        return normalizer(jnp.concatenate([scores, sinks], axis=-1), mask=visible)[..., :-1]

    weigh.across_queries = needs_all_queries(normalizer)  # pyright: ignore
    return weigh


def prepared(scores: Array, mask: Array | None) -> tuple[Array, Array]:
    """Widens scores to float32 or better, 0 at hidden keys. Returns also the mask of visible keys.

    The mask has the shape of the scores, and is False where a score is -inf.
    """
    scores = _widened(scores)
    visible = scores != -jnp.inf  # (..., k)
    if mask is not None:
        visible &= _spread("mask", as_mask(mask), scores.shape)
    return jnp.where(visible, scores, 0), visible


def _spread(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcasts an array to a shape. Raises a ValueError with its name where it does not fit."""
    return jnp.broadcast_to(broadcastable(name, array, shape), shape)


def _widened(scores: Array) -> Array:
    scores = as_array(scores)
    wide = jnp.issubdtype(scores.dtype, jnp.floating) and jnp.finfo(scores.dtype).bits >= 32
    if not wide and jnp.iscomplexobj(scores):  # of which half would be lost
        raise TypeError(f"expected scores of real numbers, got {scores.dtype}")
    return scores if wide else scores.astype(jnp.float32)


def _checked_temperature(temperature: ArrayLike) -> float | Array:
    number = as_number(temperature)
    if isinstance(number, float) and not number > 0:
        raise ValueError(f"expected a temperature above 0, got {number}")
    return number


def _finite(scores: Array) -> Array:
    """Finds the rows, `(..., 1)`, of `prepared` scores that are free of NaN and +inf."""
    return jnp.isfinite(scores).all(axis=-1, keepdims=True)


def _nan_rows(scores: Array) -> Array:
    """Makes NaN in the rows that are not `_finite`, else 0, in the value and in the gradient."""
    return scores * jnp.where(_finite(scores), 0.0, jnp.nan)  # NaN in the gradient, too


def _shifted(scores: Array, mask: Array) -> Array:
    """Subtracts the largest of the row, which is held fixed; hidden keys are at `FLOOR`."""
    largest = jax.lax.stop_gradient(_largest(jnp.where(mask, scores, -jnp.inf)))  # (..., 1)
    return jnp.where(mask, jnp.maximum(scores - largest, FLOOR), FLOOR)  # (..., k)


def _ordered(values: Array) -> Array:
    """Sorts the values from the largest to the smallest, held fixed."""
    return jax.lax.stop_gradient(jnp.sort(values, axis=-1, descending=True))  # (..., k)


def _ranks(ordered: Array) -> Array:
    """Numbers the values: 1 for the largest, 2 for the next, and so on."""
    ranks = jnp.arange(1, ordered.shape[-1] + 1, dtype=ordered.dtype)  # (k,)
    return jnp.broadcast_to(ranks, ordered.shape)  # (..., k)


def _largest(values: Array) -> Array:
    """Returns the largest value of each row, `(..., 1)`; -inf without keys."""
    return jnp.max(values, axis=-1, keepdims=True, initial=-jnp.inf)


def _size(support: Array, dtype: jnp.dtype) -> Array:
    return jnp.maximum(support.sum(axis=-1, keepdims=True, dtype=dtype), 1)  # (..., 1)


def _mean(values: Array, support: Array) -> Array:
    total = jnp.where(support, values, 0).sum(axis=-1, keepdims=True)  # (..., 1)
    return total / _size(support, values.dtype)


# Monotonic attention: each query attends where the query before it did, or later. A query looks at
# one key after another, from its predecessor's position on. It stops at key `j` with probability
# `p_ij = sigmoid(e_ij)`. A query that runs past the end attends to nothing, and so do all later
# ones. The first query starts at the first key.
#
# The rules above hold, with two exceptions. +inf is a probability of 1. A NaN makes the weights of
# its query NaN, and those of all later queries, which start from them.
#
# Source: Raffel et al. 2017 (arXiv:1704.00784), section 2.


@across_queries
def monotonic_expectation(scores: AllScores, mask: AllMask | None = None) -> AllWeights:
    """Computes the probability that query `i` stops at key `j`; rows sum to at most 1.

        a_ij = p_ij s_ij,   s_ij = (1 - p_i,j-1) s_i,j-1 + a_i-1,j

    (their eq. 8 and 9). An associative scan solves the recurrence over `j` in parallel, without
    the division of their eq. 11. A query passes by a hidden key. A query without a visible key has
    weights 0, and the next query starts where this one did.
    """
    scores, mask = prepared(scores, mask)
    stops = _stop_probabilities(scores, mask)  # (..., q, k)

    def solve(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]  # of s -> p s + a, in turn

    def query(stop: Array, previous: Array) -> Array:
        passed = jnp.concatenate([jnp.ones_like(stop[..., :1]), 1 - stop[..., :-1]], axis=-1)
        _, arrives = jax.lax.associative_scan(solve, (passed, previous), axis=-1)  # (..., k)
        return stop * arrives

    return _over_queries(query, stops, mask)


@across_queries
def monotonic_hard(scores: AllScores, mask: AllMask | None = None) -> AllWeights:
    """Puts all weight on the first key with a score above 0, from the predecessor's position on.

    Without such a key the weights are 0. `monotonic_expectation` gives the same where every
    probability is 0 or 1. This is its form for use after training. The gradient is that of the
    expectation (straight-through).
    """
    scores, mask = prepared(scores, mask)
    # Not by the probability, which is 1/2 already for a score that is small.
    stops = (mask & (scores > 0)).astype(scores.dtype)  # (..., q, k), 0 or 1

    def query(stop: Array, previous: Array) -> Array:
        reached = (stop > 0) & (jnp.cumsum(previous, axis=-1) > 0)  # (..., k)
        return (reached & (jnp.cumsum(reached, axis=-1) == 1)).astype(previous.dtype)  # (..., k)

    chosen = _over_queries(query, stops, mask)  # (..., q, k)
    soft = monotonic_expectation(scores, mask=mask)  # (..., q, k)
    return chosen + (soft - jax.lax.stop_gradient(soft))  # `chosen` forward, `soft` backward


def _stop_probabilities(scores: Array, mask: Array) -> Array:
    """Computes probabilities: 0 at hidden keys, NaN throughout a row of scores with a NaN."""
    unknown = jnp.isnan(scores).any(axis=-1, keepdims=True)  # (..., q, 1)
    return jnp.where(mask, jax.nn.sigmoid(scores), 0) * jnp.where(unknown, jnp.nan, 1.0)


def _over_queries(query: Callable[[Array, Array], Array], stops: Array, mask: Array) -> Array:
    """Scans `query(stops, weights of the query before) -> weights` over the queries.

    A query without a visible key has weights 0 and is skipped.
    """

    def step(previous: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        stop, has_key = inputs  # (..., k), (..., 1)
        weights = query(stop, previous)  # (..., k)
        return jnp.where(has_key, weights, previous), jnp.where(has_key, weights, 0)

    *leading, _, num_keys = stops.shape
    start = jnp.zeros((*leading, num_keys), stops.dtype).at[..., :1].set(1)  # (..., k)
    has_key = mask.any(axis=-1, keepdims=True)  # (..., q, 1)
    inputs = jnp.moveaxis(stops, -2, 0), jnp.moveaxis(has_key, -2, 0)  # (q, ..., k), (q, ..., 1)
    _, weights = jax.lax.scan(step, varying(start, inputs), inputs)  # (q, ..., k)
    return jnp.moveaxis(weights, 0, -2)  # (..., q, k)


def drop(
    weights: Float[Array, "*b q k"],
    rate: float,
    rng: Array | None,
    query_indices: Int[Array, " q"],
    key_indices: Int[Array, " k"],
) -> Float[Array, "*b q k"]:
    """Sets weights to 0 with probability `rate`, and multiplies the others by `1 / (1 - rate)`.

    The indices of queries and keys decide which are dropped, so a block of weights drops the same
    ones as the whole.

    Source: Srivastava et al. 2014, "Dropout", JMLR 15.
    """
    if rate == 0:
        return weights
    assert rng is not None
    bits = positional_bits(rng, weights.shape[:-2], query_indices, key_indices)  # (..., q, k)
    return jnp.where(bits >= jnp.uint32(rate * 2**32), weights / (1 - rate), 0)  # (..., q, k)


def positional_bits(
    rng: Array,
    leading: tuple[int, ...],
    query_indices: Int[Array, " q"],
    key_indices: Int[Array, " k"],
) -> UInt32[Array, "*b q k"]:
    """Draws 32 random bits for each weight.

    They are a hash of the random key, the index among the leading axes, and the two indices. They
    do not depend on the number of queries and keys.
    """
    shape = len(query_indices), len(key_indices)
    pairs = query_indices[:, None], key_indices[None, :]  # (q, 1), (1, k)
    counters = jnp.concatenate([jnp.broadcast_to(indices, shape).ravel() for indices in pairs])
    row_keys = jax.vmap(
        lambda row: jax.random.bits(jax.random.fold_in(rng, row), (2,), jnp.uint32)
    )(jnp.arange(math.prod(leading)))  # (rows, 2)
    bits = jax.vmap(
        lambda row_key: threefry_2x32(row_key, counters.astype(jnp.uint32))[: math.prod(shape)]
    )(row_keys)  # (rows, q k)
    # JAX takes the result of threefry for equal on all devices of a `jax.shard_map`
    return varying(bits, (rng, query_indices, key_indices)).reshape(*leading, *shape)
