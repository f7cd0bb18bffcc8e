"""Normalisation by one mean and one standard deviation."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flax_attn.types import Json, Tree


class Normalization(NamedTuple):
    """`(x - mean) / std` and back."""

    mean: float
    std: float

    @classmethod
    def of(cls, *arrays: Tree) -> "Normalization":
        """Computes the mean and deviation of all elements of all arrays, in double precision."""
        parts = [np.ravel(array) for array in arrays]
        count = sum(len(part) for part in parts)
        mean = sum(part.sum(dtype=np.float64) for part in parts) / count
        squares = sum(np.square(np.subtract(part, mean, dtype=np.float64)).sum() for part in parts)
        return cls(float(mean), float(np.sqrt(squares / count)))

    @classmethod
    def restore(cls, values: Mapping[str, Json]) -> "Normalization":
        """Restores the one that a run keeps."""
        return cls(*(float(values[key]) for key in cls._fields))

    def apply(self, x: Tree) -> Tree:
        return (x - self.mean) / self.std

    def undo(self, x: Tree) -> Tree:
        return x * self.std + self.mean
