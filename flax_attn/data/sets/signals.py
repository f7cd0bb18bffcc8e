"""Data sets of signals."""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array

from flax_attn.data import archive, contents, shapes
from flax_attn.data.sets.kinds import (
    SignalData,
    SignalRows,
    Training,
    check_fractions,
    check_parted,
    check_validation,
)
from flax_attn.data.splits import at_random
from flax_attn.errors import UsageError
from flax_attn.fields import above_zero, shares, zero_or_above
from flax_attn.files import expanded, sha256


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

    task: str = "by_shape"
    height_rule: str = "triangles"
    num_train: int = 25_000
    valid_fraction: float = 0.2
    num_test: int = 1_000
    subset: int = 0
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero(self, "num_train", "num_test")
        zero_or_above(self, "subset")
        shares(self, "valid_fraction")
        if max(self.num_train, self.num_test) > shapes.MAX_EXAMPLES:
            raise UsageError(
                f"expected data.num_train and data.num_test of at most {shapes.MAX_EXAMPLES:,}"
            )
        if self.fresh and self.subset:
            raise UsageError(
                f"expected data.subset=0 with data.fresh=True, got {self.subset}; fresh data has "
                f"no subset"
            )
        try:
            shapes.check_names(self.task, self.height_rule)
        except ValueError as error:
            raise UsageError(f"config keys data.task, data.height_rule: {error}") from error

    def check_training(self, training: Training) -> None:
        if training.keep_best and round(self.num_train * self.valid_fraction) == 0:
            raise UsageError(
                "expected validation examples for keep_best=True; raise data.valid_fraction or "
                "set keep_best=False"
            )
        if self.fresh and "train" in training.evaluate:
            raise UsageError(
                "expected no 'train' in config key 'evaluate' with data.fresh=True, where every "
                "example is seen once"
            )
        if not self.num_used:
            raise UsageError(
                f"expected training examples, got none of data.num_train={self.num_train}; lower "
                f"data.valid_fraction={self.valid_fraction}"
            )
        if self.num_used < training.batch_size:
            raise UsageError(
                f"expected batch_size at most the {self.num_used} training examples, got "
                f"{training.batch_size}"
            )

    def idle(self) -> dict[str, str]:
        return {"height_rule": "data.task=by_shape"} if self.task == "by_location" else {}

    @property
    def shape(self) -> tuple[int, int]:
        return shapes.LENGTH, 1

    @property
    def num_used(self) -> int:
        """The number of stored examples that a run trains on.

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
        file: the path of the file.
        valid_fraction: the share of the training signals that validates, where the file has no
            `valid_inputs`; the share of all where they are split in three.
        test_fraction: the share of all that tests, where they are split in three.
    """

    file: str
    valid_fraction: float = 0.1
    test_fraction: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self.valid_fraction, self.test_fraction)
        if not self.file:
            raise UsageError("expected --data.file=FILE.npz, with the arrays inputs and targets")

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)

    def load(self, manual_dir: Path | None) -> dict[str, SignalRows]:
        rows = {}
        for name, pair in archive.read(self._path, "inputs", "targets").items():
            rows[name] = SignalRows(*contents.signals(contents.place(name, self.file), *pair), {})
        contents.check_one_shape({name: inputs for name, (inputs, _, _) in rows.items()})
        check_parted(self, rows, self.file)
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
    """The splits. Where there is no `valid`, it is held out of `train` at random."""
    if "valid" in rows:
        return rows
    parts = at_random(len(rows["train"].inputs), (valid_fraction,), seed)
    return rows | _parts(rows["train"], dict(zip(("valid", "train"), parts)))


def _parts(rows: SignalRows, parts: dict[str, np.ndarray]) -> dict[str, SignalRows]:
    return {
        name: SignalRows(rows.inputs[part], rows.targets[part], {}) for name, part in parts.items()
    }
