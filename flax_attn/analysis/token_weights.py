"""One weight a token, of any attention on a text."""

import numpy as np


def of_hops(name: str) -> bool:
    """Whether attention of this name is `(hops, k)`, and not of queries `(q, k)`."""
    return name.startswith("hops")


def over_tokens(name: str, weights: np.ndarray, length: int) -> np.ndarray:
    """One weight a token: as they are, or the mean over hops, or over queries but padding."""
    if weights.ndim == 1:
        return weights[:length]
    return (weights if of_hops(name) else weights[:length]).mean(axis=0)[:length]
