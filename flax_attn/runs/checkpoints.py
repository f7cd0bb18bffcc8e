"""Checkpoints that are whole or not there.

Orbax writes them, and a list of SHA-256 sums vouches for them.

Orbax restores a flipped bit without a word, and leaves a half-written step behind when it is
killed. So a checkpoint counts only once its list of sums is in place, and is verified against it
before anything is restored.

`checkpoints/7` is the end of epoch 7. `checkpoints/7+120` is 120 steps after it, where training
was told to stop.
"""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flax_attn.errors import NotSavedError, UsageError, one_line
from flax_attn.files import replacing, sha256, sync
from flax_attn.logs import raised_errors, same_handlers
from flax_attn.types import JsonObject, Tree

SUMS = "sha256.json"
METADATA = "metadata.json"
KEEP = 2  # ends of epochs
ITEM, SUMS_ITEM = "default", "sums"
TEMPORARY = ".orbax-checkpoint-tmp"
LATER = ("bad_steps", "bad_in_a_row")  # fields of a state that older checkpoints lack


class Place(NamedTuple):
    """How far training has come: whole epochs, and steps of the next."""

    epoch: int
    step: int = 0

    @property
    def name(self) -> str:
        return f"{self.epoch}+{self.step}" if self.step else str(self.epoch)


class Checkpoint(NamedTuple):
    """What a checkpoint holds, and where training stood. Only a begun epoch has sums."""

    place: Place
    state: Tree
    sums: Tree
    metadata: JsonObject


@same_handlers()
@raised_errors()
def save(
    directory: Path, place: Place, state: Tree, metadata: JsonObject, sums: Tree = None
) -> None:
    """Writes a checkpoint, and removes all but the newest two ends of epochs.

    Raises:
        NotSavedError: it cannot be written.
    """
    import orbax.checkpoint as ocp  # a fifth of a second, which no first epoch waits for

    folder = directory / place.name
    metadata = metadata | {"place": list(place), "layout": _layout(state)}
    try:
        folder.mkdir(parents=True)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder.absolute() / ITEM, state)
            if sums is not None:
                checkpointer.wait_until_finished()
                checkpointer.save(folder.absolute() / SUMS_ITEM, sums)
        (folder / METADATA).write_text(json.dumps(metadata))
        for path in (*folder.rglob("*"), folder, directory):
            sync(path)
        files = json.dumps(_sums(folder))
        with replacing(folder / SUMS) as partial:
            partial.write_text(files)
    except (OSError, ValueError) as error:  # Orbax has a ValueError for a full disk
        raise NotSavedError(
            f"cannot write checkpoint {folder} ({_reason(error)}); the same command goes on after "
            f"the last one"
        ) from error
    prune(directory, place)


def prune(directory: Path, newest: Place) -> None:
    """Removes all but the newest two ends of epochs, and the newest of all."""
    epochs = sorted((place for place in _places(directory) if not place.step), reverse=True)
    for place in _places(directory):
        if place < newest and place not in epochs[:KEEP] and _is_ours(directory / place.name):
            shutil.rmtree(directory / place.name)


@same_handlers()
def restore(
    directory: Path,
    template: Tree,
    warn: Callable[[str], None],
    *,
    sums: Tree = None,
    only_newest: bool = False,
) -> Checkpoint | None:
    """The newest whole checkpoint. None where none was ever written to its end.

    Damaged ones are passed over, each with a line to `warn`.

    Args:
        directory: where the checkpoints of the run are.
        template: a state of the same structure, shapes and dtypes; its values do not matter.
        warn: takes a line of text.
        sums: those of a begun epoch, like the template. None where nobody wants them.
        only_newest: whether a newest one that is damaged is an error.

    Raises:
        UsageError: all are damaged, or the newest whole one is of another state than the template.
    """
    place, damaged = newest_whole(directory, warn)
    if damaged and only_newest:
        raise UsageError(f"{damaged[0]}; run the command that made the run again to mend it")
    if place is None:
        if damaged:
            raise UsageError(
                f"{damaged[0]} and none before it is whole; remove {directory} to train from the "
                f"start"
            )
        return None
    for line in damaged:
        warn(f"{line}; using {place.name}")
    folder = directory / place.name
    metadata = json.loads((folder / METADATA).read_text())
    layout = metadata.pop("layout")
    later = {f".{name}" for name in LATER if hasattr(template, name)} - layout.keys()
    expected = {name: kind for name, kind in _layout(template).items() if name not in later}
    _check_layout(folder, layout, expected)
    state = _restore_older(folder, template, later) if later else _read(folder / ITEM, template)
    if sums is not None:
        sums = _read(folder / SUMS_ITEM, sums) if place.step else None
    return Checkpoint(place, state, sums, metadata)


