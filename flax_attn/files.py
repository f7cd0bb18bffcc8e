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

    If writing fails, `path` is as it was. With `keep`, a `path` that is there already stays. A
    power cut leaves the one or the other.
    """
    partial = path.with_name(f".{path.stem}.{uuid.uuid4().hex}{PARTIAL}{path.suffix}")
    try:
        yield partial
        sync(partial)
        if keep and path.exists():
            partial.unlink()
        else:
            os.replace(partial, path)
            sync(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Waits until a file, or the list of files of a folder, would survive a power cut."""
    if path.is_dir() and os.name == "nt":
        return  # Windows syncs files alone
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_partial(folder: Path) -> None:
    """Removes what killed processes left of files that they were writing."""
    for path in folder.glob(f".*{PARTIAL}*"):
        path.unlink(missing_ok=True)
