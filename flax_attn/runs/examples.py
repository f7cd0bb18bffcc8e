"""The arrays of `examples.npz`: some test examples, which pictures are drawn from.

Each kind of pictures has its arrays. A form is the kinds of their dtype and a letter for each axis.
Equal letters are equal sizes. A name that ends in ? may be missing.
"""

from collections.abc import Mapping

import numpy as np

from flax_attn.types import JsonObject

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
        "losses": (FLOATS, "st"),
        "tokens?": (TEXTS, "k"),
        "string?": (TEXTS, "r"),
        "induction?": (FLOATS, "bh"),
        "induction_weights?": (FLOATS, "rr"),
    },
}
MAY_BE_NAN = ("losses",)  # at positions where every text is padding
ATTENTION, HOPS = "attention/", "attention/hops"
AXES_OF_ATTENTION = (2, 3, 4)  # examples, perhaps heads or hops, perhaps queries, and keys
# queries and keys of attention; p for the patches of an image, l for the longest source
READS = {
    "signals": "tt",
    "series": "tc",
    "images": "pp",
    "texts": "tt",
    "translation": "tl",
    "language": "kk",
}
LENGTHS = {"lengths": "t", "source_lengths": "s", "prediction_lengths": "t"}
LARGEST = 2**28  # bytes of all arrays


def fitting(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays without the largest attention weights, where all are more than `LARGEST` bytes."""
    kept = dict(arrays)
    weights = [name for name in kept if name.startswith(ATTENTION)]
    weights.sort(key=lambda name: kept[name].nbytes)
    while weights and sum(array.nbytes for array in kept.values()) > LARGEST:
        del kept[weights.pop()]
    return kept


def check(
    pictures: str,
    arrays: Mapping[str, np.ndarray],
    classes: list[str] | None,
    model: JsonObject | None = None,
) -> None:
    """Raises a ValueError unless the arrays are those of their kind, and fit together.

    Args:
        pictures: the kind.
        arrays: by name.
        classes: the names that a run has for its classes.
        model: the part `model` of the run's config. One of the user's own may attend to anything.
    """
    model = model or {}
    if pictures not in FORMS:
        raise ValueError(f"unknown pictures {pictures[:60]!r}")
    sizes: dict[str, int] = {}
    for name, (kinds, axes) in FORMS[pictures].items():
        array = arrays.get(name.removesuffix("?"))
        if array is None and name.endswith("?"):
            continue
        if array is None or array.dtype.kind not in kinds or array.ndim != len(axes):
            raise ValueError(f"the examples have no {name.removesuffix('?')} ({', '.join(axes)})")
        is_sound = np.isfinite(array) if kinds == FLOATS else True
        if not np.all(is_sound | (np.isnan(array) if name in MAY_BE_NAN else False)):
            raise ValueError(f"the examples {name.removesuffix('?')} are not finite")
        for letter, size in zip(axes, array.shape):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"the examples {name.removesuffix('?')} do not fit the others")
    if pictures == "translation":
        sizes["l"] = arrays["source_lengths"].max(initial=0)
    if pictures == "images" and model.get("patch_size"):
        sizes["p"] = sizes["h"] * sizes["w"] // model["patch_size"] ** 2
    is_own = ":" in model.get("name", "")
    for name, array in arrays.items():
        if name.startswith(ATTENTION):
            check_weights(pictures, name, array, {"n": sizes["n"]} if is_own else sizes)
    if pictures in ("images", "texts"):
        if classes is None or len(classes) != sizes["c"]:
            raise ValueError("the examples do not fit the classes")
        targets = arrays["targets"]
        if targets.size and not 0 <= targets.min() <= targets.max() < sizes["c"]:
            raise ValueError("the examples have targets that are no classes")
    for name, letter in LENGTHS.items():
        if name in FORMS[pictures] and (arrays[name] < 0).any():
            raise ValueError(f"the examples have {name} below 0")
        if name in FORMS[pictures] and (arrays[name] > sizes[letter]).any():
            raise ValueError(f"the examples have {name} above {sizes[letter]}")


def check_weights(pictures: str, name: str, array: np.ndarray, sizes: Mapping[str, int]) -> None:
    """Raises a ValueError unless an array is attention of examples of these sizes.

    Queries and keys are compared with the sizes that are known.
    """
    is_weights = array.dtype.kind in FLOATS and array.ndim in AXES_OF_ATTENTION
    is_language = pictures == "language"
    if not is_weights or not (array.ndim == 3 if is_language else len(array) == sizes["n"]):
        raise ValueError(f"the examples have no weights {name[:60]!r}")
    queries, keys = READS[pictures]
    pairs = [(keys, array.shape[-1])]
    if array.ndim > 2 and not name.startswith(HOPS):
        pairs.append((queries, array.shape[-2]))
    for letter, size in pairs:
        if sizes.get(letter, size) != size:
            raise ValueError(
                f"the examples have weights {name[:60]!r} of {size} instead of {sizes[letter]} "
                f"queries or keys"
            )
