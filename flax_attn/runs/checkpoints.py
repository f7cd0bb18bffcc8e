"""Checkpoints that are whole or not there.

A checkpoint is a folder. `flax.serialization` writes its arrays. Beside them is the log of metrics
until then. The list of sums is written last: a checkpoint without it was not written to its end.
Before anything is restored, every file is compared with its sum.

`checkpoints/7` is the end of epoch 7. `checkpoints/7+120` is 120 steps after it, where training
was told to stop.
"""

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from flax_attn.errors import UsageError, one_line
from flax_attn.files import sync
from flax_attn.runs import metrics_log, sums, untrusted
from flax_attn.runs.results import Metadata, Row
from flax_attn.runs.untrusted import MEND
from flax_attn.types import JsonObject, Tree

METADATA = "metadata.json"
STATE, METRIC_SUMS = "state.msgpack", "metric_sums.msgpack"
IN_ALL = {METADATA, STATE, metrics_log.NAME}
FILES = {*IN_ALL, METRIC_SUMS}
KEEP = 2  # ends of epochs


class Progress(NamedTuple):
    """How far training has come: whole epochs, and steps of the next."""

    epoch: int
    step: int = 0

    @property
    def name(self) -> str:
        return f"{self.epoch}+{self.step}" if self.step else str(self.epoch)


class Checkpoint(NamedTuple):
    """What a checkpoint holds. Only a begun epoch has metric sums."""

    folder: Path
    progress: Progress
    state: Tree
    metric_sums: Tree
    metadata: Metadata

    def rows(self) -> list[Row]:
        """Reads the metrics until then. Raises a UsageError for what are none."""
        return metrics_log.read(self.folder)


def save(
    directory: Path,
    progress: Progress,
    state: Tree,
    metadata: JsonObject,
    metrics: bytes | bytearray,
    metric_sums: Tree = None,
) -> None:
    """Writes a checkpoint, and removes all but the newest two ends of epochs.

    Args:
        directory: where the checkpoints of the run are.
        progress: how far training has come.
        state: of all seeds.
        metadata: the rest of the metadata.
        metrics: the content of the log of metrics.
        metric_sums: of the steps of a begun epoch.

    Raises:
        UsageError: it cannot be written.
    """
    from flax_attn.runs import arrays  # which to read a config does not need

    folder = directory / progress.name
    try:
        folder.mkdir(parents=True)
        arrays.write(folder / STATE, state)
        if metric_sums is not None:
            arrays.write(folder / METRIC_SUMS, metric_sums)
        (folder / metrics_log.NAME).write_bytes(metrics)
        (folder / METADATA).write_text(json.dumps(metadata | progress._asdict()))
        sync(directory)
        sums.write(folder, [path.name for path in folder.iterdir()])
    except OSError as error:
        raise UsageError(
            f"cannot write checkpoint {folder} ({_reason(error)}); the same command goes on after "
            f"the last one"
        ) from error
    prune(directory, progress)


def prune(directory: Path, newest: Progress) -> None:
    """Removes all but the newest two ends of epochs, and the newest of all."""
    saved = _saved(directory)
    epochs = sorted((progress for progress in saved if not progress.step), reverse=True)
    _remove(directory, [old for old in saved if old < newest and old not in epochs[:KEEP]])


def discard_after(directory: Path, newest: Progress) -> None:
    """Removes what is further than the newest that is wanted, so that the run goes on from it."""
    _remove(directory, [later for later in _saved(directory) if later > newest])


def restore(
    directory: Path,
    template: Tree,
    warn: Callable[[str], None],
    *,
    metric_sums: Tree = None,
    only_newest: bool = False,
) -> Checkpoint | None:
    """The newest whole checkpoint. None where none was ever written to its end.

    Damaged ones are passed over, each with a line to `warn`.

    Args:
        directory: where the checkpoints of the run are.
        template: a state of the same structure, shapes and dtypes; its values do not matter.
        warn: takes a line of text.
        metric_sums: those of a begun epoch, like the template. None where they are not needed.
        only_newest: whether a newest one that is damaged is an error.

    Raises:
        UsageError: all are damaged, or the newest whole one is of another state than the template.
    """
    from flax_attn.runs import arrays  # which to read a config does not need

    progress, damaged = newest_whole(directory, warn, arrays.largest(template))
    if damaged and only_newest:
        raise UsageError(f"{damaged[0]}; {MEND}")
    if progress is None:
        if damaged:
            raise UsageError(
                f"{damaged[0]} and none before it is whole; remove {directory} to train from the "
                f"start"
            )
        return None
    for line in damaged:
        warn(f"{line}; using {progress.name}")
    folder = directory / progress.name
    has_sums = metric_sums is not None and progress.step > 0
    state = arrays.read(folder, STATE, template)
    metric_sums = arrays.read(folder, METRIC_SUMS, metric_sums) if has_sums else None
    return Checkpoint(folder, progress, state, metric_sums, _metadata(folder))


