"""The arrays of `examples.npz`: some test examples, which pictures are drawn from.

What arrays there are, the kind of task says by a `Form`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from flax_attn.types import JsonObject

FLOATS, WHOLE, TEXTS = "f", "iu", "U"
ATTENTION, HOPS = "attention/", "attention/hops"
AXES_OF_ATTENTION = (2, 3, 4)  # examples, perhaps heads or hops, perhaps queries, and keys
LARGEST = 2**28  # bytes of all arrays
MOST_ATTENTIONS = 1_000

Arrays = Mapping[str, np.ndarray]


def no_sizes(arrays: Arrays, model: JsonObject) -> dict[str, int]:
    """Derives no further sizes."""
    del arrays, model
    return {}


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
    attends: str
    lengths: dict[str, str] = {}
    has_classes: bool = False
    attends_in_one: bool = False
    may_be_nan: tuple[str, ...] = ()
    sizes: Callable[[Arrays, JsonObject], dict[str, int]] = no_sizes


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
    """Leaves out the largest attention weights, where they are too many or too large to keep."""
    fitting = dict(arrays)
    weights = [name for name in fitting if name.startswith(ATTENTION)]
    weights.sort(key=lambda name: fitting[name].nbytes)
    too_large = lambda: sum(array.nbytes for array in fitting.values()) > LARGEST
    while weights and (len(weights) > MOST_ATTENTIONS or too_large()):
        del fitting[weights.pop()]
    return fitting


def check(
    form: Form, arrays: Arrays, classes: list[str] | None, model: JsonObject | None = None
) -> None:
    """Raises a ValueError unless the arrays have their form, and fit together.

    Args:
        form: of the kind of task.
        arrays: by name.
        classes: the names that a run has for its classes.
        model: the part `model` of the run's config. One of the user's own may attend to anything.
    """
    model = model or {}
    sizes: dict[str, int] = {}
    for name, (kinds, axes) in form.arrays.items():
        array = arrays.get(name.removesuffix("?"))
        if array is None and name.endswith("?"):
            continue
        if array is None or array.dtype.kind not in kinds or array.ndim != len(axes):
            raise ValueError(f"the examples have no {name.removesuffix('?')} ({', '.join(axes)})")
        is_sound = np.isfinite(array) if kinds == FLOATS else True
        if not np.all(is_sound | (np.isnan(array) if name in form.may_be_nan else False)):
            raise ValueError(f"the examples {name.removesuffix('?')} are not finite")
        for letter, size in zip(axes, array.shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"the examples {name.removesuffix('?')} do not fit the others")
    if sum(name.startswith(ATTENTION) for name in arrays) > MOST_ATTENTIONS:
        raise ValueError(f"the examples have more than {MOST_ATTENTIONS:,} attentions")
    sizes |= form.sizes(arrays, model)
    is_of_the_user = ":" in model.get("name", "")
    for name, array in arrays.items():
        if name.startswith(ATTENTION):
            check_weights(form, name, array, {"n": sizes["n"]} if is_of_the_user else sizes)
    if form.has_classes:
        if classes is None or len(classes) != sizes["c"]:
            raise ValueError("the examples do not fit the classes")
        targets = arrays["targets"]
        if targets.size and not 0 <= targets.min() <= targets.max() < sizes["c"]:
            raise ValueError("the examples have targets that are no classes")
    for name, letter in form.lengths.items():
        if (arrays[name] < 0).any():
            raise ValueError(f"the examples have {name} below 0")
        if (arrays[name] > sizes[letter]).any():
            raise ValueError(f"the examples have {name} above {sizes[letter]}")


def check_weights(form: Form, name: str, array: np.ndarray, sizes: Mapping[str, int]) -> None:
    """Raises a ValueError unless an array is attention of examples of these sizes.

    Queries and keys are compared with the sizes that are known.
    """
    is_weights = array.dtype.kind in FLOATS and array.ndim in AXES_OF_ATTENTION
    if not is_weights or (array.ndim != 3 if form.attends_in_one else len(array) != sizes["n"]):
        raise ValueError(f"the examples have no weights {name[:60]!r}")
    queries, keys = form.attends
    pairs = [(keys, array.shape[-1])]
    if array.ndim > 2 and not name.startswith(HOPS):
        pairs.append((queries, array.shape[-2]))
    for letter, size in pairs:
        if sizes.get(letter, size) != size:
            raise ValueError(
                f"the examples have weights {name[:60]!r} of {size} instead of {sizes[letter]} "
                f"queries or keys"
            )
