"""Checkpoints that are whole or not there.

A checkpoint is a folder. `flax.serialization` writes its arrays, and a list of SHA-256 sums is
written last. A checkpoint without this list was not written to its end. Before anything is
restored, every file is compared with its sum.

`checkpoints/7` is the end of epoch 7. `checkpoints/7+120` is 120 steps after it, where training
was told to stop.
"""

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing, sync
from flax_attn.runs import untrusted
from flax_attn.runs.results import Metadata
from flax_attn.runs.untrusted import MEND, Mark
from flax_attn.types import JsonObject, Tree

SUMS = "sha256.json"
METADATA = "metadata.json"
STATE, METRIC_SUMS = "state.msgpack", "sums.msgpack"
FILES = (STATE, METRIC_SUMS, METADATA)
KEEP = 2  # ends of epochs
MOST = 10**9  # epochs or steps that a place may have


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
    metadata: Metadata


def save(
    directory: Path, place: Place, state: Tree, metadata: JsonObject, sums: Tree = None
) -> None:
    """Writes a checkpoint, and removes all but the newest two ends of epochs.

    Raises:
        UsageError: it cannot be written.
    """
    from flax_attn.runs import arrays  # which to read a config does not need

    folder = directory / place.name
    try:
        folder.mkdir(parents=True)
        arrays.write(folder / STATE, state)
        if sums is not None:
            arrays.write(folder / METRIC_SUMS, sums)
        (folder / METADATA).write_text(json.dumps(metadata | {"place": list(place)}))
        for path in (*folder.iterdir(), folder, directory):
            sync(path)
        files = json.dumps(_marks(folder))
        with replacing(folder / SUMS) as partial:
            partial.write_text(files)
    except OSError as error:
        raise UsageError(
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
        sums: those of a begun epoch, like the template. None where they are not needed.
        only_newest: whether a newest one that is damaged is an error.

    Raises:
        UsageError: all are damaged, or the newest whole one is of another state than the template.
    """
    from flax_attn.runs import arrays  # which to read a config does not need

    place, damaged = newest_whole(directory, warn, arrays.largest(template))
    if damaged and only_newest:
        raise UsageError(f"{damaged[0]}; {MEND}")
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
    has_sums = sums is not None and place.step > 0
    state = arrays.read(folder, STATE, template)
    sums = arrays.read(folder, METRIC_SUMS, sums) if has_sums else None
    return Checkpoint(place, state, sums, _metadata(folder))


def newest(directory: Path) -> Place | None:
    """The place of the newest checkpoint, be it whole or not."""
    return max(_places(directory), default=None)


def newest_whole(
    directory: Path, warn: Callable[[str], None], largest: int
) -> tuple[Place | None, list[str]]:
    """The place of the newest whole checkpoint, and a line for each newer one that is damaged.

    A checkpoint with a file of more than `largest` bytes is damaged.
    """
    damaged = []
    for place in sorted(_places(directory), reverse=True):
        folder = directory / place.name
        if not (folder / SUMS).exists():
            warn(f"checkpoint {folder} was not written to its end; passing it over")
            continue
        damage = find_damage(folder, largest)
        if not damage:
            return place, damaged
        damaged.append(f"checkpoint {folder} is damaged ({damage})")
    return None, damaged


def stored_metadata(directory: Path) -> Metadata | None:
    """The newest metadata that are as they were written, if there are any."""
    for place in sorted(_places(directory), reverse=True):
        folder = directory / place.name
        with contextlib.suppress(OSError, UsageError):
            marks = untrusted.read_json(folder, SUMS, dict[str, Mark])
            if METADATA in marks and untrusted.is_marked(folder, METADATA, marks[METADATA]):
                return _metadata(folder)
    return None


def discard_after(directory: Path, newest: Place) -> None:
    """Removes what stands after a place, so that the run can go on from there."""
    for place in _places(directory):
        if place > newest and _is_ours(directory / place.name):
            shutil.rmtree(directory / place.name)


def find_damage(folder: Path, largest: int) -> str:
    """What is wrong with a checkpoint, or an empty string.

    Every file must be there as it was when it was written, with at most `largest` bytes.
    """
    try:
        marks = untrusted.read_json(folder, SUMS, dict[str, Mark])
    except (OSError, UsageError):
        return f"{SUMS} is not readable"
    if not {METADATA, STATE} <= marks.keys() <= set(FILES):
        return f"{SUMS} is not a list of sums"
    for name, mark in marks.items():
        if not os.path.lexists(folder / name):
            return f"{name} is missing"
        if mark["bytes"] > largest:
            return f"{name} has {mark['bytes']:,} bytes, more than {largest:,}"
        if not untrusted.is_marked(folder, name, mark, largest):
            return f"{name} has changed"
    try:
        place = _place(_metadata(folder))
    except UsageError as error:
        return str(error).partition(";")[0]
    if place.name != folder.name:
        return f"it is {place.name} under another name"
    if (METRIC_SUMS in marks) != bool(place.step):
        return f"{METRIC_SUMS} is missing" if place.step else f"{METRIC_SUMS} is not of it"
    return ""


def _metadata(folder: Path) -> Metadata:
    """The metadata of a checkpoint. Raises a UsageError for what is none."""
    try:
        metadata: Metadata = untrusted.read_json(folder, METADATA, Metadata)
    except FileNotFoundError as error:
        raise UsageError(f"checkpoint {folder} has lost its {METADATA}; {MEND}") from error
    _place(metadata)
    return metadata


def _place(metadata: Metadata) -> Place:
    place = metadata["place"]
    if len(place) != 2 or max(place) > MOST:
        raise UsageError(f"expected the place of a checkpoint, got {str(place)[:60]}; {MEND}")
    return Place(*place)


def _marks(folder: Path) -> dict[str, Mark]:
    """The marks of the files of a checkpoint, but of the list itself."""
    names = [name for name in FILES if (folder / name).exists()]
    return {name: untrusted.mark_of(folder, name) for name in names}


def _places(directory: Path) -> list[Place]:
    """The places that folders are named after. A link is none."""
    if directory.is_symlink() or not directory.is_dir():
        return []
    names = [path.name for path in directory.iterdir() if path.is_dir() and not path.is_symlink()]
    matches = [re.fullmatch(r"(\d{1,9})(?:\+(\d{1,9}))?", name) for name in names]
    places = [Place(int(match[1]), int(match[2] or 0)) for match in matches if match]
    return [place for place in places if place.name in names]


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint, whole or not, and no other's."""
    names = {path.name for path in folder.iterdir()}
    return all(name in (*FILES, SUMS) or name.startswith(".") for name in names)


def _reason(error: OSError) -> str:
    reasons = {
        errno.ENOSPC: "no space left on the disk",
        errno.EDQUOT: "no space left of the quota",
        errno.EFBIG: "a file is larger than is allowed",
    }
    return reasons.get(error.errno or 0, one_line(error)[:200])
