"""Monotonic attention: each query attends at the position where the query before it did, or later.

A query looks at one key after another, from its predecessor's position on. It stops at key `j`
with probability `p_ij = sigmoid(e_ij)`. A query that runs past the end attends to nothing, and so
do all later ones. The first query starts at the first key. Both functions are normalisers of
scores `(..., q, k)` that need all queries at once.

The rules of `normalizers` hold, with two exceptions. +inf is a probability of 1. A NaN makes the
weights of its query NaN, and those of all later queries, which start from them.

Source: Raffel et al. 2017 (arXiv:1704.00784), section 2.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.all_queries import across_queries
from flax_attn.attention.arrays import varying
from flax_attn.attention.normalizers import prepared
from flax_attn.attention.types import AllMask, AllScores, AllWeights


@across_queries
def monotonic_expectation(scores: AllScores, mask: AllMask | None = None) -> AllWeights:
    """The probability that query `i` stops at key `j`; rows sum to at most 1.

        a_ij = p_ij s_ij,   s_ij = (1 - p_i,j-1) s_i,j-1 + a_i-1,j

    (their eq. 8 and 9). An associative scan solves the recurrence over `j` in parallel, without
    the division of their eq. 11. A query passes by a hidden key. A query without a visible key has
    weights 0, and the next query starts where this one did.
    """
    scores, mask = prepared(scores, mask)
    stops = _stop_probabilities(scores, mask)

    def solve(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    def query(stop: Array, previous: Array) -> Array:
        passed = jnp.concatenate([jnp.ones_like(stop[..., :1]), 1 - stop[..., :-1]], axis=-1)
        _, arrives = jax.lax.associative_scan(solve, (passed, previous), axis=-1)
        return stop * arrives

    return _over_queries(query, stops, mask)


@across_queries
def monotonic_hard(scores: AllScores, mask: AllMask | None = None) -> AllWeights:
    """All weight on the first key with a score above 0, from the predecessor's position on.

    Without such a key the weights are 0. `monotonic_expectation` gives the same where every
    probability is 0 or 1. This is its form for use after training. The gradient is that of the
    expectation (straight-through).
    """
    scores, mask = prepared(scores, mask)
    # Not by the probability, which is 1/2 already for a score that is small.
    stops = (mask & (scores > 0)).astype(scores.dtype)

    def query(stop: Array, previous: Array) -> Array:
        reached = (stop > 0) & (jnp.cumsum(previous, axis=-1) > 0)
        return (reached & (jnp.cumsum(reached, axis=-1) == 1)).astype(previous.dtype)

    chosen = _over_queries(query, stops, mask)
    soft = monotonic_expectation(scores, mask=mask)
    return chosen + (soft - jax.lax.stop_gradient(soft))


def _stop_probabilities(scores: Array, mask: Array) -> Array:
    """Probabilities of `prepared` scores: 0 at hidden keys, NaN throughout a row with a NaN."""
    unknown = jnp.isnan(scores).any(axis=-1, keepdims=True)
    return jnp.where(mask, jax.nn.sigmoid(scores), 0) * jnp.where(unknown, jnp.nan, 1.0)


def _over_queries(query: Callable[[Array, Array], Array], stops: Array, mask: Array) -> Array:
    """Scans `query(stops, weights of the query before) -> weights` over the queries.

    A query without a visible key has weights 0 and is skipped.
    """

    def step(previous: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        stop, has_key = inputs
        weights = query(stop, previous)
        return jnp.where(has_key, weights, previous), jnp.where(has_key, weights, 0)

    *leading, _, num_keys = stops.shape
    start = jnp.zeros((*leading, num_keys), stops.dtype).at[..., :1].set(1)
    has_key = mask.any(axis=-1, keepdims=True)
    inputs = jnp.moveaxis(stops, -2, 0), jnp.moveaxis(has_key, -2, 0)
    _, weights = jax.lax.scan(step, varying(start, inputs), inputs)
    return jnp.moveaxis(weights, 0, -2)
