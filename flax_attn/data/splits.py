"""Splits of examples at random, and alike in every class."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from flax_attn.data.text import encode_labels
from flax_attn.errors import shortened
from flax_attn.schema import require


def at_random(number: int, shares: Sequence[float], seed: int) -> list[Int[np.ndarray, " m"]]:
    """Returns rows of parts with these shares of all, and last those left, in ascending order."""
    order = np.random.default_rng(seed).permutation(number)
    ends = np.cumsum([round(number * share) for share in shares])
    return [np.sort(part) for part in np.split(order, ends)]


def by_class(
    labels: Sequence[str], fractions: tuple[float, float], seed: int, has_test: bool = False
) -> dict[str, Int[np.ndarray, " m"]]:
    """Returns the rows of the splits `train`, `valid` and `test`, alike in every class.

    Args:
        labels: the class of each row.
        fractions: shares that validate and test; there is no `valid` where its share is 0.
        seed: decides which rows go where.
        has_test: whether there is a test already; then none is split off.

    Raises a UsageError for a class with fewer rows than there are splits.
    """
    valid, test = fractions[0], 0.0 if has_test else fractions[1]
    shares = {"train": 1 - valid - test}
    shares |= {"valid": valid} if valid else {}
    shares |= {} if has_test else {"test": test}
    for label, count in Counter(labels).items():
        each = f"{len(shares)} rows of every class, one for each split"
        require(count >= len(shares), f"at least {each}, got {count} of '{shortened(label)}'")
    numbers = encode_labels(labels, sorted(set(labels)))
    return dict(zip(shares, stratified(numbers, list(shares.values()), seed)))


def stratified(
    labels: Int[np.ndarray, " n"], shares: Sequence[float], seed: int
) -> list[Int[np.ndarray, " m"]]:
    """Returns the rows of each part, in ascending order.

    Parts have the given shares of all rows, and as nearly as can be of each class. Sizes are
    rounded so that the parts add up to all rows, in total and for each class.

    Args:
        labels: the class of each row.
        shares: of the parts; they sum to 1.
        seed: decides which rows go where.
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
