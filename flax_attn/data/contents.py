"""What a user gives to train on, checked: signals, images and texts, from Python or from files.

`where` names the contents in an error, such as `the train split`.
"""

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

from flax_attn.data.raw import ALL, Columns
from flax_attn.errors import UsageError, shortened
from flax_attn.schema import require
from flax_attn.types import UserInput

if TYPE_CHECKING:
    from flax_attn.data.sets import DataSet

LARGEST = 1e30  # of a number in training, which is computed with in float32
MOST_CLASSES = 1_000  # a confusion matrix has a row and a column for each


def place(split: str, source: str = "") -> str:
    """Returns the name of a split in an error; with a source, of the split in that file."""
    if split == ALL:
        return source
    return f"the {split} split of {source}" if source else f"the {split} split"


def checked(where: str, data: "DataSet", inputs: UserInput, targets: UserInput) -> Columns:
    """Returns a user's inputs and targets as a data set of this input and target holds them."""
    given, wanted = INPUTS[data.input](where, inputs), TARGETS[data.target](where, targets)
    is_whole, got = len(given) == len(wanted) > 0, f"{len(given)} and {len(wanted)}"
    require(is_whole, f"as many targets as inputs in {where}, at least one, got {got}")
    if data.target == "signal":
        got = f"{wanted.shape} for {given.shape}"
        is_as_long = given.shape[:2] == wanted.shape[:2]
        require(is_as_long, f"targets as long as the signals in {where}, got {got}")
    return Columns(given, wanted)


def signals(where: str, values: UserInput) -> np.ndarray:
    """Returns signals `(n, t, channels)` as float32, from `(n, t)` or `(n, t, channels)`.

    Signals of several lengths may be a list of arrays `(t,)` or `(t, channels)`, or have NaN after
    their ends, as all that are shorter than the longest have then.
    """
    if isinstance(values, list | tuple) and len({len(row) for row in values}) > 1:
        values = lengthened([np.asarray(row) for row in values])
    array = float32(where, values)
    array = array[..., None] if array.ndim == 2 else array  # (n, t, 1) from (n, t)
    got = f"{array.shape}; for classes or numbers set data.target"
    fit = array.ndim == 3 and array.size
    require(fit, f"signals (n, t) or (n, t, channels) in {where}, got {got}")
    ended = ~is_within(array)  # (n, t)
    is_tail = not (ended[:, 0].any() or (ended[:, :-1] & ~ended[:, 1:]).any())
    require(is_tail, f"finite numbers up to the end of each signal in {where}, got NaN before it")
    finite(where, array[~ended])
    return array


def is_within(signals: np.ndarray) -> np.ndarray:
    """Returns which points `(..., t)` of signals `(..., t, channels)` are before their ends."""
    return np.asarray(~np.isnan(signals).any(axis=-1))


def lengthened(rows: Sequence[np.ndarray], length: int = 0) -> np.ndarray:
    """Returns signals `(t, ...)` as one array, with NaN after the ends of shorter ones.

    Its length is at least the one that is given.
    """
    longest = max(length, *map(len, rows))

    def pad(row: np.ndarray) -> np.ndarray:
        widths = [(0, longest - len(row)), *[(0, 0)] * (row.ndim - 1)]
        return np.pad(row.astype(np.float32), widths, constant_values=np.nan)  # (longest, ...)

    return np.stack([pad(row) for row in rows])  # (n, longest, ...)


def images(where: str, values: UserInput) -> np.ndarray:
    """Returns images `(n, height, width)` or `(n, height, width, 3)` as float32 in [0, 1]."""
    array = real_numbers(where, values)
    array = array[..., 0] if array.ndim == 4 and array.shape[-1] == 1 else array
    fit = array.size > 0 and (array.ndim == 3 or (array.ndim == 4 and array.shape[-1] == 3))
    expected = "images (n, height, width) or (n, height, width, 3)"
    require(fit, f"{expected} in {where}, got {array.shape}")
    return as_pixels(array, where)


def texts(where: str, values: UserInput) -> list[str]:
    """Returns a list of texts."""
    rows = _list(where, values)
    for text in rows:
        require(isinstance(text, str), f"texts in {where}, got {_shown(text)}")
    return rows


