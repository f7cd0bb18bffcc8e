"""The list `sums.json` of a run directory: size and SHA-256 of every file that decides a number.

It is written when training begins, over the config and what the data decided, and again when the
run is finished, over everything. A changed byte is reported before any number is shown.
"""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.files import replacing
from flax_attn.runs import untrusted
from flax_attn.runs.untrusted import MEND, Mark

SUMS = "sums.json"
FIGURE = r"figures/[^/]+"
NAME = rf"[^/]+|{FIGURE}|checkpoints/[^/]+/[^/]+"


def write(path: Path, names: Iterable[str]) -> None:
    """Lists the marks of files of a run directory."""
    marks = {name: untrusted.mark_of(path, name) for name in sorted(names)}
    with replacing(path / SUMS) as partial:
        partial.write_text(json.dumps(marks, indent=2) + "\n")


def read(path: Path) -> dict[str, Mark]:
    """The marks by file; empty for a run that has not begun to train.

    Raises:
        UsageError: the list is damaged, or names what is no file of a run.
    """
    try:
        marks = untrusted.read_json(path, SUMS, dict[str, Mark])
    except FileNotFoundError:
        return {}
    for name in marks:
        if not untrusted.is_plain(name) or re.fullmatch(NAME, name, re.DOTALL) is None:
            raise UsageError(
                f"expected the names of files of a run in {path / SUMS}, got {name[:60]!r}; {MEND}"
            )
    return marks


def changed(path: Path) -> list[str]:
    """The files that are listed and are not as they were written, or not there."""
    return [name for name, mark in read(path).items() if not untrusted.is_marked(path, name, mark)]


def is_figure(name: str) -> bool:
    """Whether a name of the list is that of a figure. Figures decide nothing."""
    return re.fullmatch(FIGURE, name, re.DOTALL) is not None


def check(path: Path) -> None:
    """Raises a UsageError that names the first file that is not as it was written.

    Figures decide nothing, and may be anything.
    """
    for name in changed(path):
        if not is_figure(name):
            what = "has changed" if os.path.lexists(path / name) else "is missing"
            raise UsageError(f"{path / name} {what} since training wrote it; {MEND}")
