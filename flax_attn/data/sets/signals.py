"""Data sets of signals."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
from jaxtyping import Array

from flax_attn.data import archive, contents, shapes, signal_tables
from flax_attn.data.raw import ALL, Columns, Raw
from flax_attn.data.sets.kinds import Rules, SignalData
from flax_attn.data.sets.own import Given, OwnData
from flax_attn.errors import UsageError
from flax_attn.files import expanded, sha256
from flax_attn.schema import Count, Fraction, NonNegativeInt, require


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
class SignalFiles(OwnData, SignalData):
    """The user's own signals, from a `.npz` file or a table.

    A `.npz` file has the arrays `train_inputs`, `train_targets`, `test_inputs` and `test_targets`,
    and perhaps `valid_inputs` and `valid_targets`. Or it has `inputs` and `targets` alone, which
    are split in three. Inputs are `(n, t)` or `(n, t, channels)`, with NaN after the end of those
    that are shorter. Targets are signals `(n, t)`, numbers `(n,)`, or the names of classes `(n,)`.

    A table has a row for each signal, or a row for each point in time: `data.signal_tables.read`
    says how it is read. It has no targets that are signals.

    Attributes:
        target: what each signal has: `signal`, `number` or `classes`.
        label_column: of a table, the column of classes or numbers, by name or number from 1.
        id_column, time_column: of a table with a row for each point in time, the columns that say
            of which signal and when. A table without both has a row for each signal.
    """

    target: Literal["signal", "number", "classes"] = "signal"
    label_column: str = "label"
    id_column: str = "id"
    time_column: str = "time"

    def given(self, name: str) -> Given:
        path = expanded(name)
        if path.suffix.lower() in signal_tables.ENDINGS:
            splits = {ALL: self.in_table(path)}
        else:
            arrays = archive.read(path, "inputs", "targets")
            splits = {
                split: contents.checked(contents.place(split, name), self, *pair)
                for split, pair in arrays.items()
            }
            contents.check_one_shape(splits)
        return Given(splits, sha256(path))

    def in_table(self, path: Path) -> Columns:
        """Reads signals with their targets from a table."""
        is_signal = self.target == "signal"
        require(not is_signal, f"classes or numbers as data.target for a table, {path}")
        columns = self.label_column, self.id_column, self.time_column
        signals, cells = signal_tables.read(path, *columns)
        if cells is None:
            raise UsageError(
                f"no column '{self.label_column}' in {path}; name it by data.label_column"
            )
        targets = signal_tables.numbers_of(path, cells) if self.target == "number" else cells
        return contents.checked(str(path), self, signals, targets)
