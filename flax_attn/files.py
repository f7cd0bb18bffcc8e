"""Files that are replaced whole, and their sums."""

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

PARTIAL = ".partial"


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path: Path, keep: bool = False) -> Iterator[Path]:
    """Gives a path to write to, which takes the place of `path` when all is written.

    If writing fails, `path` is as it was. With `keep`, a `path` that is there already stays.
    """
    partial = path.with_name(f".{path.stem}.{uuid.uuid4().hex}{PARTIAL}{path.suffix}")
    try:
        yield partial
        if keep and path.exists():
            partial.unlink()
        else:
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
