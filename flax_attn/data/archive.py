"""A user's own arrays, from a `.npz` file."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from flax_attn.data.raw import ALL, SPLITS
from flax_attn.errors import UsageError, shortened
from flax_attn.files import open_arrays

LONGEST_LIST = 200  # characters of names in an error

InputsAndTargets = tuple[np.ndarray, np.ndarray]  # inputs and targets


def read(path: Path, inputs: str, targets: str) -> dict[str, InputsAndTargets]:
    """Reads inputs and targets by split, or under the name `all` where they are yet to be split.

    With the names `x` and `y` they are the arrays `train_x`, `train_y`, `test_x`, `test_y`, and
    perhaps `valid_x` and `valid_y`; or `x` and `y` alone. Other arrays are left alone.
    """
    with open_arrays(path) as arrays:
        names = _names(path, list(arrays), inputs, targets)
        return {split: (arrays[x], arrays[y]) for split, (x, y) in names.items()}


def _names(
    path: Path, known: Collection[str], inputs: str, targets: str
) -> dict[str, tuple[str, str]]:
    """Returns the names of the two arrays of each split."""
    pairs = {name: (f"{name}_{inputs}", f"{name}_{targets}") for name in SPLITS}
    pairs[ALL] = inputs, targets
    names = {split: pair for split, pair in pairs.items() if set(pair) & set(known)}
    complete = {name for pair in names.values() for name in pair}
    of_this_kind = {name for name in known if name.endswith((inputs, targets))}
    if complete != of_this_kind or set(names) not in ({ALL}, {"train", "test"}, set(SPLITS)):
        raise UsageError(
            f"expected in {path} the arrays {inputs} and {targets}, or train_{inputs}, "
            f"train_{targets}, test_{inputs} and test_{targets}, and perhaps valid_{inputs} and "
            f"valid_{targets}, got {shortened(', '.join(known), LONGEST_LIST) or 'none'}"
        )
    return names
