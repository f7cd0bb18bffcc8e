"""Positional encodings: what tells a layer that sees a set where in the sequence each element stands."""

import jax.numpy as jnp
from jaxtyping import Array, Float


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
