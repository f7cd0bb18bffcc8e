"""Dropout of attention weights. It drops the same weights, all at once and block by block."""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Int, UInt32

from flax_attn.attention.arrays import varying


def drop(
    weights: Float[Array, "*b q k"],
    rate: float,
    rng: Array | None,
    query_indices: Int[Array, "q 1"],
    key_indices: Int[Array, "1 k"],
) -> Float[Array, "*b q k"]:
    """Sets weights to 0 with probability `rate`, and multiplies the others by `1 / (1 - rate)`.

    Source: Srivastava et al. 2014, "Dropout", JMLR 15.

    Args:
        weights: all weights, or those of a block of queries and keys.
        rate: probability that a weight is dropped, in [0, 1).
        rng: random key; None with a rate of 0.
        query_indices, key_indices: indices of the queries and keys of these weights. They
            decide which weights are dropped, so a block drops the same ones as the whole.
    """
    if rate == 0:
        return weights
    assert rng is not None
    bits = positional_bits(rng, weights.shape[:-2], query_indices, key_indices)
    return jnp.where(bits >= jnp.uint32(rate * 2**32), weights / (1 - rate), 0)


def positional_bits(
    rng: Array,
    leading: tuple[int, ...],
    query_indices: Int[Array, "q 1"],
    key_indices: Int[Array, "1 k"],
) -> UInt32[Array, "*b q k"]:
    """32 random bits for each weight.

    They are a hash of the random key, the index among the leading axes, and the two indices. They
    do not depend on the number of queries and keys.
    """
    shape = query_indices.shape[0], key_indices.shape[1]
    counters = jnp.concatenate(
        [jnp.broadcast_to(indices, shape).ravel() for indices in (query_indices, key_indices)]
    )
    row_keys = jax.vmap(
        lambda row: jax.random.bits(jax.random.fold_in(rng, row), (2,), jnp.uint32)
    )(jnp.arange(math.prod(leading)))
    bits = jax.vmap(
        lambda row_key: threefry_2x32(row_key, counters.astype(jnp.uint32))[: math.prod(shape)]
    )(row_keys)
    # JAX takes the result of threefry for equal on all devices of a `jax.shard_map`
    return varying(bits, (rng, query_indices, key_indices)).reshape(*leading, *shape)
