"""Dropout of attention weights that does not depend on how the work is cut up."""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Int, UInt32


def drop(
    weights: Float[Array, "*b q k"],
    rate: float,
    rng: Array | None,
    query_positions: Int[Array, "q 1"],
    key_positions: Int[Array, "1 k"],
) -> Float[Array, "*b q k"]:
    """Drops a share of the weights and scales the others by `1 / (1 - rate)`.

    Args:
        weights: the whole, or the block of them whose positions are given; a block loses what the whole would lose there.
        rate: share of the weights that are dropped.
        rng: None with a rate of 0.
    """
    if rate == 0:
        return weights
    assert rng is not None
    bits = positional_bits(rng, weights.shape[:-2], query_positions, key_positions)
    return jnp.where(bits >= jnp.uint32(rate * 2**32), weights / (1 - rate), 0)


def positional_bits(
    rng: Array,
    leading: tuple[int, ...],
    query_positions: Int[Array, "q 1"],
    key_positions: Int[Array, "1 k"],
) -> UInt32[Array, "*b q k"]:
    """32 random bits for each weight, a hash of the key, the leading index and the two positions alone, whatever stands around it."""
    shape = query_positions.shape[0], key_positions.shape[1]
    counts = jnp.concatenate(
        [
            jnp.broadcast_to(positions, shape).ravel()
            for positions in (query_positions, key_positions)
        ]
    )
    words = jax.vmap(lambda row: jax.random.bits(jax.random.fold_in(rng, row), (2,), jnp.uint32))(
        jnp.arange(math.prod(leading))
    )
    bits = jax.vmap(
        lambda row_words: threefry_2x32(row_words, counts.astype(jnp.uint32))[: math.prod(shape)]
    )(words)
    return bits.reshape(*leading, *shape)
