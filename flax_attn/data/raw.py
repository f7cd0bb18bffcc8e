"""A data set as it is loaded: splits of inputs and targets in the user's units."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from flax_attn.data.splits import at_random, by_class
from flax_attn.types import UserInput

SPLITS = ("train", "valid", "test")
ALL = "all"  # the name of rows that are yet to be split


class Columns(NamedTuple):
    """A split of a data set. `marks` are arrays for the pictures, by name."""

    inputs: UserInput
    targets: UserInput
    marks: Mapping[str, UserInput] = {}

    def first(self, number: int | None) -> "Columns":
        """Returns the first rows, or all for None."""
        marks = {name: mark[:number] for name, mark in self.marks.items()}
        return Columns(self.inputs[:number], self.targets[:number], marks)

    def take(self, rows: Int[np.ndarray, " m"]) -> "Columns":
        """Returns the rows with these indices."""
        pick = lambda column: (
            column[rows] if isinstance(column, np.ndarray) else [column[i] for i in rows]
        )
        return Columns(pick(self.inputs), pick(self.targets))


class Raw(NamedTuple):
    """What `load` of a data set returns.

    Attributes:
        splits: `train`, `test`, and perhaps `valid`.
        files: SHA-256 sums of the files that were read, by name.
        classes: the names of the classes, where the data set orders them.
    """

    splits: dict[str, Columns]
    files: Mapping[str, str] = {}
    classes: Sequence[str] | None = None


def complete(
    splits: Mapping[str, Columns], target: str, valid: float, test: float, seed: int
) -> dict[str, Columns]:
    """Returns the splits `train`, `valid` and `test`, drawing those that are missing.

    Args:
        splits: the given ones, or `all` for rows that are yet to be split.
        target: of the data set; rows in classes are split alike in every class.
        valid, test: shares of the rows that validate and test; nothing is drawn for 0.
        seed: decides which rows go where.

    Raises a UsageError for a class with fewer rows than there are splits.
    """
    if ALL in splits:
        name, shares = ALL, (valid, test)
    elif "valid" in splits or not valid:
        return dict(splits)
    else:
        name, shares = "train", (valid, 0.0)
    rows = splits[name]
    if target == "classes":
        parts = by_class(rows.targets, shares, seed, has_test=name == "train")
    else:
        drawn = at_random(len(rows.inputs), shares, seed)
        parts = {part: rows for part, rows in zip(("valid", "test", "train"), drawn) if len(rows)}
    others = {part: given for part, given in splits.items() if part != name}
    return others | {part: rows.take(indices) for part, indices in parts.items()}
