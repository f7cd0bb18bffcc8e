"""The metrics of a run as they grow: `metrics.jsonl`, and a copy beside the checkpoints.

A checkpoint marks how far the file had come, by its bytes and their SHA-256. So saving costs the
same after every epoch, and a run goes on from the rows that its checkpoint knows. Where one of the
two files is damaged, the other mends it.
"""

import hashlib
import json
import os
from pathlib import Path

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing
from flax_attn.runs import untrusted
from flax_attn.runs.results import Row
from flax_attn.runs.untrusted import MEND, Mark

NAME = "metrics.jsonl"
LARGEST = 2**27  # bytes
LARGEST_METRIC = 2.0**128  # metrics are measured in float32
MOST_ROWS = 100_000  # epochs of all seeds


class MetricsLog:
    """The rows of a run, open for writing."""

    def __init__(self, run: Path):
        self.paths = (run / "checkpoints" / NAME, run / NAME)
        self._sum, self._size = hashlib.sha256(), 0

    def begin(self, rows: list[Row]) -> None:
        """Writes both files anew, with these rows."""
        content = as_lines(rows)
        for path in self.paths:
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as partial:
                partial.write_bytes(content)
        self._sum, self._size = hashlib.sha256(content), len(content)

    def append(self, rows: list[Row]) -> None:
        content = as_lines(rows)
        for path in self.paths:
            with open(path, "ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._sum.update(content)
        self._size += len(content)

    def mark(self) -> Mark:
        """How far the files have come."""
        return {"bytes": self._size, "sha256": self._sum.hexdigest()}


def read_until(run: Path, mark: Mark) -> list[Row]:
    """The rows until a mark, from the one file or the other.

    Raises:
        UsageError: both are damaged.
    """
    for name in (NAME, f"checkpoints/{NAME}"):
        try:
            content = untrusted.read_bytes(run, name, LARGEST)[: mark["bytes"]]
        except (OSError, UsageError):
            continue
        if hashlib.sha256(content).hexdigest() == mark["sha256"]:
            return from_lines(run, content)
    raise UsageError(
        f"{run / NAME} and its copy in {run / 'checkpoints'} have changed since training wrote "
        f"them; remove {run / 'checkpoints'} to train from the start"
    )


def read(run: Path) -> list[Row]:
    """The rows of a finished run.

    Raises:
        FileNotFoundError: there are none.
        UsageError: the file is damaged.
    """
    return from_lines(run, untrusted.read_bytes(run, NAME, LARGEST))


def from_lines(run: Path, content: bytes) -> list[Row]:
    """The rows in lines of JSON. Raises a UsageError where they are no rows, or too many."""
    rows: list[Row] = []
    try:
        for line in content.splitlines():
            row = untrusted.parse(line, may_be_nan=True)  # a metric of a seed that diverged
            untrusted.check(row, dict[str, float], "a row")
            for key in ("epoch", "seed", "step"):
                untrusted.check(row.get(key), int, key)
            if any(abs(value) > LARGEST_METRIC for value in row.values()):
                raise ValueError("a metric that is too large for float32")
            rows.append(row)
            if len(rows) > MOST_ROWS:
                raise ValueError(f"more than {MOST_ROWS:,} rows")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected rows in {run / NAME} ({one_line(error)}); {MEND}") from error
    return rows


def as_lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
