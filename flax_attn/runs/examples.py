"""The arrays of `examples.npz`: some test examples, which pictures are drawn from.

Each kind of pictures has its arrays. A form is the kinds of their dtype and a letter for each axis.
Equal letters are equal sizes. A name that ends in ? may be missing.
"""

from collections.abc import Mapping

import numpy as np

FLOATS, WHOLE, TEXTS = "f", "iu", "U"
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
FORMS: dict[str, dict[str, tuple[str, str]]] = {
    "signals": SIGNALS
    | {
        "centers?": (FLOATS, "ns"),
        "heights?": (FLOATS, "ns"),
        "widths?": (FLOATS, "ns"),
    },
    "series": SIGNALS,
    "images": CLASSES | {"inputs": (FLOATS, "nhw")},
    "texts": CLASSES
    | {
        "inputs": (WHOLE, "nt"),
        "lengths": (WHOLE, "n"),
        "words": (TEXTS, "nt"),
    },
    "translation": {
        "inputs": (WHOLE, "ns"),
        "targets": (WHOLE, "nr"),
        "predictions": (WHOLE, "nt"),
        "source_lengths": (WHOLE, "n"),
        "prediction_lengths": (WHOLE, "n"),
        "source_words": (TEXTS, "na"),
        "predicted_words": (TEXTS, "nb"),
        "references": (TEXTS, "n"),
    },
    "language": {
        "inputs": (WHOLE, "nt"),
        "targets": (WHOLE, "nt"),
        "predictions": (WHOLE, "nt"),
        "losses": (FLOATS, "sp"),
        "tokens?": (TEXTS, "k"),
        "string?": (TEXTS, "r"),
        "induction?": (FLOATS, "bh"),
        "induction_weights?": (FLOATS, "rr"),
    },
}
ATTENTION = "attention/"
AXES_OF_ATTENTION = (2, 3, 4)  # examples, perhaps heads or hops, perhaps queries, and keys
LARGEST = 2**28  # bytes of all arrays


def fitting(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays without the largest attention weights, where all are more than `LARGEST` bytes."""
    kept = dict(arrays)
    weights = [name for name in kept if name.startswith(ATTENTION)]
    weights.sort(key=lambda name: kept[name].nbytes)
    while weights and sum(array.nbytes for array in kept.values()) > LARGEST:
        del kept[weights.pop()]
    return kept


def check(pictures: str, arrays: Mapping[str, np.ndarray], classes: list[str] | None) -> None:
    """Raises a ValueError unless the arrays are those of their kind, and fit together.

    Args:
        pictures: the kind.
        arrays: by name.
        classes: the names that a run has for its classes.
    """
    if pictures not in FORMS:
        raise ValueError(f"unknown pictures {pictures[:60]!r}")
    sizes: dict[str, int] = {}
    for name, (kinds, axes) in FORMS[pictures].items():
        array = arrays.get(name.removesuffix("?"))
        if array is None and name.endswith("?"):
            continue
        if array is None or array.dtype.kind not in kinds or array.ndim != len(axes):
            raise ValueError(f"the examples have no {name.removesuffix('?')} ({', '.join(axes)})")
        for letter, size in zip(axes, array.shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"the examples {name.removesuffix('?')} do not fit the others")
    for name, array in arrays.items():
        if name.startswith(ATTENTION):
            is_weights = array.dtype.kind in FLOATS and array.ndim in AXES_OF_ATTENTION
            is_language = pictures == "language"
            if not is_weights or not (array.ndim == 3 if is_language else len(array) == sizes["n"]):
                raise ValueError(f"the examples have no weights {name[:60]!r}")
    if pictures in ("images", "texts"):
        if classes is None or len(classes) != sizes["c"]:
            raise ValueError("the examples do not fit the classes")
        targets = arrays["targets"]
        if targets.size and not 0 <= targets.min() <= targets.max() < sizes["c"]:
            raise ValueError("the examples have targets that are no classes")
    for name in ("lengths", "source_lengths", "prediction_lengths"):
        if name in FORMS[pictures] and (arrays[name] < 0).any():
            raise ValueError(f"the examples have {name} below 0")