def _read(item: Path, template: Tree) -> Tree:
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(item.absolute(), template)


def _restore_older(folder: Path, state: Tree, later: set[str]) -> Tree:
    """A state whose later fields are zeros, since the checkpoint does not have them."""
    import jax.numpy as jnp

    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    known = {name: value for name, value in fields.items() if f".{name}" not in later}
    zeros = {
        name: jnp.zeros(fields[name].shape, fields[name].dtype)
        for name in fields
        if f".{name}" in later
    }
    return state.replace(**_read(folder / ITEM, known), **zeros)


def newest_whole(directory: Path, warn: Callable[[str], None]) -> tuple[Place | None, list[str]]:
    """The place of the newest whole checkpoint, and a line for each newer one that is damaged."""
    damaged = []
    for place in sorted(_places(directory), reverse=True):
        folder = directory / place.name
        if not (folder / SUMS).exists():
            warn(f"checkpoint {folder} was not written to its end; passing it over")
            continue
        damage = find_damage(folder)
        if not damage:
            return place, damaged
        damaged.append(f"checkpoint {folder} is damaged ({damage})")
    return None, damaged


def stored_metadata(directory: Path) -> JsonObject:
    """The metadata of the newest whole checkpoint, or an empty dict."""
    place, _ = newest_whole(directory, lambda line: None)
    return {} if place is None else json.loads((directory / place.name / METADATA).read_text())


def discard_after(directory: Path, newest: Place) -> None:
    """Removes what stands after a place, so that the run can go on from there.

    It also removes what killed processes left.
    """
    for place in _places(directory):
        if place > newest and _is_ours(directory / place.name):
            shutil.rmtree(directory / place.name)
    if directory.is_dir():
        for path in directory.iterdir():
            if TEMPORARY in path.name and path.is_dir():
                shutil.rmtree(path)


def find_damage(folder: Path) -> str:
    """What is wrong with a checkpoint, or an empty string.

    Every file must be there with the sum it was written with.
    """
    try:
        expected = json.loads((folder / SUMS).read_text())
    except (OSError, ValueError, RecursionError):
        return f"{SUMS} is not readable"
    if not isinstance(expected, dict) or METADATA not in expected:
        return f"{SUMS} is not a list of sums"
    present = _sums(folder)
    for name, digest in expected.items():
        if name not in present:
            return f"{name} is missing"
        if present[name] != digest:
            return f"{name} has changed"
    place = json.loads((folder / METADATA).read_text()).get("place")
    if place is not None and Place(*place).name != folder.name:
        return f"it is {Place(*place).name} under another name"
    return ""


def _sums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below the folder but the list of sums itself."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != SUMS]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def _places(directory: Path) -> list[Place]:
    if not directory.is_dir():
        return []
    names = [path.name for path in directory.iterdir() if path.is_dir()]
    matches = [re.fullmatch(r"(\d+)(?:\+(\d+))?", name) for name in names]
    places = [Place(int(match[1]), int(match[2] or 0)) for match in matches if match]
    return [place for place in places if place.name in names]


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint, whole or not, and no other's."""
    names = {path.name for path in folder.iterdir()}
    ours = (METADATA, SUMS, ITEM, SUMS_ITEM)
    return all(name in ours or name.startswith((".", ITEM, SUMS_ITEM)) for name in names)


def _reason(error: Exception) -> str:
    text = one_line(error)
    reasons = {
        "No space left": "no space left on the disk",
        "RESOURCE_EXHAUSTED": "no space left on the disk",
        "quota": "no space left of the quota",
        "File too large": "a file is larger than is allowed",
    }
    return next((reason for sign, reason in reasons.items() if sign in text), text[:200])


def _layout(state: Tree) -> dict[str, str]:
    """Dtype and shape of every array by its path. Orbax would cast without a word."""
    import jax  # which to read a config does not need

    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def _check_layout(folder: Path, stored: dict[str, str], expected: dict[str, str]) -> None:
    for name in expected | stored:
        if expected.get(name) != stored.get(name):
            raise UsageError(
                f"checkpoint {folder} is not of the config beside it: expected {name} "
                f"{expected.get(name)}, got {stored.get(name)}; "
                "restore that config.json, or train in another directory"
            )
