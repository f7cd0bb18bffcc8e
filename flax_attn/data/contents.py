"""What a user gives to train on, checked: signals, images and texts, from Python or from files.

`where` names the contents in an error, such as `the train split`.
"""

from collections.abc import Mapping, Sequence, Set

import numpy as np

from flax_attn.errors import UsageError, shortened
from flax_attn.types import UserInput

SPLITS = ("train", "valid", "test")
LARGEST = 1e30  # of a number in training, which is computed with in float32
MOST_CLASSES = 1_000  # a confusion matrix has a row and a column for each
ALL = "all"  # the name of rows that are yet to be split
NO_TRAINING = (
    "expected examples to train on, got none; lower data.valid_fraction and data.test_fraction, or "
    "give more"
)


def place(split: str, source: str = "") -> str:
    """Returns the name of a split in an error; with a source, of the split in that file."""
    if split == ALL:
        return source
    return f"the {split} split of {source}" if source else f"the {split} split"


def signals(where: str, inputs: UserInput, targets: UserInput) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs `(n, t, channels)` and targets `(n, t, 1)` as float32.

    Inputs may also be `(n, t)`, and so may targets.

    Raises:
        UsageError: other shapes, or what are no finite real numbers.
    """
    inputs, targets = float32(where, inputs), float32(where, targets)
    shapes = f"{inputs.shape} and {targets.shape}"
    inputs, targets = (
        array[..., None] if array.ndim == 2 else array for array in (inputs, targets)
    )
    if inputs.ndim != 3 or targets.shape != (*inputs.shape[:2], 1) or not inputs.size:
        raise UsageError(
            f"expected signals (n, t) or (n, t, channels) with targets (n, t) in {where}, as many "
            f"of both, got {shapes}"
        )
    for array in (inputs, targets):
        check_finite(where, array)
    return inputs, targets


def images(where: str, images: UserInput, labels: UserInput) -> tuple[np.ndarray, list[str]]:
    """Returns images `(n, height, width)` as float32 in [0, 1], and the class of each.

    A class is a name or a whole number, whose digits are its name.

    Raises:
        UsageError: other shapes, pixels or classes.
    """
    images, labels = real_numbers(where, images), np.asarray(labels)
    if images.ndim != 3 or not images.size:
        raise UsageError(
            f"expected images (n, height, width) in {where}, without an axis of colours, got "
            f"{images.shape}"
        )
    names = [name.decode() if isinstance(name, bytes) else name for name in labels.tolist()]
    if labels.ndim != 1 or "" in names or not all(isinstance(name, str | int) for name in names):
        raise UsageError(
            f"expected the class of each image (n,) in {where}, a name or a whole number, got "
            f"{labels.dtype} of shape {labels.shape}"
        )
    check_as_many(where, images, names)
    return as_pixels(images, where), [str(name) for name in names]


def texts(where: str, texts: UserInput, others: UserInput) -> tuple[list[str], list[str]]:
    """Returns texts, and their classes or the texts that they become.

    Raises:
        UsageError: unequal numbers of both, or other things than texts.
    """
    texts, others = _list(where, texts), _list(where, others)
    check_as_many(where, texts, others)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"expected texts in {where}, got {shortened(repr(text))}")
    for other in others:
        if not isinstance(other, str | int) or not str(other).strip():
            raise UsageError(
                f"expected a text, or the name or whole number of a class, for each text in "
                f"{where}, got {shortened(repr(other))}"
            )
    return texts, [str(other) for other in others]


def _list(where: str, values: UserInput) -> list[UserInput]:
    """Makes a list of values. Raises a UsageError for a single text, and for what has no order."""
    if isinstance(values, str | bytes | Mapping | Set):
        raise UsageError(f"expected a list of texts in {where}, got {shortened(repr(values))}")
    return np.asarray(values).tolist() if hasattr(values, "__array__") else list(values)


def as_pixels(images: np.ndarray, where: str) -> np.ndarray:
    """Returns images as float32 in [0, 1], from bytes or such numbers.

    Raises:
        UsageError: other numbers.
    """
    if images.dtype == np.uint8:
        return images.astype(np.float32) / 255
    if images.dtype.kind != "f" or not ((images >= 0) & (images <= 1)).all():
        beyond = f" from {images.min():.3g} to {images.max():.3g}" if images.size else ""
        raise UsageError(
            f"expected bytes or numbers in [0, 1] as pixels of {where}, got {images.dtype}{beyond}"
        )
    return images.astype(np.float32)


def check_as_many(
    where: str, inputs: Sequence | np.ndarray, targets: Sequence | np.ndarray
) -> None:
    """Raises a UsageError unless there are as many targets as inputs, at least one."""
    if len(inputs) != len(targets) or not len(inputs):
        raise UsageError(
            f"expected as many targets as inputs in {where}, at least one, got {len(inputs)} and "
            f"{len(targets)}"
        )


def check_one_shape(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises a UsageError unless the rows of the arrays of all splits have one shape."""
    shapes = {name: array.shape[1:] for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise UsageError(f"expected rows of one shape in all splits, got {shapes}")


def check_classes(labels: Mapping[str, Sequence[str]]) -> None:
    """Raises a UsageError for classes by split that cannot be learned."""
    known = set(labels["train"])
    if not known:
        raise UsageError(NO_TRAINING)
    if len(known) < 2:
        raise UsageError(f"expected at least two classes to train on, got {', '.join(known)}")
    if len(known) > MOST_CLASSES:
        raise UsageError(
            f"expected at most {MOST_CLASSES:,} classes, got {len(known):,}, such as "
            f"'{shortened(min(known))}'; take the labels from another column or folder, or join "
            f"some"
        )
    for split, names in labels.items():
        if strange := sorted(set(names) - known):
            raise UsageError(
                f"expected classes in the {split} split that the training split has, got "
                f"'{strange[0]}'"
            )


def real_numbers(where: str, values: UserInput) -> np.ndarray:
    """Returns the values as an array. Raises a UsageError for what are no real numbers."""
    if isinstance(values, np.ma.MaskedArray):  # NumPy would leave the mask out
        raise UsageError(
            f"expected numbers in {where}, got a masked array; fill it, such as values.filled(0)"
        )
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"expected real numbers in {where}, got {array.dtype}")
    return array


def float32(where: str, values: UserInput) -> np.ndarray:
    """Converts `real_numbers` to float32; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return real_numbers(where, values).astype(np.float32)


def check_finite(where: str, numbers: np.ndarray) -> None:
    """Raises a UsageError for numbers that are not finite, or whose differences may not be."""
    if not (np.abs(numbers) <= LARGEST).all():
        raise UsageError(
            f"expected finite numbers in {where}, got some that are not, or are beyond {LARGEST:g}"
        )
