"""Induction: after `A B ... A`, a model that has seen this once can say `B`.

A head that does it looks from the second `A` to the token after the first. Random strings that come
twice show it, for nothing else in them can be known.

Source: Elhage et al. 2021 ("A Mathematical Framework for Transformer Circuits"); Olsson et al. 2022
(arXiv:2209.11895), whose prefix-matching score this is.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

NUM_STRINGS = 32
LEAST_FOUND = 2.0  # times the uniform weight, below which no head is an induction head


def repeated_strings(
    tokens: Sequence[int], period: int, seed: int, start: Sequence[int] = ()
) -> Int[np.ndarray, "n t"]:
    """Makes strings of `start` and `period` of these tokens in random order, which come twice."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(tokens)[:period] for _ in range(NUM_STRINGS)]  # (period,) each
    return np.stack([np.concatenate([start, order, order]) for order in orders]).astype(np.int32)


def scores(weights: Float[np.ndarray, "n h t t"], period: int) -> Float[np.ndarray, " h"]:
    """Computes the mean weight of each head on the token after the last occurrence of the current.

    The mean is over the second half of strings that `repeated_strings` made. It leaves out the last
    token.
    """
    queries = _second(weights.shape[-1], period)
    return weights[:, :, queries, queries - period + 1].mean(axis=(0, 2))


def is_found(of_heads: Float[np.ndarray, "b h"], length: int) -> bool:
    """Returns whether a head scores well above uniform weights on strings of this length."""
    uniform = float((1 / (_second(length, length // 2) + 1)).mean())
    return float(of_heads.max()) >= LEAST_FOUND * uniform


def _second(length: int, period: int) -> Int[np.ndarray, " q"]:
    return np.arange(length - period, length - 1)
