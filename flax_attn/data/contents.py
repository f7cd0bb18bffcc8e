"""What a user gives to train on, checked: signals, images and texts, from Python or from files.

`where` names the contents in an error, such as `the train split`.
"""

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

from flax_attn.errors import UsageError, shortened
from flax_attn.types import UserInput

if TYPE_CHECKING:
    from flax_attn.data.raw import Columns
    from flax_attn.data.sets import DataSet

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


def checked(where: str, data: "DataSet", inputs: UserInput, targets: UserInput) -> "Columns":
    """Returns a user's inputs and targets as a data set of this input and target holds them.

    Raises:
        UsageError: contents that do not fit, or unequal numbers of both.
    """
    from flax_attn.data.raw import Columns

    given = INPUTS[data.input](where, inputs)
    wanted = TARGETS[data.target](where, targets)
    if len(given) != len(wanted) or not len(given):
        raise UsageError(
            f"expected as many targets as inputs in {where}, at least one, got {len(given)} and "
            f"{len(wanted)}"
        )
    if data.target == "signal" and given.shape[:2] != wanted.shape[:2]:
        raise UsageError(
            f"expected targets as long as the signals in {where}, got {wanted.shape} for "
            f"{given.shape}"
        )
    return Columns(given, wanted)


def signals(where: str, values: UserInput) -> np.ndarray:
    """Returns signals `(n, t, channels)` as float32, from `(n, t)` or `(n, t, channels)`."""
    array = float32(where, values)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or not array.size:
        raise UsageError(
            f"expected signals (n, t) or (n, t, channels) in {where}, got {array.shape}; for "
            f"classes or numbers set data.target"
        )
    check_finite(where, array)
    return array


def images(where: str, values: UserInput) -> np.ndarray:
    """Returns images `(n, height, width)` as float32 in [0, 1]."""
    array = real_numbers(where, values)
    if array.ndim != 3 or not array.size:
        raise UsageError(
            f"expected images (n, height, width) in {where}, without an axis of colours, got "
            f"{array.shape}"
        )
    return as_pixels(array, where)


def texts(where: str, values: UserInput) -> list[str]:
    """Returns a list of texts."""
    rows = _list(where, values)
    for text in rows:
        if not isinstance(text, str):
            raise UsageError(f"expected texts in {where}, got {shortened(repr(text))}")
    return rows


def numbers(where: str, values: UserInput) -> np.ndarray:
    """Returns numbers `(n,)` as float32."""
    array = float32(where, values)
    if array.ndim != 1:
        raise UsageError(f"expected a number for each input (n,) in {where}, got {array.shape}")
    check_finite(where, array)
    return array


def classes(where: str, values: UserInput) -> list[str]:
    """Returns the names of classes. The digits of a whole number are its name."""
    rows = [row.decode() if isinstance(row, bytes) else row for row in _list(where, values)]
    for row in rows:
        if not isinstance(row, str | int) or isinstance(row, bool) or not str(row).strip():
            raise UsageError(
                f"expected the class of each input (n,) in {where}, a name or a whole number, got "
                f"{shortened(repr(row))}"
            )
    return [str(row) for row in rows]


INPUTS = {"signal": signals, "image": images, "text": texts}
TARGETS = {"signal": signals, "number": numbers, "classes": classes, "text": texts}


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
