"""Data sets of several series."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets.kinds import Rules, SignalData
from flax_attn.schema import Count, NonNegativeInt, PositiveInt


@dataclass(frozen=True, kw_only=True)
class InputSeries(SignalData):
    """Series made in code. One of them decides the output.

    Attributes:
        relevant: the series that decides the output, from 0.
        length: of each series.
        num_train, num_valid, num_test: examples of each split.
    """

    topic = "series"
    normalized: ClassVar[bool] = False

    num_series: PositiveInt = 8
    relevant: NonNegativeInt = 3
    length: PositiveInt = 20
    num_train: Count = 4_000
    num_valid: Count = 500
    num_test: Count = 500

    def rules(self, evaluate: Collection[str]) -> Rules:
        below = "data.relevant below data.num_series"
        return super().rules(evaluate) | {below: self.relevant < self.num_series}

    def load(self, manual_dir: Path | None) -> Raw:
        counts = {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}
        sizes = {"num_series": self.num_series, "relevant": self.relevant, "length": self.length}
        splits = {}
        for split, (name, number) in enumerate(counts.items()):
            key = jax.random.fold_in(jax.random.key(self.seed), split)  # a key for each split
            splits[name] = input_series(key, number, **sizes)
        return Raw(splits)


def input_series(
    key: Key[Array, ""], num_examples: int, *, num_series: int, relevant: int, length: int
) -> Columns:
    """Draws series of numbers in [-1, 1]. One of them decides the output.

    The output is `y_t = (x_t + x_{t-1}) / 2` of the relevant one, with 0 before its start. The
    others say nothing about it.
    """
    inputs = jax.random.uniform(key, (num_examples, length, num_series), minval=-1.0, maxval=1.0)
    decisive = inputs[..., relevant : relevant + 1]  # (n, t, 1)
    before = jnp.pad(decisive, ((0, 0), (1, 0), (0, 0)))[:, :-1]  # (n, t, 1), 0 at the start
    return Columns(inputs, (decisive + before) / 2)  # (n, t, series), (n, t, 1)
