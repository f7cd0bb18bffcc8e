"""Tokens as they are written, and one weight for each, of any attention on a text."""

import numpy as np

from flax_attn.errors import escaped

LONGEST_TOKEN = 60  # characters
ROUNDING, TINY = 0.01, 1e-6  # errors of a weight of bfloat16 above 1, and of any below 0
CONTROL = str.maketrans({"\n": "↵", "\t": "→", "\r": "↵"})


def are_negative(weights: np.ndarray) -> bool:
    """Returns whether one of some weights is below 0, as of attention without softmax."""
    return bool((weights < -TINY).any())


def are_shares(weights: np.ndarray) -> bool:
    """Returns whether all weights are from 0 to 1, as those of a normaliser. NaN is ignored."""
    return not (are_negative(weights) or (weights > 1 + ROUNDING).any())


def of_hops(name: str) -> bool:
    """Returns whether attention of this name is `(hops, k)` rather than `(q, k)`."""
    return name.startswith("hops")


def over_tokens(name: str, weights: np.ndarray, length: int) -> np.ndarray:
    """Returns one weight a token: the mean over heads, and over hops or unpadded queries."""
    if weights.ndim == 3:
        weights = weights.mean(axis=0)
    if weights.ndim == 1:
        return weights[:length]
    return (weights if of_hops(name) else weights[:length]).mean(axis=0)[:length]


def printable(token: str) -> str:
    """Returns a token on one line, cut where it is very long."""
    token = escaped(token.translate(CONTROL))
    return token if len(token) <= LONGEST_TOKEN else f"{token[: LONGEST_TOKEN - 1]}…"
