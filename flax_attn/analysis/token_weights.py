"""Tokens as they are written, and one weight for each, of any attention on a text."""

import numpy as np

from flax_attn.errors import escaped

LONGEST_TOKEN = 60  # characters
CONTROL = str.maketrans({"\n": "↵", "\t": "→", "\r": "↵"})


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
