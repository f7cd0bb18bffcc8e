"""Splits of examples in classes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def stratified(
    labels: Int[np.ndarray, " n"], shares: Sequence[float], seed: int
) -> list[Int[np.ndarray, " m"]]:
    """The rows of each part, in ascending order.

    Parts have the given shares of all rows, and as nearly as can be of each class.

    Sizes are rounded so that the parts add up to all rows, in total and for each class.

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
