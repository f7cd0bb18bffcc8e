"""Data sets of signals."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
from jaxtyping import Array

from flax_attn.data import archive, contents, shapes
from flax_attn.data.raw import Columns, Raw, SplitBy, complete
from flax_attn.data.sets.kinds import Rules, SignalData
from flax_attn.files import expanded, sha256
from flax_attn.schema import Count, FilePath, Fraction, NonNegativeInt


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

    def rules(self, evaluate: Collection[str]) -> Rules:
        return super().rules(evaluate) | {
            "data.subset=0 with data.fresh=True": not (self.fresh and self.subset),
            "no 'train' in config key 'evaluate' with data.fresh=True": (
                not (self.fresh and "train" in evaluate)
            ),
        }

    def load(self, manual_dir: Path | None) -> Raw:
        names = "num_train", "num_test", "valid_fraction", "task", "height_rule"
        splits = shapes.splits(self.seed, **{name: getattr(self, name) for name in names})
        return Raw({name: _rows(examples) for name, examples in jax.device_get(splits).items()})

    def draw(self, key: Array, number: int) -> Columns:
        return _rows(shapes.generate(key, number, task=self.task, height_rule=self.height_rule))


def _rows(examples: shapes.Examples) -> Columns:
    return Columns(examples.inputs, examples.targets, examples.shapes._asdict())


@dataclass(frozen=True, kw_only=True)
class SignalsNPZ(SignalData):
    """The user's own signals, from a `.npz` file.

    The file has the arrays `train_inputs`, `train_targets`, `test_inputs` and `test_targets`, and
    perhaps `valid_inputs` and `valid_targets`. Or it has `inputs` and `targets` alone, which are
    split in three at random. Inputs are `(n, t)` or `(n, t, channels)`. Targets are signals
    `(n, t)`, numbers `(n,)`, or the names of classes `(n,)`.

    Attributes:
        file: the path of the file, FILE.npz.
        target: what each signal has: `signal`, `number` or `classes`.
        valid_fraction: the share of the training signals that validates, where the file has no
            `valid_inputs`; the share of all where they are split in three.
        test_fraction: the share of all that tests, where they are split in three.
        split_by: `input` keeps equal signals in one split.
    """

    file: FilePath
    target: Literal["signal", "number", "classes"] = "signal"
    valid_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1
    split_by: SplitBy = "row"

    def load(self, manual_dir: Path | None) -> Raw:
        path = expanded(self.file)
        splits = {
            name: contents.checked(contents.place(name, self.file), self, *pair)
            for name, pair in archive.read(path, "inputs", "targets").items()
        }
        contents.check_one_shape(splits)
        shares = self.valid_fraction, self.test_fraction
        splits = complete(splits, self.target, *shares, self.seed, self.split_by)
        return Raw(splits, {self.file: sha256(path)})
