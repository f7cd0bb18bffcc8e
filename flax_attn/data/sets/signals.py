"""Data sets of signals."""

from dataclasses import dataclass
from pathlib import Path

import jax
from jaxtyping import Array

from flax_attn.data import shapes
from flax_attn.data.sets.kinds import SignalData, SignalRows, Training
from flax_attn.errors import UsageError
from flax_attn.fields import above_zero, shares, zero_or_above


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
        if self.num_used < training.batch_size:
            raise UsageError(
                f"expected batch_size at most the {self.num_used} training examples, got "
                f"{training.batch_size}"
            )

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
        del manual_dir  # made in code
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