def newest(directory: Path) -> Progress | None:
    """How far the newest checkpoint is, be it whole or not."""
    return max(_saved(directory), default=None)


def newest_whole(
    directory: Path, warn: Callable[[str], None], largest: int
) -> tuple[Progress | None, list[str]]:
    """How far the newest whole checkpoint is, and a line for each newer one that is damaged.

    Arrays of a whole one have at most `largest` bytes.
    """
    damaged = []
    for progress in sorted(_saved(directory), reverse=True):
        folder = directory / progress.name
        if not (folder / sums.SUMS).exists():
            warn(f"checkpoint {folder} was not written to its end; passing it over")
            continue
        damage = find_damage(folder, largest)
        if not damage:
            return progress, damaged
        damaged.append(f"checkpoint {folder} is damaged ({damage})")
    return None, damaged


def stored_metadata(directory: Path) -> Metadata | None:
    """The newest metadata that are as they were written, if there are any."""
    for progress in sorted(_saved(directory), reverse=True):
        folder = directory / progress.name
        with contextlib.suppress(OSError, UsageError):
            listed = sums.read(folder)
            if METADATA in listed and not sums.change_of(folder, METADATA, listed[METADATA]):
                return _metadata(folder)
    return None


def find_damage(folder: Path, largest: int) -> str:
    """What is wrong with a checkpoint, or an empty string.

    Every file must be there as it was when it was written. None has more than `largest` bytes, or
    than a log of metrics may have.
    """
    try:
        names = sums.read(folder).keys()
    except (OSError, UsageError):
        return f"{sums.SUMS} is not readable"
    if not IN_ALL <= names <= FILES:
        return f"{sums.SUMS} is not a list of the files of a checkpoint"
    for name, what in sums.changes(folder, max(largest, metrics_log.LARGEST)).items():
        return f"{name} {what}"
    try:
        metadata = _metadata(folder)
    except UsageError as error:
        return str(error).partition(";")[0]
    progress = Progress(metadata["epoch"], metadata["step"])
    if progress.name != folder.name:
        return f"it is {progress.name} under another name"
    if (METRIC_SUMS in names) != bool(progress.step):
        return f"{METRIC_SUMS} is {'missing' if progress.step else 'not of it'}"
    return ""


def _metadata(folder: Path) -> Metadata:
    metadata: Metadata = untrusted.read_json(folder, METADATA, Metadata)
    return metadata


def _saved(directory: Path) -> list[Progress]:
    """How far the checkpoints are, by the names of their folders. A link is none."""
    if directory.is_symlink() or not directory.is_dir():
        return []
    names = [path.name for path in directory.iterdir() if path.is_dir() and not path.is_symlink()]
    matches = [re.fullmatch(r"(\d{1,9})(?:\+(\d{1,9}))?", name) for name in names]
    saved = [Progress(int(match[1]), int(match[2] or 0)) for match in matches if match]
    return [progress for progress in saved if progress.name in names]


def _remove(directory: Path, saved: list[Progress]) -> None:
    """Removes checkpoints, and no folder of another."""
    for folder in (directory / progress.name for progress in saved):
        if _is_ours(folder):
            shutil.rmtree(folder)


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint, whole or not, and no other's."""
    names = {path.name for path in folder.iterdir()}
    return all(name in (*FILES, sums.SUMS) or name.startswith(".") for name in names)


def _reason(error: OSError) -> str:
    reasons = {
        errno.ENOSPC: "no space left on the disk",
        errno.EDQUOT: "no space left of the quota",
        errno.EFBIG: "a file is larger than is allowed",
    }
    return reasons.get(error.errno or 0, one_line(error)[:200])
