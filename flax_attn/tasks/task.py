"""What a task hands to an experiment."""

from collections.abc import Callable
from typing import Any, NamedTuple

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
