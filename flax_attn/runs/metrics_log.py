"""The metrics of a run as they grow: `metrics.jsonl`, and a copy beside the checkpoints.

A checkpoint marks how far the file had come, by its bytes and their SHA-256. So saving costs the
same after every epoch, and a run goes on from the rows that its checkpoint knows. Where one of the
two files is damaged, the other mends it.
"""

import hashlib
import json
import os
from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.files import replacing
from flax_attn.runs.results import Row
from flax_attn.types import JsonObject

NAME = "metrics.jsonl"


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

    def mark(self) -> JsonObject:
        """How far the files have come."""
        return {"bytes": self._size, "sha256": self._sum.hexdigest()}


def read_until(run: Path, mark: JsonObject) -> list[Row]:
    """The rows until a mark, from the one file or the other.

    Raises:
        UsageError: both are damaged.
    """
    for path in (run / NAME, run / "checkpoints" / NAME):
        try:
            with open(path, "rb") as file:
                content = file.read(mark["bytes"])
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == mark["sha256"]:
            return [json.loads(line) for line in content.splitlines()]
    raise UsageError(
        f"{run / NAME} and its copy in {run / 'checkpoints'} have changed since training wrote "
        f"them; remove {run / 'checkpoints'} to train from the start"
    )


def as_lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
