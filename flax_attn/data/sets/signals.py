"""Data sets of signals."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data import archive, contents, shapes
from flax_attn.data.sets.kinds import (
    SignalData,
    SignalRows,
    Training,
    check_fractions,
    check_validation,
)
from flax_attn.data.splits import at_random
from flax_attn.files import expanded, sha256
from flax_attn.schema import Count, FilePath, Fraction, NonNegativeInt, require


@dataclass(frozen=True, kw_only=True)
class Shapes(SignalData):
    """The shapes task: noisy signals with four shapes, which are to be levelled in pairs.

    Attributes:
        task, height_rule: as in `data.shapes.generate`.
        num_train: examples drawn for training and validation together.
        valid_fraction: the share of them that validates.
        num_test: examples drawn for the test.
        subset: train on the first ones only, this many; 0 for all.
        fresh: whether every step draws new examples.
    """

    task: Literal["by_shape", "by_location"] = "by_shape"
    height_rule: Literal["triangles", "both"] = "triangles"  # as the published generator
    num_train: Count = 25_000
    valid_fraction: Fraction = 0.2
    num_test: Count = 1_000
    subset: NonNegativeInt = 0
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not (self.fresh and self.subset), "data.subset=0 with data.fresh=True")

    def check_training(self, training: Training) -> None:
        require(
            round(self.num_train * self.valid_fraction) or "valid" not in training.evaluate,
            "data.valid_fraction above 0 with 'valid' in config key 'evaluate'",
        )
        require(
            not (self.fresh and "train" in training.evaluate),
            "no 'train' in config key 'evaluate' with data.fresh=True, which sees examples once",
        )
        require(
            training.batch_size <= self.num_used,
            f"batch_size at most the {self.num_used} training examples",
        )

    @property
    def shape(self) -> tuple[int, int]:
        return shapes.LENGTH, 1

    @property
    def num_used(self) -> int:
        """Returns the number of stored examples that a run trains on.

        It is what validation leaves, or the subset of that.
        """
        num_left = self.num_train - round(self.num_train * self.valid_fraction)
        return min(self.subset, num_left) if self.subset else num_left

    @property
    def draws_afresh(self) -> bool:
        return self.fresh

    def load(self, manual_dir: Path | None) -> dict[str, SignalRows]:
        splits = shapes.splits(
            self.seed,
            num_train=self.num_train,
            num_test=self.num_test,
            valid_fraction=self.valid_fraction,
            task=self.task,
            height_rule=self.height_rule,
        )
        return {name: _rows(examples) for name, examples in jax.device_get(splits).items()}

    def draw(self, key: Array, number: int) -> SignalRows:
        return _rows(shapes.generate(key, number, task=self.task, height_rule=self.height_rule))


def _rows(examples: shapes.Examples) -> SignalRows:
    return SignalRows(examples.inputs, examples.targets, examples.shapes._asdict())


@dataclass(frozen=True, kw_only=True)
class SignalsNPZ(SignalData):
    """The user's own signals, from a `.npz` file.

    The file has the arrays `train_inputs`, `train_targets`, `test_inputs` and `test_targets`, and
    perhaps `valid_inputs` and `valid_targets`. Or it has `inputs` and `targets` alone, which are
    split in three at random. Inputs are `(n, t)` or `(n, t, channels)`, targets `(n, t)`.

    Attributes:
        file: the path of the file, FILE.npz.
        valid_fraction: the share of the training signals that validates, where the file has no
            `valid_inputs`; the share of all where they are split in three.
        test_fraction: the share of all that tests, where they are split in three.
    """

    file: FilePath
    valid_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self.valid_fraction, self.test_fraction)

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)

    def load(self, manual_dir: Path | None) -> dict[str, SignalRows]:
        rows = {}
        for name, pair in archive.read(self._path, "inputs", "targets").items():
            rows[name] = SignalRows(*contents.signals(contents.place(name, self.file), *pair), {})
        contents.check_one_shape({name: inputs for name, (inputs, _, _) in rows.items()})
        if contents.ALL in rows:
            number = len(rows[contents.ALL].inputs)
            parts = at_random(number, (self.valid_fraction, self.test_fraction), self.seed)
            rows = _parts(rows[contents.ALL], dict(zip(("valid", "test", "train"), parts)))
        return with_valid(rows, self.valid_fraction, self.seed)

    def files(self) -> dict[str, str]:
        return {self.file: sha256(self._path)}

    @property
    def _path(self) -> Path:
        return expanded(self.file)


def with_valid(
    rows: dict[str, SignalRows], valid_fraction: float, seed: int
) -> dict[str, SignalRows]:
    """Returns the splits. Where there is no `valid`, it is held out of `train` at random."""
    if "valid" in rows:
        return rows
    parts = at_random(len(rows["train"].inputs), (valid_fraction,), seed)
    return rows | _parts(rows["train"], dict(zip(("valid", "train"), parts)))


def _parts(rows: SignalRows, parts: dict[str, np.ndarray]) -> dict[str, SignalRows]:
    return {
        name: SignalRows(rows.inputs[part], rows.targets[part], {}) for name, part in parts.items()
    }
