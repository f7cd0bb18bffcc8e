"""Data sets made in code, with a number for each text or signal."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flax_attn.data import shapes
from flax_attn.data.raw import ALL, Columns, Raw, complete
from flax_attn.data.sets.kinds import DataSet, SignalData, TextData
from flax_attn.schema import Count, Fraction
from flax_attn.types import Options

COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
COLOURS = "", "red ", "blue ", "old ", "small "
THINGS = "boats", "hats", "birds", "books", "shoes", "cups", "cats", "chairs"


def texts_with_counts(seed: int, number: int) -> tuple[list[str], np.ndarray]:
    """Returns texts with up to three numbers as words, and the largest number of each.

    Such as `the old boats and seven red hats and three birds`, whose largest is 7.
    """
    rng = np.random.default_rng(seed)
    pick = lambda words: words[rng.integers(len(words))]
    texts: list[str] = []
    largest: list[int] = []
    for _ in range(number):
        counts = rng.integers(1, len(COUNTS) + 1, size=rng.integers(1, 4)).tolist()
        beginnings = [COUNTS[count - 1] for count in counts] + ["the"] * rng.integers(1, 4)
        parts = [f"{word} {pick(COLOURS)}{pick(THINGS)}" for word in rng.permutation(beginnings)]
        texts.append(" and ".join(parts))
        largest.append(max(counts))
    return texts, np.array(largest, np.float32)


@dataclass(frozen=True, kw_only=True)
class Drawn(DataSet):
    """What data sets with numbers that are made in code have.

    Attributes:
        num_train: examples drawn for training and validation together.
        valid_fraction: the share of them that validates.
        num_test: examples drawn for the test.
    """

    target = "number"

    num_train: Count = 10_000
    valid_fraction: Fraction = 0.1
    num_test: Count = 1_000


@dataclass(frozen=True, kw_only=True)
class LargestCount(Drawn, TextData):
    """Texts made in code, each with the largest of the numbers that it has as words."""

    def load(self, manual_dir: Path | None) -> Raw:
        texts, numbers = texts_with_counts(self.seed, self.num_train + self.num_test)
        test = Columns(texts[self.num_train :], numbers[self.num_train :])
        rows = Columns(texts[: self.num_train], numbers[: self.num_train])
        splits = complete({ALL: rows}, self.target, self.valid_fraction, 0.0, self.seed)
        return Raw(splits | {"test": test})


@dataclass(frozen=True, kw_only=True)
class BoxSums(Drawn, SignalData):
    """Signals of the shapes task, each with the sum of the heights of its two boxes."""

    def load(self, manual_dir: Path | None) -> Raw:
        sizes: Options = {"num_train": self.num_train, "num_test": self.num_test}
        drawn = shapes.splits(self.seed, **sizes, valid_fraction=self.valid_fraction)
        sums = lambda rows: np.asarray(rows.shapes.heights[:, 2:].sum(axis=1))
        pairs = {name: Columns(np.asarray(rows.inputs), sums(rows)) for name, rows in drawn.items()}
        return Raw(pairs)
