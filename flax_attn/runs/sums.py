"""Lists of sums: `sums.json` of a run directory, and of each checkpoint.

A sum is the size and the SHA-256 of a file. The list of a run directory has the sums of the config
and of what the data decided when training begins, and of everything when the run is finished. The
list of a checkpoint is written last: a checkpoint without one was not written to its end. A changed
byte is reported before any number is shown.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from flax_attn.errors import UsageError
from flax_attn.files import replacing, sync
from flax_attn.runs import untrusted
from flax_attn.runs.untrusted import MEND

SUMS = "sums.json"
FIGURE = r"figures/[^/]+"
NAME = rf"[^/]+|{FIGURE}|checkpoints/[^/]+/[^/]+"
LARGEST = 2**29  # bytes of any file but a checkpoint, whose model says how large it is


class Sum(TypedDict):
    """What a file was when it was listed."""

    bytes: int
    sha256: str


def write(folder: Path, names: Iterable[str]) -> None:
    """Lists the sums of files of a folder, once the files are on the disk."""
    listed = {name: sum_of(folder, name) for name in sorted(names)}
    for path in (*(folder / name for name in listed), folder):
        sync(path)
    with replacing(folder / SUMS) as partial:
        partial.write_text(json.dumps(listed, indent=2) + "\n")


def read(folder: Path) -> dict[str, Sum]:
    """The sums by file; empty where there is no list, as in a run that has not begun to train.

    Raises:
        UsageError: the list is damaged, or names what is no file of a run.
    """
    try:
        listed = untrusted.read_json(folder, SUMS, dict[str, Sum])
    except FileNotFoundError:
        return {}
    for name in listed:
        if not untrusted.is_plain(name) or re.fullmatch(NAME, name, re.DOTALL) is None:
            raise UsageError(
                f"expected the names of files of a run in {folder / SUMS}, got {name[:60]!r}; "
                f"{MEND}"
            )
    return listed


def changes(folder: Path, largest: int = LARGEST) -> dict[str, str]:
    """What has happened to each listed file that is not as it was, in words, such as `is missing`.

    A file of another size, or listed with more than `largest` bytes, is not read.
    """
    words = {name: change_of(folder, name, then, largest) for name, then in read(folder).items()}
    return {name: what for name, what in words.items() if what}


def change_of(folder: Path, name: str, then: Sum, largest: int = LARGEST) -> str:
    """What has happened to a file since it had a sum; empty for nothing."""
    if not os.path.lexists(folder / name):
        return "is missing"
    if then["bytes"] > largest:
        return f"has {then['bytes']:,} bytes, more than {largest:,}"
    try:
        same_size = os.lstat(folder / name).st_size == then["bytes"]
        return "" if same_size and sum_of(folder, name) == then else "has changed"
    except (OSError, UsageError):
        return "has changed"


def sum_of(folder: Path, name: str) -> Sum:
    """The sum of a file as it is now. Errors are those of `untrusted.open_file`."""
    with untrusted.open_file(folder, name, largest=2**63) as file:
        size = os.fstat(file.fileno()).st_size
        return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def is_figure(name: str) -> bool:
    """Whether a name of the list is that of a figure. Figures decide nothing."""
    return re.fullmatch(FIGURE, name, re.DOTALL) is not None


def check(folder: Path) -> None:
    """Raises a UsageError that names the first file that is not as it was written.

    Figures decide nothing, and may be anything.
    """
    for name, what in changes(folder).items():
        if not is_figure(name):
            raise UsageError(f"{folder / name} {what} since training wrote it; {MEND}")
