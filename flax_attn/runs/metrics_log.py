"""Reads and writes `metrics.jsonl`, the metrics of a run as they grow."""

import json
from pathlib import Path

import msgspec

from flax_attn.errors import UsageError, one_line
from flax_attn.files import replacing
from flax_attn.runs.results import Row
from flax_attn.runs.untrusted import MEND, read_bytes

NAME = "metrics.jsonl"
LARGEST = 2**27  # bytes
MOST_ROWS = 100_000  # epochs of all seeds


def append(run: Path, rows: list[Row]) -> None:
    """Appends the rows of one more epoch."""
    with open(run / NAME, "ab") as file:
        file.write(as_lines(rows))


def write(run: Path, rows: list[Row]) -> None:
    """Replaces the file by one with these rows."""
    with replacing(run / NAME) as partial:
        partial.write_bytes(as_lines(rows))


def read(run: Path) -> list[Row]:
    """Reads the rows.

    Raises:
        FileNotFoundError: there are none.
        UsageError: the file is damaged.
    """
    content = read_bytes(run, NAME, LARGEST)
    try:
        return msgspec.json.Decoder(Row).decode_lines(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{run / NAME} is damaged ({one_line(error)}); {MEND}") from error


def as_lines(rows: list[Row]) -> bytes:
    """Returns rows as lines of JSON."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
