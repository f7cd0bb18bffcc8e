"""Positional encodings: they tell a layer where in the sequence each element stands.

There are four kinds. `sinusoidal` and the layer `LearnedPositions` are added to the inputs.
`binary_digits` are further features of the inputs. `rotary` turns queries and keys. `alibi` and the
layer `RelativeBias` are added to the scores: they are functions of positions, `(heads, q, k)`, for
`dot_product_attention(bias=...)` and the layers with heads.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from flax_attn.attention.arrays import aligned, as_dtype_of, multiply, with_rank
from flax_attn.attention.checks import as_array, as_floats, as_integers, as_number, as_positive

MAX_PERIOD = 10_000.0


def sinusoidal(
    length: int, features: int, *, max_period: float = MAX_PERIOD, offset: ArrayLike = 0
) -> Float[Array, "*b t d"]:
    """Computes sines and cosines of falling frequency.

    Entry `(t, 2i)` is `sin(t / max_period^(2i/d))`, and entry `(t, 2i+1)` is the cosine.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.5.

    Args:
        length: number of positions.
        features: `d`, an even number.
        max_period: sets the slowest pair. Its period is a little below `2 pi max_period`
            positions.
        offset: of the first position, one for all or `(...)`; in decoding, the number of cached
            tokens.

    Raises:
        ValueError: an odd number of features.
    """
    _check_even(features)
    positions = positions_from(offset, length)  # (..., t)
    frequencies = with_rank(_frequencies(features, max_period), positions.ndim + 1)  # (..., 1, d/2)
    angles = positions[..., None].astype(frequencies.dtype) * frequencies  # (..., t, d/2)
    waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)  # (..., t, d/2, 2)
    return waves.reshape(*positions.shape, features)  # (..., t, d), each sine before its cosine


def binary_digits(length: int, num_digits: int | None = None) -> Float[Array, "t n"]:
    """Computes binary digits of positions, lowest first: entry `(t, i)` is `floor(t / 2^i) mod 2`.

    Args:
        length: number of positions.
        num_digits: digits a position; None for the least number that tells all positions apart,
            7 for a length of 100.
    """
    if num_digits is None:
        num_digits = max(int(length) - 1, 0).bit_length()
    positions = jnp.arange(length)[:, None]  # (t, 1)
    return ((positions >> jnp.arange(num_digits)[None, :]) & 1).astype(jnp.float32)  # (t, n)


def rotary(
    vectors: Float[Array, "*b t d"],
    positions: Int[Array, "*#b t"] | None = None,
    *,
    features: int | None = None,
    max_period: float = MAX_PERIOD,
    frequencies: Sequence[float] | None = None,
) -> Float[Array, "*b t d"]:
    """Turns each pair of features `(2i, 2i+1)` by the angle `t / max_period^(2i/d)`.

    The product of a query and a key that are turned depends on their features and their distance.

    GPT-J and x-transformers turn these pairs, too. GPT-NeoX, Equinox, and Llama, Mistral and Gemma
    of Hugging Face turn the pairs `(i, i + d/2)`. For weights of theirs, put the features of each
    head of queries and keys into our order: `kernel[..., np.arange(d).reshape(2, -1).T.ravel()]`.

    Source: Su et al. 2021 (arXiv:2104.09864), eq. 34; Black et al. 2022 (arXiv:2204.06745), section
    2.1, for a part of the features.

    Args:
        vectors: queries or keys. Those of `dot_product_attention`, `(..., t, heads, d)`, have a
            head axis after the positions: `jnp.swapaxes` moves it before them.
        positions: of the vectors, `(..., t)`; None for 0, 1, 2, ... In decoding they start at the
            number of cached keys.
        features: `d`, the number of features that are turned, the first ones; None for all.
        max_period: sets the slowest pair. Its period is a little below `2 pi max_period`
            positions.
        frequencies: `(d/2,)`, the angle of each pair at position 1 in radians; None for
            `1 / max_period^(2i/d)`. `scaled_frequencies` returns those of longer texts.

    Raises:
        TypeError: vectors that are not of floats.
        ValueError: an odd number of features, more than the vectors have, frequencies of another
            number than pairs, or positions of more axes than the vectors.
    """
    vectors = as_floats("query or key", vectors)
    width = vectors.shape[-1]
    features = width if features is None else features
    _check_even(features, width)
    if positions is None:
        positions = jnp.arange(vectors.shape[-2])  # (t,)
    positions, shape = as_array(positions), vectors.shape[:-1]
    positions = with_rank(positions, len(shape))  # (..., t)
    own = _frequencies(features, max_period) if frequencies is None else frequencies
    angular = as_array(own)
    if angular.shape != (features // 2,):
        raise ValueError(f"expected {features // 2} frequencies, got an array of {angular.shape}")
    angular = with_rank(angular, vectors.ndim)  # (..., 1, d/2)
    angles = positions[..., None].astype(angular.dtype) * angular  # (..., t, d/2)
    cos, sin = jnp.cos(angles), jnp.sin(angles)  # (..., t, d/2)
    even, odd = vectors[..., 0:features:2], vectors[..., 1:features:2]  # (..., t, d/2)
    first = multiply(even, cos) - multiply(odd, sin)  # (..., t, d/2), as in eq. 34
    second = multiply(even, sin) + multiply(odd, cos)  # (..., t, d/2)
    turned = jnp.stack([first, second], axis=-1)  # (..., t, d/2, 2)
    turned = turned.reshape(*shape, features).astype(vectors.dtype)  # (..., t, d)
    return jnp.concatenate([turned, vectors[..., features:]], axis=-1)  # (..., t, width)


def scaled_frequencies(
    features: int,
    factor: float,
    *,
    max_period: float = MAX_PERIOD,
    trained_length: int | None = None,
    slow: float = 1.0,
    fast: float = 4.0,
) -> tuple[float, ...]:
    """Computes frequencies of `rotary` for texts `factor` times as long as those of training.

        w_i = 1 / max_period^(2i/d)
        linear:   w_i / factor
        Llama 3:  w_i (s + (1 - s) / factor),   s = (n_i - slow) / (fast - slow) within [0, 1]

    `n_i = trained_length w_i / (2 pi)` is the number of turns of a pair in a text of training. So
    with `trained_length` pairs that turn `fast` times or more stay as they are, and those that turn
    `slow` times or less are slowed by the whole factor.

    Source: Chen et al. 2023 (arXiv:2306.15595), eq. 4, for `linear`; Llama Team 2024
    (arXiv:2407.21783) and its code for the other.

    Args:
        features: `d`, the number of features that are turned, an even number.
        factor: above 0; 1 changes nothing.
        max_period: as in `rotary`.
        trained_length: the number of positions in training; None for `linear`.
        slow, fast: numbers of turns.

    Returns:
        Numbers `(pairs,)`, the angle of each pair at position 1 in radians.

    Raises:
        ValueError: an odd number of features, a factor or period that is not above 0, or `slow`
            that is not below `fast`.
    """
    _check_even(features)
    times, low, high = as_number(factor), as_number(slow), as_number(fast)
    if not (times > 0 and low < high):
        raise ValueError(
            f"expected a factor above 0 and slow below fast, got {factor}, {slow} and {fast}"
        )
    plain = as_positive("max_period", max_period) ** (-np.arange(0, features, 2) / features)
    share = 0.0
    if trained_length is not None:
        turns = trained_length * plain / (2 * math.pi)  # (d/2,)
        share = np.clip((turns - low) / (high - low), 0, 1)  # (d/2,)
    return tuple((plain * (share + (1 - share) / times)).tolist())  # (d/2,)


def alibi(num_heads: int) -> Callable[[Array, Array], Array]:
    """Makes the bias `-m_h |q - k|` of each head, a function of positions to `(H, q, k)`.

    The slopes are `m_h = 2^(-8h/H)` for `h` from 1 to `H`. For a number of heads that is no power
    of 2 they are those of the power below it, with slopes of the power above it in between.

    Source: Press, Smith & Lewis 2022 (arXiv:2108.12409), section 3.
    """
    below = 2 ** (int(num_heads).bit_length() - 1)
    slopes = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    slopes += [2 ** (-4 * h / below) for h in range(1, 2 * (num_heads - below), 2)]
    column = np.array(slopes)[:, None, None]  # in NumPy, so `bias` closes over no array of JAX

    def bias(query_positions: Array, key_positions: Array) -> Array:
        distance = jnp.abs(jnp.subtract(*aligned(query_positions, key_positions)))  # (..., q, k)
        distance = distance.astype(jnp.float32)
        return -multiply(*aligned(jnp.asarray(column), distance[..., None, :, :]))  # (..., H, q, k)

    return bias


def positions_from(offset: ArrayLike, length: int) -> Int[Array, "*b t"]:
    """Returns the `length` positions from `offset` on, one offset for all or `(...)`."""
    offset = as_integers("offset", offset)
    return offset[..., None] + with_rank(jnp.arange(length), offset.ndim + 1)  # (..., t)


def _frequencies(features: int, max_period: float) -> Float[Array, " d_half"]:
    number = as_positive("max_period", max_period)
    exponents = -jnp.arange(0, features, 2) / features  # (d/2,)
    return as_dtype_of(exponents, number) ** exponents  # (d/2,)


def _check_even(features: int, most: int | None = None) -> None:
    if features % 2 or (most is not None and features > most):
        raise ValueError(f"expected an even number of features up to {most}, got {features}")
