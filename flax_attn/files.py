"""Files that are replaced whole, and their sums."""

import contextlib
import errno
import hashlib
import os
import re
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from flax_attn.errors import UsageError, shortened

PARTIAL = ".partial"
LONGEST_STEM = 40  # characters of a name in the name of its partial file


def check_data_folder(name: str, folder: Path | None) -> None:
    """Raises a UsageError for a folder of data sets that is none.

    A data set that looks for its files there has said so itself.
    """
    if folder is not None and not folder.is_dir():
        raise UsageError(f"expected a folder as {name}, got {folder}; leave it out")


def expanded(path: object, what: str = "a path") -> Path:
    """A path of the user's, with a home in place of `~`, and without `..`.

    So a folder that is made on the way changes nothing about what the path names.

    Args:
        path: a text or a `Path`.
        what: the path is, for an error, such as `workdir`.

    Raises:
        UsageError: neither a text nor a `Path`; an empty text, which would name the folder here; an
            address, such as `https://...`; `~NAME`, and no user has this name; characters that no
            path can have.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"expected a text or a Path as {what}, got {shortened(repr(path))}")
    if path == "":
        raise UsageError(f"expected a text that is not empty as {what}, got ''")
    check_no_address(str(path))
    try:
        home_expanded = Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"expected a path with a home that is known, got {path}; write the whole path"
        ) from error
    try:
        is_path = b"\0" not in os.fsencode(home_expanded)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise UsageError(f"expected a path, got {str(path)!a}, which no file can have; rename it")
    return Path(os.path.realpath(home_expanded)) if ".." in home_expanded.parts else home_expanded


def check_no_address(path: str) -> None:
    """Raises a UsageError for an address, such as `https://...` or `s3://...`."""
    if re.match(r"\w+://", path):
        raise UsageError(
            f"expected a path on this machine, got the address {shortened(path)}; give a file or "
            f"folder here"
        )


def check_here() -> None:
    """Raises a UsageError where the current directory has been removed."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UsageError(
            "expected a current directory that exists, but it has been removed; change to another"
        ) from error


def check_writable(path: Path) -> None:
    """Raises an OSError for a file that cannot be written, and leaves nothing behind.

    What is there already must be a regular file: a pipe or a device is not replaced.
    """
    with contextlib.suppress(FileNotFoundError):
        # a link to itself has no status
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def can_be_made(folder: Path) -> bool:
    """Whether a folder can be written, or made and then written. It is not made."""
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    return os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK)


def make_folder(path: Path) -> None:
    """Makes a folder and those above it: all of them, or none."""
    made = missing(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        remove_empty(made)
        raise


def missing(path: Path) -> list[Path]:
    """The path and those above it where nothing stands, those inside others first."""
    return [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes the folders that hold nothing; those inside others come first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def check_regular(path: Path) -> None:
    """Raises an OSError for a pipe or a device, where a file is read more than once."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "a pipe or a device, not a regular file", str(path))


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    check_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path: Path, keep: bool = False) -> Iterator[Path]:
    """Gives a path to write to, which takes the place of `path` when all is written.

    If writing fails, `path` is as it was. With `keep`, a `path` that is there already stays. A
    power cut leaves the one or the other.
    """
    partial = path.with_name(
        f".{path.stem[:LONGEST_STEM]}.{uuid.uuid4().hex}{PARTIAL}{path.suffix}"
    )
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
