"""Tokens as they are written, and one weight for each, of any attention on a text."""

import numpy as np

from flax_attn.errors import escaped

LONGEST_TOKEN = 60  # characters
CONTROL = str.maketrans({"\n": "↵", "\t": "→", "\r": "↵"})


def of_hops(name: str) -> bool:
    """Whether attention of this name is `(hops, k)`, and not of queries `(q, k)`."""
    return name.startswith("hops")


def over_tokens(name: str, weights: np.ndarray, length: int) -> np.ndarray:
    """One weight a token: as they are, or the mean over hops, or over queries but padding.

    Of several heads `(heads, q, k)` it is their mean.
    """
    if weights.ndim == 3:
        weights = weights.mean(axis=0)
    if weights.ndim == 1:
        return weights[:length]
    return (weights if of_hops(name) else weights[:length]).mean(axis=0)[:length]


def printable(token: str) -> str:
    """A token as it is written: on one line, and cut where it is very long."""
    token = escaped(token.translate(CONTROL))
    return token if len(token) <= LONGEST_TOKEN else f"{token[: LONGEST_TOKEN - 1]}…"
