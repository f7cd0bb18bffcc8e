"""The arrays of `examples.npz`: some test examples, from which pictures are drawn.

The kind of task declares the arrays by a `Form`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from flax_attn.types import JsonObject

FLOATS, WHOLE, TEXTS = "f", "iu", "U"
ATTENTION = "attention/"
LARGEST = 2**28  # bytes of all arrays
MOST_ATTENTIONS = 1_000

Arrays = Mapping[str, np.ndarray]


class Form(NamedTuple):
    """The arrays of the examples of a kind of task, and how they fit together.

    Attributes:
        arrays: by name the kinds of the dtype, and a letter for each axis. Equal letters are equal
            sizes, and n is the number of examples. A name that ends in ? may be missing.
        attends: the letters of the queries and of the keys of attention.
        lengths: arrays of lengths, each with the letter of the axis that it stays within.
        has_classes: whether the targets are classes, of which there are c.
        attends_in_one: whether attention is `(heads, q, k)` of one text, and not of all examples.
        may_be_nan: arrays that may hold NaN.
        sizes: derives further sizes by letter from the arrays and the part `model` of a config.
    """

    arrays: dict[str, tuple[str, str]]
    attends: str = ""
    lengths: dict[str, str] = {}
    has_classes: bool = False
    attends_in_one: bool = False
    may_be_nan: tuple[str, ...] = ()
    sizes: Callable[[Arrays, JsonObject], dict[str, int]] | None = None


SIGNALS = {
    "inputs": (FLOATS, "ntc"),
    "targets": (FLOATS, "ntd"),
    "predictions": (FLOATS, "ntd"),
}
CLASSES = {
    "targets": (WHOLE, "n"),
    "predictions": (FLOATS, "nc"),
    "confusion?": (WHOLE, "cc"),
}


def fitting(arrays: Arrays) -> dict[str, np.ndarray]:
    """Returns the arrays without the largest attention weights, if they are too many or large."""
    fitting = dict(arrays)
    weights = [name for name in fitting if name.startswith(ATTENTION)]
    weights.sort(key=lambda name: fitting[name].nbytes)
    too_large = lambda: sum(array.nbytes for array in fitting.values()) > LARGEST
    while weights and (len(weights) > MOST_ATTENTIONS or too_large()):
        del fitting[weights.pop()]
    return fitting


def check(form: Form, arrays: Arrays) -> None:
    """Raises a ValueError for an array that is missing."""
    for name in form.arrays:
        if name not in arrays and not name.endswith("?"):
            raise ValueError(f"the examples have no {name}")
