"""Whether attention reads from the right position, in the two tasks whose answers are known."""

from collections.abc import Sequence

import numpy as np

from flax_attn.data import dates


def anti_diagonal(alignments: Sequence[np.ndarray]) -> float:
    """The mean weight of the source token that mirrors the target token.

    It is as far from the end as the other is from the start.
    """
    weights = [weights[i, -1 - i] for weights in alignments for i in range(min(weights.shape))]
    return float(np.mean(weights)) if weights else 0.0


def month_from_name(sources: Sequence[str], alignments: Sequence[np.ndarray]) -> float:
    """The mean weight of the two digits of a month on the letters of its name.

    The digits are `mm` of `yyyy-mm-dd`.
    """
    weights = [
        weights[5:7, dates.place_of_month(text)].sum(axis=1)
        for text, weights in zip(sources, alignments)
        if len(weights) >= 7
    ]
    return float(np.mean(weights)) if weights else 0.0
