"""Data made in code, whose answers are known."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from flax_attn.data.pairs import Pair

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Series(NamedTuple):
    """Input series and the output that one of them decides."""

    inputs: Float[Array, "n t series"]
    targets: Float[Array, "n t 1"]


def input_series(
    key: Key[Array, ""],
    num_examples: int,
    *,
    num_series: int = 8,
    relevant: int = 3,
    length: int = 20,
) -> Series:
    """Series of numbers in [-1, 1]. One of them decides the output.

    The output is `y_t = (x_t + x_{t-1}) / 2` of the relevant one, with 0 before its start.

    The others say nothing about it.
    """
    inputs = jax.random.uniform(key, (num_examples, length, num_series), minval=-1.0, maxval=1.0)
    decisive = inputs[..., relevant : relevant + 1]
    before = jnp.pad(decisive, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    return Series(inputs, (decisive + before) / 2)


def reversed_letters(
    seed: int, num_examples: int, *, min_length: int = 3, max_length: int = 12
) -> list[Pair]:
    """Letters with spaces between, and the same in reverse: `d a f` becomes `f a d`."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(min_length, max_length + 1, size=num_examples)
    sources = [
        " ".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=length)) for length in lengths
    ]
    return [Pair(source, source[::-1]) for source in sources]
