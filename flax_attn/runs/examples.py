"""The arrays of `examples.npz`: some test examples, from which pictures are drawn."""

from collections.abc import Mapping

import numpy as np

ATTENTION = "attention/"
LARGEST = 2**28  # bytes of all arrays
MOST_ATTENTIONS = 1_000

Arrays = Mapping[str, np.ndarray]


def fitting(arrays: Arrays) -> dict[str, np.ndarray]:
    """Returns the arrays without the largest attention weights, if they are too many or large."""
    fitting = dict(arrays)
    weights = [name for name in fitting if name.startswith(ATTENTION)]
    weights.sort(key=lambda name: fitting[name].nbytes)
    too_large = lambda: sum(array.nbytes for array in fitting.values()) > LARGEST
    while weights and (len(weights) > MOST_ATTENTIONS or too_large()):
        del fitting[weights.pop()]
    return fitting