def numbers(where: str, values: UserInput) -> np.ndarray:
    """Returns numbers `(n,)` as float32."""
    array = float32(where, values)
    require(array.ndim == 1, f"a number for each input (n,) in {where}, got {array.shape}")
    return finite(where, array)


def classes(where: str, values: UserInput) -> list[str]:
    """Returns the names of classes. The digits of a whole number are its name."""
    rows = [row.decode() if isinstance(row, bytes) else row for row in _list(where, values)]
    for row in rows:
        is_name = isinstance(row, str | int) and not isinstance(row, bool) and str(row).strip()
        require(is_name, f"a name or a whole number as class in {where}, got {_shown(row)}")
    return [str(row) for row in rows]


INPUTS = {"signal": signals, "image": images, "text": texts}
TARGETS = {"signal": signals, "number": numbers, "classes": classes, "text": texts}


def _list(where: str, values: UserInput) -> list[UserInput]:
    """Makes a list of values. Raises a UsageError for a single text, and for what has no order."""
    is_many = not isinstance(values, str | bytes | Mapping | Set)
    require(is_many, f"a list in {where}, got {_shown(values)}")
    return np.asarray(values).tolist() if hasattr(values, "__array__") else list(values)


def _shown(value: UserInput) -> str:
    return shortened(repr(value))


def as_pixels(images: np.ndarray, where: str) -> np.ndarray:
    """Returns images as float32 in [0, 1], from bytes or such numbers."""
    if images.dtype == np.uint8:
        return images.astype(np.float32) / 255
    fit = images.dtype.kind == "f" and ((images >= 0) & (images <= 1)).all()
    got = f"{images.dtype} up to {images.max() if images.size else 0:.3g}"
    require(fit, f"bytes or numbers in [0, 1] as pixels of {where}, got {got}")
    return images.astype(np.float32)


def of_one_length(splits: Mapping[str, Columns]) -> dict[str, Columns]:
    """Lengthens the signals of all splits to the longest."""
    longest = max(split.inputs.shape[1] for split in splits.values())
    longer = lambda inputs: lengthened(list(inputs), longest)
    return {name: rows._replace(inputs=longer(rows.inputs)) for name, rows in splits.items()}


def check_one_shape(splits: Mapping[str, Columns]) -> None:
    """Raises a UsageError unless the inputs of all splits have one shape."""
    shapes = {name: split.inputs.shape[1:] for name, split in splits.items()}
    is_one = len(set(shapes.values())) == 1
    require(is_one, f"inputs of one shape in all splits, got {shapes}")


def check_classes(labels: Mapping[str, Sequence[str]]) -> None:
    """Raises a UsageError for classes by split that cannot be learned."""
    known = set(labels["train"])
    require(len(known) > 1, f"at least two classes to train on, got {', '.join(known)}")
    if len(known) > MOST_CLASSES:
        got = f"{len(known):,}, such as '{shortened(min(known))}'"
        raise UsageError(f"expected at most {MOST_CLASSES:,} classes, got {got}; join some")
    for split, names in labels.items():
        strange, of_split = ", ".join(sorted(set(names) - known)[:1]), f"in the {split} split"
        require(not strange, f"classes {of_split} that the training split has, got '{strange}'")


def real_numbers(where: str, values: UserInput) -> np.ndarray:
    """Returns the values as an array. Raises a UsageError for what are no real numbers."""
    is_masked = isinstance(values, np.ma.MaskedArray)  # NumPy would leave the mask out
    require(not is_masked, f"numbers in {where}, got a masked array; fill it by values.filled(0)")
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of several lengths
        raise UsageError(f"expected one length of all rows in {where}, got several") from error
    require(array.dtype.kind in "biuf", f"real numbers in {where}, got {array.dtype}")
    return array


def float32(where: str, values: UserInput) -> np.ndarray:
    """Converts `real_numbers` to float32; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return real_numbers(where, values).astype(np.float32)


def finite(where: str, numbers: np.ndarray) -> np.ndarray:
    """Returns numbers, all of them finite, and so small that their differences are, too."""
    is_finite = (np.abs(numbers) <= LARGEST).all()
    require(is_finite, f"finite numbers in {where}, got some that are not, or above {LARGEST:g}")
    return numbers
