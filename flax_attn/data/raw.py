"""A data set as it is loaded: splits of inputs and targets in the user's units."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from flax_attn.data.text import encode_labels
from flax_attn.errors import shortened
from flax_attn.schema import require
from flax_attn.types import UserInput

SPLITS = ("train", "valid", "test")
ALL = "all"  # the name of rows that are yet to be split
SplitBy = Literal["row", "input"]  # which of a user's rows stay together where they are split


class Columns(NamedTuple):
    """A split of a data set. `marks` are arrays for the pictures, by name."""

    inputs: UserInput
    targets: UserInput
    marks: Mapping[str, UserInput] = {}

    def first(self, number: int) -> "Columns":
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
        notes: what happened to the data on the way, for the user.
    """

    splits: dict[str, Columns]
    files: Mapping[str, str] = {}
    classes: Sequence[str] | None = None
    notes: Sequence[str] = ()


def complete(
    splits: Mapping[str, Columns],
    target: str,
    valid: float,
    test: float,
    seed: int,
    split_by: SplitBy = "row",
) -> dict[str, Columns]:
    """Returns the splits `train`, `valid` and `test`, drawing those that are missing.

    The given ones may be `all`, rows that are yet to be split. `valid` and `test` are shares of the
    rows; nothing is drawn for 0. Classes are split alike in every class. `split_by` `input` keeps
    rows with equal inputs in one split.
    """
    if ALL in splits:
        name, shares = ALL, (valid, test)
    elif "valid" in splits or not valid:
        return dict(splits)
    else:
        name, shares = "train", (valid, 0.0)
    rows = splits[name]
    keys = identified(rows.inputs) if split_by == "input" else range(len(rows.inputs))
    groups: dict[object, list[int]] = {}  # rows that stay together
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    together = list(groups.values())
    if target == "classes":
        labels = [rows.targets[group[0]] for group in together]
        parts = by_class(labels, shares, seed, has_test=name == "train")
    else:
        drawn = at_random(len(together), shares, seed)
        parts = {part: some for part, some in zip(("valid", "test", "train"), drawn) if len(some)}
    others = {part: given for part, given in splits.items() if part != name}
    indices = {
        part: np.sort(np.concatenate([together[i] for i in some])) for part, some in parts.items()
    }
    return others | {part: rows.take(some) for part, some in indices.items()}


def joined(splits: Mapping[str, Columns]) -> Columns:
    """Joins the rows of all splits, without marks."""
    columns = zip(*(split[:2] for split in splits.values()))
    inputs, targets = (
        [*itertools.chain(*parts)] if isinstance(parts[0], list) else np.concatenate(parts)
        for parts in columns
    )
    return Columns(inputs, targets)


def identified(inputs: UserInput) -> list[str | bytes]:
    """Returns a key of each input, alike for those that are equal."""
    rows = inputs if isinstance(inputs, list) else np.asarray(inputs)
    return [row if isinstance(row, str) else row.tobytes() for row in rows]


def at_random(number: int, shares: Sequence[float], seed: int) -> list[Int[np.ndarray, " m"]]:
    """Returns rows of parts with these shares of all, and last those left, in ascending order."""
    order = np.random.default_rng(seed).permutation(number)
    ends = np.cumsum([round(number * share) for share in shares])
    return [np.sort(part) for part in np.split(order, ends)]


def by_class(
    labels: Sequence[str], fractions: tuple[float, float], seed: int, has_test: bool = False
) -> dict[str, Int[np.ndarray, " m"]]:
    """Returns the rows of the splits `train`, `valid` and `test`, alike in every class.

    The fractions validate and test; there is no `valid` for 0, and no `test` where there `has_test`
    already.
    """
    valid, test = fractions[0], 0.0 if has_test else fractions[1]
    shares = {"train": 1 - valid - test}
    shares |= {"valid": valid} if valid else {}
    shares |= {} if has_test else {"test": test}
    counts = Counter(labels)
    expected = f"labels that repeat, got {len(counts):,} different values in {len(labels):,} rows"
    require(len(counts) <= max(2, len(labels) // 2), expected)
    for label, count in counts.items():
        each = f"{len(shares)} rows of every class, one for each split"
        require(count >= len(shares), f"at least {each}, got {count} of '{shortened(label)}'")
    numbers = encode_labels(labels, sorted(set(labels)))
    return dict(zip(shares, stratified(numbers, list(shares.values()), seed)))


def stratified(
    labels: Int[np.ndarray, " n"], shares: Sequence[float], seed: int
) -> list[Int[np.ndarray, " m"]]:
    """Returns the rows of each part, in ascending order.

    Parts have the given shares, which sum to 1, of all rows, and as nearly as can be of each class.
    Sizes are rounded so that the parts add up to all rows, in total and for each class.
    """
    rng = np.random.default_rng(seed)
    parts = [[] for _ in shares]
    bounds, before = np.cumsum(shares), 0
    cuts_before = np.zeros(len(shares), int)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        before += len(rows)
        # counted over this class and those before it, so that rounding never adds up
        ends = np.maximum.accumulate(
            np.clip(np.rint(bounds * before).astype(int) - cuts_before, 0, len(rows))
        )
        for part, first, last in zip(parts, [0, *ends], ends):
            part.append(rows[first:last])
        cuts_before = cuts_before + ends
    return [np.sort(np.concatenate(part)) for part in parts]
