"""Data sets of several series."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from flax_attn.data.sets.kinds import SeriesData, SeriesRows, Training
from flax_attn.errors import UsageError
from flax_attn.fields import above_zero


@dataclass(frozen=True, kw_only=True)
class InputSeries(SeriesData):
    """Series made in code. One of them decides the output."""

    num_series: int = 8
    relevant: int = 3
    length: int = 20
    num_train: int = 4_000
    num_valid: int = 500
    num_test: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "num_series", "length", "num_train", "num_valid", "num_test")
        if not 0 <= self.relevant < self.num_series:
            raise UsageError(
                f"expected data.relevant from 0 to below data.num_series={self.num_series}, got "
                f"{self.relevant}"
            )

    def check_training(self, training: Training) -> None:
        if self.num_train < training.batch_size:
            raise UsageError(
                f"expected batch_size at most the {self.num_train} training examples, got "
                f"{training.batch_size}"
            )

    def load(self, manual_dir: Path | None) -> dict[str, SeriesRows]:
        counts = {"train": self.num_train, "valid": self.num_valid, "test": self.num_test}
        sizes = {"num_series": self.num_series, "relevant": self.relevant, "length": self.length}
        splits = {}
        for split, (name, number) in enumerate(counts.items()):
            key = jax.random.fold_in(jax.random.key(self.seed), split)
            splits[name] = input_series(key, number, **sizes)
        return splits


def input_series(
    key: Key[Array, ""], num_examples: int, *, num_series: int, relevant: int, length: int
) -> SeriesRows:
    """Draws series of numbers in [-1, 1]. One of them decides the output.

    The output is `y_t = (x_t + x_{t-1}) / 2` of the relevant one, with 0 before its start. The
    others say nothing about it.
    """
    inputs = jax.random.uniform(key, (num_examples, length, num_series), minval=-1.0, maxval=1.0)
    decisive = inputs[..., relevant : relevant + 1]
    before = jnp.pad(decisive, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    return SeriesRows(inputs, (decisive + before) / 2)
