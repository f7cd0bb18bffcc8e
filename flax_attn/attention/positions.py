"""Positional encodings: what tells a layer that sees a set where in the sequence each element stands.

Three kinds: added to the inputs (`sinusoidal`, `binary_digits`, `LearnedPositions`), turned into queries and keys
(`rotary`), and added to the energies (`alibi`, `RelativeBias`), which are functions of positions, `(heads, q, k)`, for
`dot_product_attention(bias=...)` and the modules with heads.
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from flax_attn.attention.masks import aligned, as_integers, known_bound


def sinusoidal(length: int, features: int, *, max_period: float = 10_000.0, offset: ArrayLike = 0) -> Float[Array, "*b t d"]:
    """Sines and cosines of falling frequency: entry `(t, 2i)` is `sin(t / max_period^(2i/d))` and `(t, 2i+1)` its cosine.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.5.

    Args:
        length: number of positions.
        features: `d`, an even number.
        max_period: of the slowest pair.
        offset: of the first position, one for all or `(...)`; in decoding the number of cached tokens.

    Raises:
        ValueError: an odd number of features.
    """
    _check_even("features", features)
    places = _places(length, offset)
    angles = places[..., None] * _frequencies(features, max_period).reshape((1,) * places.ndim + (-1,))
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(*places.shape, features)


def binary_digits(length: int, num_digits: int | None = None) -> Float[Array, "t n"]:
    """The binary digits of each position, lowest first: entry `(t, i)` is `floor(t / 2^i) mod 2`.

    Args:
        length: number of positions.
        num_digits: digits a position; None for as many as tell all positions apart, 7 for a length of 100.
    """
    if num_digits is None:
        num_digits = max(length - 1, 0).bit_length()
    positions = jnp.arange(length)[:, None]
    return ((positions >> jnp.arange(num_digits)[None, :]) & 1).astype(jnp.float32)


def rotary(
    vectors: Float[Array, "*b t d"], positions: Int[Array, "*#b t"] | None = None, *, max_period: float = 10_000.0
) -> Float[Array, "*b t d"]:
    """Turns each pair of features `(2i, 2i+1)` by the angle `t / max_period^(2i/d)`.

    The product of a query and a key so turned depends on their features and on the distance between them alone.

    Source: Su et al. 2021 (arXiv:2104.09864), eq. 34.

    Args:
        vectors: queries or keys, with an even width. Those of `dot_product_attention`, `(..., t, heads, d)`, have a head
            axis after the positions: `jnp.swapaxes` it away and back.
        positions: where they stand; None for 0, 1, 2, ...; in decoding, the number of cached keys onwards.

    Raises:
        ValueError: an odd number of features.
    """
    _check_even("features", vectors.shape[-1])
    if positions is None:
        positions = jnp.arange(vectors.shape[-2])
    positions = positions.reshape((1,) * (vectors.ndim - 1 - positions.ndim) + positions.shape)
    frequencies = _frequencies(vectors.shape[-1], max_period).reshape((1,) * (vectors.ndim - 1) + (-1,))
    angles = positions[..., None] * frequencies  # (..., t, d/2)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(vectors.shape).astype(vectors.dtype)


def alibi(num_heads: int) -> Callable[[Array, Array], Array]:
    """The bias `-m_h |q - k|` with slopes `m_h = 2^(-8h/H)`, `h` from 1 to `H`, as a function of positions to `(H, q, k)`.

    Source: Press, Smith & Lewis 2022 (arXiv:2108.12409), section 3, whose slopes for a number of heads that is not a
    power of 2 are those of the power below it, and between them those of the power above it.

    Raises:
        ValueError: less than one head.
    """
    if num_heads < 1:
        raise ValueError(f"expected num_heads of 1 or above, got {num_heads}")
    below = 2 ** (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    slopes += [2 ** (-4 * h / below) for h in range(1, 2 * (num_heads - below), 2)]
    column = jnp.array(slopes)[:, None, None]

    def bias(query_positions: Array, key_positions: Array) -> Array:
        distance = jnp.abs(jnp.subtract(*aligned(query_positions, key_positions))).astype(jnp.float32)
        return -jnp.multiply(*aligned(column, distance[..., None, :, :]))

    return bias


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
        places = _places(length, offset)
        places = jnp.where(places < 0, self.max_length, places)  # which would count from the end
        return table.at[places].get(mode="fill", fill_value=jnp.nan)


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
        if self.num_buckets % sides or self.num_buckets < 2 * sides or self.max_distance <= self.num_buckets // sides // 2:
            raise ValueError(
                f"expected num_buckets to be a multiple of {sides} from {2 * sides} on, and max_distance above "
                f"{self.num_buckets // sides // 2}, got {self.num_buckets} and {self.max_distance}"
            )
        table = self.param("embedding", self.embedding_init, (self.num_buckets, self.num_heads))

        def bias(query_positions: Array, key_positions: Array) -> Array:
            return jnp.moveaxis(table[self.bucket(jnp.subtract(*aligned(key_positions, query_positions)))], -1, -3)

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


def _places(length: int, offset: ArrayLike) -> Int[Array, "*b t"]:
    offset = as_integers("offset", offset)
    return offset[..., None] + jnp.arange(length).reshape((1,) * offset.ndim + (-1,))


def _frequencies(features: int, max_period: float) -> Float[Array, " d_half"]:
    return max_period ** (-jnp.arange(0, features, 2) / features)


def _check_even(name: str, number: int) -> None:
    if number % 2:
        raise ValueError(f"expected an even number of {name}, got {number}")
