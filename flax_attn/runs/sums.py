"""The list `sums.json` of a run directory: the SHA-256 of every file that decides a number.

It is written when training begins, over the config and what the data decided, and again when the
run is finished, over everything. A changed byte is reported before any number is shown. A run
directory of an earlier version has no list, and is read without one.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing, sha256

SUMS = "sums.json"
MEND = "run the command that made it again to mend it"


def write(path: Path, names: Iterable[str]) -> None:
    """Lists the sums of files of a run directory."""
    sums = {name: sha256(path / name) for name in sorted(names)}
    with replacing(path / SUMS) as partial:
        partial.write_text(json.dumps(sums, indent=2) + "\n")


def read(path: Path) -> dict[str, str]:
    """The sums by file; empty for a run that has none.

    Raises:
        UsageError: the list is damaged.
    """
    try:
        sums = json.loads((path / SUMS).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"expected sums in {path / SUMS} ({one_line(error)}); {MEND}") from error
    if not isinstance(sums, dict) or not all(isinstance(known, str) for known in sums.values()):
        raise UsageError(f"expected sums in {path / SUMS}, got something else; {MEND}")
    return sums


def changed(path: Path) -> list[str]:
    """The files that are listed and are not as they were written, or not there."""
    return [name for name, known in read(path).items() if _sum(path / name) != known]


def check(path: Path) -> None:
    """Raises a UsageError that names the first file that is not as it was written.

    Figures decide nothing, and may be anything.
    """
    for name in changed(path):
        if not name.startswith("figures/"):
            what = "has changed" if (path / name).exists() else "is missing"
            raise UsageError(f"{path / name} {what} since training wrote it; {MEND}")


def _sum(path: Path) -> str | None:
    try:
        return sha256(path) if path.is_file() else None
    except OSError:
        return None
