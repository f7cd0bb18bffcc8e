"""The metrics of a run as they grow: the log `metrics.jsonl`.

The log of a run directory grows by the rows of each epoch. A checkpoint has the log until its epoch
among its own files. A run that goes on takes its rows from there, and writes its log anew.
"""

import json
from pathlib import Path

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing
from flax_attn.runs import untrusted
from flax_attn.runs.results import Row
from flax_attn.runs.untrusted import MEND

NAME = "metrics.jsonl"
LARGEST = 2**27  # bytes
LARGEST_METRIC = 2.0**128  # metrics are measured in float32
MOST_ROWS = 100_000  # epochs of all seeds


class MetricsLog:
    """The log of a run, open for writing.

    Attributes:
        path: of the file.
        content: its bytes, as they were written. Those on the disk may be damaged meanwhile.
    """

    def __init__(self, run: Path):
        self.path, self.content = run / NAME, bytearray()

    def append(self, rows: list[Row]) -> None:
        """Writes the rows of one more epoch."""
        lines = as_lines(rows)
        with open(self.path, "ab") as file:
            file.write(lines)
        self.content += lines

    def begin(self, rows: list[Row]) -> None:
        """Writes the file anew, with these rows."""
        self.content = bytearray(as_lines(rows))
        self.write()

    def write(self) -> None:
        """Writes the file anew, with the rows that it should have."""
        with replacing(self.path) as partial:
            partial.write_bytes(self.content)


def read(folder: Path) -> list[Row]:
    """The rows of a finished run, or of a checkpoint.

    Raises:
        FileNotFoundError: there are none.
        UsageError: the file is damaged.
    """
    return from_lines(folder, untrusted.read_bytes(folder, NAME, LARGEST))


def from_lines(folder: Path, content: bytes) -> list[Row]:
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
        raise UsageError(f"expected rows in {folder / NAME} ({one_line(error)}); {MEND}") from error
    return rows


def as_lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
