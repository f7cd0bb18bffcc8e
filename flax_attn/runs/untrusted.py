"""Reads files of a run directory. They are data and may come from anyone, so nothing is executed.

The names are those of the code, never from a file, and a file has a size limit. Nothing is written
or removed through a link: files are replaced, and a folder that is a link is refused.
"""

import io
import os
from pathlib import Path

import msgspec
import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.types import Hint, Json

LARGEST_JSON = 2**24  # bytes
MEND = "run the command that made it again to repair it"


def open_file(run: Path, name: str, largest: int) -> io.BufferedReader:
    """Opens a file below a directory to read its bytes.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: the file is too large or cannot be read.
    """
    path = run / name
    try:
        if (size := os.stat(path).st_size) > largest:
            raise UsageError(f"expected at most {largest:,} bytes in {path}, got {size:,}; {MEND}")
        return open(path, "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}); {MEND}") from error


def read_bytes(run: Path, name: str, largest: int = LARGEST_JSON) -> bytes:
    """Reads a file. Errors are those of `open_file`."""
    with open_file(run, name, largest) as file:
        return file.read()


def read_json(run: Path, name: str, kind: Hint = None) -> Json:
    """Reads a JSON file and validates it against a type. Entries the type does not name are kept.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: as `open_file`; no JSON, or JSON of another type.
    """
    try:
        content = msgspec.json.decode(read_bytes(run, name))
        if kind is not None:
            msgspec.convert(content, kind)
        return content
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{run / name} is damaged ({one_line(error)}); {MEND}") from error


def read_arrays(run: Path, name: str, largest: int) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file and checks the CRC-32 of each.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: as `open_file`; a damaged file, or arrays of Python objects.
    """
    try:
        with open_file(run, name, largest) as file, np.load(file, allow_pickle=False) as stored:
            # NumPy reads what the header of an array asks for, which may be less than all of it,
            # and the zip module compares the CRC-32 only once it has read everything.
            if (changed := stored.zip.testzip()) is not None:
                raise ValueError(f"{changed} has changed")
            return {key: stored[key] for key in stored.files}
    except (FileNotFoundError, UsageError):
        raise
    except Exception as error:  # zip and NumPy raise many types for a damaged file
        raise UsageError(f"{run / name} is damaged ({one_line(error)}); {MEND}") from error
