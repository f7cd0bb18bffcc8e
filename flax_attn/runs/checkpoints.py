"""Checkpoints that are whole or not there.

A checkpoint is a folder. `flax.serialization` writes its arrays, and a list of SHA-256 sums is
written last. A checkpoint without this list was not written to its end. Before anything is
restored, every file is compared with its sum.

`checkpoints/7` is the end of epoch 7. `checkpoints/7+120` is 120 steps after it, where training
was told to stop.
"""

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing, sha256, sync
from flax_attn.types import JsonObject, Tree

SUMS = "sha256.json"
METADATA = "metadata.json"
STATE, METRIC_SUMS = "state.msgpack", "sums.msgpack"
KEEP = 2  # ends of epochs
OLDER = ("default", "sums")  # folders that earlier versions wrote with Orbax
OLDER_TEMPORARY = ".orbax-checkpoint-tmp"


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
        files = json.dumps(_sums(folder))
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
    has_sums = sums is not None and place.step > 0
    if "layout" in metadata:
        from flax_attn.runs import older

        state = older.read_state(folder, template, metadata.pop("layout"))
        sums = older.read(folder / older.SUMS, sums) if has_sums else None
    else:
        from flax_attn.runs import arrays  # which to read a config does not need

        state = arrays.read(folder / STATE, template)
        sums = arrays.read(folder / METRIC_SUMS, sums) if has_sums else None
    return Checkpoint(place, state, sums, metadata)


def newest(directory: Path) -> Place | None:
    """The place of the newest checkpoint, be it whole or not."""
    return max(_places(directory), default=None)


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
            if OLDER_TEMPORARY in path.name and path.is_dir():
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
    ours = (METADATA, SUMS, STATE, METRIC_SUMS)
    return all(name in ours or name.startswith((".", *OLDER)) for name in names)


def _reason(error: OSError) -> str:
    reasons = {
        errno.ENOSPC: "no space left on the disk",
        errno.EDQUOT: "no space left of the quota",
        errno.EFBIG: "a file is larger than is allowed",
    }
    return reasons.get(error.errno or 0, one_line(error)[:200])
