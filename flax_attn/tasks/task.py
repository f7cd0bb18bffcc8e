"""What a task hands to an experiment."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

Batch = dict[str, Any]


class Task(NamedTuple):
    """Data of a run, and what it decides.

    Attributes:
        train: rows to train on, `inputs` and `targets`; sorted by length where there are tokens.
        splits: rows to be measured on, by split.
        derived: what the data decides and predictions need, as JSON: kept in `config.json`.
        sizes: fields of the model that the data decides.
        files: further files of the run directory, as JSON by name.
        draw: `draw(key)` makes a batch of new examples in every step; None for stored data.
        test: what the examples of the pictures are made of.
    """

    train: Batch
    splits: dict[str, Batch]
    derived: dict[str, Any]
    sizes: dict[str, int]
    files: dict[str, Any]
    draw: Callable[[Any], Batch] | None
    test: Any


class Examples(NamedTuple):
    """What is said of the test at the end of a run.

    Attributes:
        arrays: of some test examples, which the pictures are drawn from.
        metrics: further figures by name, one a seed, or one of all seeds together.
        summary: further entries of `summary.json`.
        texts: further files of the run directory, by name.
    """

    arrays: dict[str, Any]
    metrics: dict[str, list[float]] = {}
    summary: dict[str, Any] = {}
    texts: dict[str, str] = {}


def row_lengths(rows: Batch) -> Int[np.ndarray, " n"] | None:
    """The length of each row, of the longest where it has several sequences; None for rows of one shape."""
    inputs = rows["inputs"]
    found = [np.asarray(array) for key, array in inputs.items() if key.endswith("lengths")] if isinstance(inputs, dict) else []
    return np.max(found, axis=0) if found else None


def by_length(rows: Batch) -> Batch:
    """The rows in ascending order of their lengths."""
    lengths = row_lengths(rows)
    assert lengths is not None
    order = np.argsort(lengths, kind="stable")
    return jax.tree.map(lambda array: array[order], rows)
