"""Writes and reads checkpoints. Each is one .npz file that checks itself.

`checkpoints/7.npz` is the end of epoch 7, and `checkpoints/7+120.npz` is 120 steps later, where a
signal stopped training. A file holds the arrays of the training by their paths in the tree, and a
note as JSON: the metrics so far, the seconds, and the config. It is written beside, synced and
renamed, so it is complete or not there. The CRC-32 of the zip format finds changed bytes, and the
names, shapes and dtypes are compared with those of the model.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing
from flax_attn.runs.results import Row
from flax_attn.runs.stored import read_arrays
from flax_attn.types import JsonObject, Tree

KEEP = 2  # ends of epochs
NOTE = "note"


class Progress(NamedTuple):
    """The whole epochs that are done, and the steps of the next."""

    epoch: int
    step: int = 0


class Note(msgspec.Struct):
    """Everything in a checkpoint beside arrays. `config` is the content of `config.json`."""

    epoch: int
    step: int
    seconds: float
    rows: list[Row]
    config: JsonObject

    @property
    def progress(self) -> Progress:
        return Progress(self.epoch, self.step)


def save(directory: Path, note: Note, trees: dict[str, Tree]) -> None:
    """Writes a checkpoint of trees by name, and removes all but the newest two ends of epochs.

    Raises a UsageError where it cannot be written.
    """
    path = path_of(directory, note.progress)
    arrays: Tree = {name: np.asarray(leaf) for name, leaf in by_path(trees).items()}
    arrays[NOTE] = np.frombuffer(msgspec.json.encode(note), np.uint8)  # so that CRC-32 covers it
    try:
        directory.mkdir(exist_ok=True)
        with replacing(path) as partial:
            np.savez(partial, **arrays)
    except OSError as error:
        raise UsageError(
            f"cannot write checkpoint {path} ({error.strerror or one_line(error)}); the same "
            f"command goes on after the last one"
        ) from error
    prune(directory, note.progress)


def restore(
    directory: Path, templates: dict[str, Tree], warn: Callable[[str], None]
) -> tuple[Note, dict[str, Tree]] | None:
    """Reads the newest valid checkpoint; None without any.

    Damaged ones are passed over, each with a line to `warn`; if all are, it raises a UsageError.
    `templates` are trees by name with the shapes and dtypes of the model; values are not read.
    """
    damage = ""
    for progress in saved(directory):
        try:
            return restore_one(directory, progress, templates)
        except ValueError as error:  # a UsageError, too
            reason = one_line(error).partition(";")[0]
            damage = f"checkpoint {path_of(directory, progress)} is damaged ({reason})"
            warn(damage)
    if damage:
        raise UsageError(
            f"{damage} and none before it is valid; remove {directory} to train from the start"
        )
    return None


def restore_one(
    directory: Path, progress: Progress, templates: dict[str, Tree]
) -> tuple[Note, dict[str, Tree]]:
    """Reads a checkpoint into trees. Raises a ValueError for a damaged one."""
    note, arrays = read(path_of(directory, progress))
    return note, {name: fill(name, tree, arrays) for name, tree in templates.items()}


def read(path: Path) -> tuple[Note, dict[str, np.ndarray]]:
    """Reads the note and the arrays of a checkpoint. Raises a ValueError for a damaged one."""
    arrays = read_arrays(path)
    if NOTE not in arrays:
        raise ValueError(f"it has no {NOTE}")
    return msgspec.json.decode(arrays.pop(NOTE).tobytes(), type=Note), arrays


def newest(directory: Path) -> Note | None:
    """Reads the note of the newest valid checkpoint; None without any."""
    for progress in saved(directory):
        try:
            return read(path_of(directory, progress))[0]
        except ValueError:
            continue
    return None


def fill(name: str, template: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """Returns the tree of a template with stored arrays. Raises a ValueError where they differ."""
    import jax  # not needed to read a config

    leaves = []
    for path, leaf in by_path({name: template}).items():
        array = arrays.get(path)
        if array is not None and array.dtype.kind == "V":
            array = array.view(leaf.dtype)  # NumPy stores bfloat16 as bytes
        if array is None or (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
            got = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"expected {path} {leaf.dtype}{list(leaf.shape)}, got {got}")
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def by_path(trees: dict[str, Tree]) -> dict[str, Tree]:
    """Returns the leaves of trees by their paths, such as `states.params['dense']['kernel']`."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(trees)
    return {f"{path[0].key}{jax.tree_util.keystr(path[1:])}": leaf for path, leaf in leaves}


def saved(directory: Path) -> list[Progress]:
    """Lists the checkpoints by their names, the newest first."""
    names = [path.name for path in directory.glob("*.npz")]
    matches = [re.fullmatch(r"(\d{1,9})(?:\+(\d{1,9}))?\.npz", name) for name in names]
    return sorted((Progress(int(m[1]), int(m[2] or 0)) for m in matches if m), reverse=True)


def prune(directory: Path, newest: Progress) -> None:
    """Removes all but the newest, from which training goes on, and the last two ends of epochs."""
    every = saved(directory)
    ends = [progress for progress in every if progress <= newest and not progress.step]
    for progress in {*every} - {newest, *ends[:KEEP]}:
        path_of(directory, progress).unlink(missing_ok=True)


def path_of(directory: Path, progress: Progress) -> Path:
    epoch, step = progress
    return directory / (f"{epoch}+{step}.npz" if step else f"{epoch}.npz")
