"""Reads and writes the files of a run directory: JSON, arrays, and the metrics as they grow.

A directory may come from anyone, so its files are read as data, and nothing in them is executed.
Files are replaced whole, also those that are links.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.files import read_bytes, replacing
from flax_attn.runs.results import Row
from flax_attn.types import Hint, Json

MEND = "run the command that made it again to repair it"
METRICS, EXAMPLES = "metrics.jsonl", "examples.npz"
MOST_ROWS = 100_000  # epochs of all seeds
ATTENTION = "attention/"
SCORES = "scores/"  # of each test example, by metric
LARGEST = 2**28  # bytes of all examples
MOST_ATTENTIONS = 1_000


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises a UsageError for a file that is damaged, and a FileNotFoundError for none."""
    try:
        yield
    except (FileNotFoundError, UsageError):
        raise
    except Exception as error:  # zip and NumPy raise many types for a damaged file
        reason = f"{path} is damaged ({one_line(error)})"
        if isinstance(error, OSError) and error.strerror:
            reason = f"cannot read {path} ({error.strerror})"
        raise UsageError(f"{reason}; {MEND}") from error


def read_json(path: Path, kind: Hint = None) -> Json:
    """Reads a JSON file and validates it against a type. Entries the type does not name are kept.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: no JSON, or JSON of another type.
    """
    with reading(path):
        content = msgspec.json.decode(read_bytes(path))
        if kind is not None:
            msgspec.convert(content, kind)
        return content


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file and checks the CRC-32 of each.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: a damaged file, or arrays of Python objects.
    """
    with reading(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
        # NumPy reads what the header of an array asks for, which may be less than all of it, and
        # the zip module compares the CRC-32 only once it has read everything.
        if (changed := stored.zip.testzip()) is not None:
            raise ValueError(f"{changed} has changed")
        return {key: stored[key] for key in stored.files}


def read_rows(run: Path) -> list[Row]:
    """Reads `metrics.jsonl`. Errors are those of `read_json`."""
    with reading(run / METRICS):
        return msgspec.json.Decoder(Row).decode_lines(read_bytes(run / METRICS))


def append_rows(run: Path, rows: list[Row]) -> None:
    """Appends the rows of one more epoch to `metrics.jsonl`."""
    with open(run / METRICS, "ab") as file:
        file.write(_lines(rows).encode())


def write_rows(run: Path, rows: list[Row]) -> None:
    """Replaces `metrics.jsonl` by one with these rows."""
    write_text(run / METRICS, _lines(rows))


def _lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_json(path: Path, content: Json) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, content: str) -> None:
    with replacing(path) as partial:
        partial.write_text(content, encoding="utf-8")


def write_examples(run: Path, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Writes `examples.npz`, and returns the names of attention weights that were left out.

    The largest are left out, if they are too many or all too large.
    """
    fitting = dict(arrays)
    weights = [name for name in fitting if name.startswith(ATTENTION)]
    weights.sort(key=lambda name: fitting[name].nbytes)
    too_large = lambda: sum(array.nbytes for array in fitting.values()) > LARGEST
    while weights and (len(weights) > MOST_ATTENTIONS or too_large()):
        del fitting[weights.pop()]
    contents: dict = fitting  # the type of `savez` knows no names
    with replacing(run / EXAMPLES) as partial:
        np.savez_compressed(partial, **contents)
    return sorted(arrays.keys() - fitting.keys())
