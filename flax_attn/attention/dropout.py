"""Dropout of attention weights that does not depend on how the work is cut up."""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Key


def check_dropout(rate: float, rng: Key[Array, ""] | None) -> None:
    """Raises a ValueError for a rate outside [0, 1), or for dropout without a key."""
    if not 0 <= rate < 1:
        raise ValueError(f"expected dropout_rate in [0, 1), got {rate}")
    if rate > 0 and rng is None:
        raise ValueError(f"expected dropout_rng with dropout_rate={rate}, got None; pass a key or dropout_rate=0.0")


def drop(
    weights: Float[Array, "*b q k"],
    rate: float,
    rng: Array | None,
    query_positions: Int[Array, "q 1"],
    key_positions: Int[Array, "1 k"],
    num_queries: ArrayLike,
) -> Float[Array, "*b q k"]:
    """Drops a share of the weights and scales the others by `1 / (1 - rate)`.

    Whether a weight is dropped is decided by a hash of the key `rng`, its leading index and its two positions, so a block
    of the weights loses what the whole would lose there.

    Args:
        weights: the whole, or the block of them whose positions are given.
        rate: share of the weights that are dropped.
        rng: None with a rate of 0.
        num_queries: of the whole.
    """
    if rate == 0:
        return weights
    assert rng is not None
    leading, shape = weights.shape[:-2], weights.shape
    first_row = jnp.arange(math.prod(leading)).reshape(*leading, 1, 1) * num_queries
    rows = jnp.broadcast_to(first_row + query_positions.reshape((1,) * len(leading) + query_positions.shape), shape)
    columns = jnp.broadcast_to(key_positions, shape)
    counts = jnp.concatenate([rows.ravel(), columns.ravel()]).astype(jnp.uint32)
    words = threefry_2x32(jax.random.bits(rng, (2,)), counts)[: rows.size].reshape(shape)
    return jnp.where(words >= jnp.uint32(rate * 2**32), weights / (1 - rate), 0)
