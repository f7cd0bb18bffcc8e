"""Monotonic attention: each query attends at the place of the one before it or later.

From its predecessor's place on, a query looks at one key after another and stops at key `j` with probability
`p_ij = sigmoid(e_ij)`; one that runs past the end attends to nothing, and so do all that follow. Both functions are
normalisers that need all queries at once, `(..., q, k)`; the first query starts at the first key.

Source: Raffel et al. 2017 (arXiv:1704.00784), section 2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from flax_attn.attention.normalizers import across_queries

Scores = Float[Array, "*b q k"]
Mask = Bool[Array, "*#b #q #k"]
Weights = Float[Array, "*b q k"]


@across_queries
def monotonic_expectation(scores: Scores, mask: Mask | None = None) -> Weights:
    """The probability that query `i` stops at key `j`; differentiable, rows sum to at most 1.

        a_ij = p_ij s_ij,   s_ij = (1 - p_i,j-1) s_i,j-1 + a_i-1,j

    (their eq. 8 and 9). The recurrence over `j` is solved by an associative scan, in parallel and without the division
    of their eq. 11. A key that is masked is passed by; a query with no key allowed gets zeros and moves nothing.
    """
    stops, mask = _stop_probabilities(scores, mask)

    def solve(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
        return first[0] * second[0], second[0] * first[1] + second[1]

    def query(previous: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        stop, allowed = inputs
        passed = jnp.concatenate([jnp.ones_like(stop[..., :1]), 1 - stop[..., :-1]], axis=-1)
        _, arrives = jax.lax.associative_scan(solve, (passed, previous), axis=-1)
        weights = stop * arrives
        return jnp.where(allowed.any(axis=-1, keepdims=True), weights, previous), weights

    return _over_queries(query, stops, mask)


@across_queries
def monotonic_hard(scores: Scores, mask: Mask | None = None) -> Weights:
    """All weight on the first key, from the predecessor's place on, whose score is above 0; nothing where there is none.

    What `monotonic_expectation` becomes when every probability is 0 or 1, as when it is used after training. Backward it
    is the expectation (straight-through).
    """
    allowed = jnp.broadcast_to(True if mask is None else mask, scores.shape)
    wide = jnp.promote_types(scores.dtype, jnp.float32)
    stops = (allowed & (scores > 0)).astype(
        wide
    )  # not by the probability, which is 1/2 already for a score that is small

    def query(previous: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        stop, allowed = inputs
        stop = (stop > 0) & (jnp.cumsum(previous, axis=-1) > 0)
        weights = (stop & (jnp.cumsum(stop, axis=-1) == 1)).astype(previous.dtype)
        return jnp.where(allowed.any(axis=-1, keepdims=True), weights, previous), weights

    chosen = _over_queries(query, stops, allowed)
    soft = monotonic_expectation(scores, mask)
    return chosen + (soft - jax.lax.stop_gradient(soft))


def _stop_probabilities(scores: Array, mask: Array | None) -> tuple[Array, Array]:
    """Probabilities that are 0 where the mask is False, and the mask at full size."""
    mask = jnp.broadcast_to(True if mask is None else mask, scores.shape)
    scores = jnp.where(mask, scores.astype(jnp.promote_types(scores.dtype, jnp.float32)), 0)
    return jnp.where(mask, jax.nn.sigmoid(scores), 0), mask


def _over_queries(query, stops: Array, mask: Array) -> Array:
    """Scans `query(previous weights, (stops, mask)) -> (weights to go on from, weights)` over the axis of the queries."""
    start = jnp.zeros_like(stops[..., 0, :]).at[..., 0].set(1)
    _, weights = jax.lax.scan(query, start, (jnp.moveaxis(stops, -2, 0), jnp.moveaxis(mask, -2, 0)))
    return jnp.moveaxis(weights, 0, -2)
