"""Normalisation by one mean and one standard deviation."""

from typing import Any, NamedTuple

import numpy as np


class Normalization(NamedTuple):
    """`(x - mean) / std` and back."""

    mean: float
    std: float

    @classmethod
    def of(cls, *arrays: Any) -> "Normalization":
        """The mean and standard deviation of all elements of all arrays together, in double precision."""
        elements = np.concatenate([np.ravel(np.asarray(array, np.float64)) for array in arrays])
        return cls(float(elements.mean()), float(elements.std()))

    def apply(self, x: Any) -> Any:
        return (x - self.mean) / self.std

    def undo(self, x: Any) -> Any:
        return x * self.std + self.mean
