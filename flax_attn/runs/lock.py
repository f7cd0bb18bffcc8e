"""A lock on a run directory, so that no two processes train into it.

The operating system holds it for the process, and releases it when the process ends, also after a
`kill -9`. The file names the process.
"""

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.files import remove_empty

try:
    import fcntl
except ImportError:  # Windows has no such lock
    fcntl = None

LOCK = ".lock"
OWN, COMMON = "metrics.jsonl", ("config.json", "checkpoints")  # other projects have the latter


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the lock of a run directory, and makes the directory if need be.

    A directory that holds nothing afterwards is removed, as are the folders made for it.

    Raises:
        UsageError: another process holds it, the directory is inside another run, or it cannot be
            written.
    """
    check_place(path)
    made = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
    file = path / LOCK
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(file)
    except OSError as error:
        remove_empty(made)
        raise UsageError(
            f"cannot write to run directory {path} ({error.strerror}); choose another --workdir"
        ) from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)
        remove_empty(made)


def check_place(path: Path) -> None:
    """Raises a UsageError for a run directory that is a file, or inside another run."""
    check_no_file(path)
    for folder in filter(is_run, Path(os.path.realpath(path)).parents):
        raise UsageError(
            f"expected --workdir outside of other runs, but {path} is inside the run {folder}; "
            f"choose another"
        )


def is_run(path: Path) -> bool:
    """Returns whether a folder is a run directory that has begun to train, also a damaged one."""
    return os.path.exists(path / OWN) and any(os.path.exists(path / name) for name in COMMON)


def check_no_file(path: Path) -> None:
    """Raises a UsageError where a file has the name of a run directory."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise UsageError(
            f"expected --workdir to be a directory, but {path} is a file; choose another"
        )


def _lock(file: Path) -> int:
    """Opens the file that holds the lock."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(file, flags, 0o644)  # through no link that somebody has put there
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1_000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise UsageError(
                f"{file.parent} is in use by {holder}; wait for it or choose another --workdir"
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            if os.path.samestat(os.stat(file), os.fstat(descriptor)):
                break
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the holder has removed it meanwhile
    os.ftruncate(descriptor, 0)
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    os.write(descriptor, f"process {os.getpid()} on {platform.node()} since {now}".encode())
    return descriptor
