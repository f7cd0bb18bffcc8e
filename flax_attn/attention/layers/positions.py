"""Positions with parameters: vectors that are added to inputs, and biases of scores."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from flax_attn.attention.arrays import aligned
from flax_attn.attention.checks import as_integers, known_bound
from flax_attn.attention.positions import positions_from


class LearnedPositions(nn.Module):
    """A learned vector for each position, `(t, features)`, to be added to the inputs.

    Source: Gehring et al. 2017 (arXiv:1705.03122), section 3.1.

    Attributes:
        max_length: positions that there are vectors for.
        features: their width.
        embedding_init: initialiser of the table `(max_length, features)`.
    """

    max_length: int
    features: int
    embedding_init: Initializer = nn.initializers.normal(0.02)

    @nn.compact
    def __call__(self, length: int, offset: ArrayLike = 0) -> Float[Array, "*b t d"]:
        """The vectors of `length` positions from `offset` on, one for all or `(...)`, one a row of the batch.

        Raises:
            ValueError: more positions than there are vectors for. Under `jit`, where offsets are not known, they are NaN instead.
        """
        offset = as_integers("offset", offset)
        first, last = known_bound(jnp.min, offset), known_bound(jnp.max, offset)
        if first < 0 or last + length > self.max_length:
            raise ValueError(
                f"expected at most max_length={self.max_length} positions, got {length} from {first if first < 0 else last} on"
            )
        table = self.param("embedding", self.embedding_init, (self.max_length, self.features))
        positions = positions_from(offset, length)
        # a negative position would count from the end
        positions = jnp.where(positions < 0, self.max_length, positions)
        return table.at[positions].get(mode="fill", fill_value=jnp.nan)


class RelativeBias(nn.Module):
    """A learned bias for each head and bucket of distance, as a function of positions to `(heads, q, k)`.

    Distances up to half the buckets of a side have one each; beyond, buckets widen as the logarithm until `max_distance`.

    Source: Raffel et al. 2020 (arXiv:1910.10683), section 2.1, T5.

    Attributes:
        num_heads: heads, each with its own biases.
        num_buckets: buckets of both sides together; an even number where they are shared.
        max_distance: from here on all distances share the last bucket.
        bidirectional: whether keys after the query have half of the buckets; else they share that of distance 0.
        embedding_init: initialiser of the table `(num_buckets, num_heads)`.
    """

    num_heads: int
    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = True
    embedding_init: Initializer = nn.initializers.normal(1.0)

    @nn.compact
    def __call__(self) -> Callable[[Array, Array], Array]:
        sides = 2 if self.bidirectional else 1
        if (
            self.num_buckets % sides
            or self.num_buckets < 2 * sides
            or self.max_distance <= self.num_buckets // sides // 2
        ):
            raise ValueError(
                f"expected num_buckets to be a multiple of {sides} from {2 * sides} on, and max_distance above "
                f"{self.num_buckets // sides // 2}, got {self.num_buckets} and {self.max_distance}"
            )
        table = self.param("embedding", self.embedding_init, (self.num_buckets, self.num_heads))

        def bias(query_positions: Array, key_positions: Array) -> Array:
            return jnp.moveaxis(
                table[self.bucket(jnp.subtract(*aligned(key_positions, query_positions)))], -1, -3
            )

        return bias

    def bucket(self, distance: Int[Array, "..."]) -> Int[Array, "..."]:
        """The bucket of each distance `key - query`."""
        buckets = self.num_buckets
        if self.bidirectional:
            buckets //= 2
            first, size = jnp.where(distance > 0, buckets, 0), jnp.abs(distance)
        else:
            first, size = 0, jnp.maximum(-distance, 0)
        exact = buckets // 2
        ratio = jnp.log(jnp.maximum(size, 1) / exact) / jnp.log(self.max_distance / exact)
        wide = exact + (ratio * (buckets - exact)).astype(jnp.int32)
        return first + jnp.where(size < exact, size, jnp.minimum(wide, buckets - 1))
