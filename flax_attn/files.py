"""Files: paths of users, files that are read whole, and files that are replaced whole."""

import contextlib
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from flax_attn.errors import UsageError, shortened
from flax_attn.types import Tree

LARGEST = 4 * 2**30  # bytes of a file that is read whole
PARTIAL = ".partial"
LONGEST_STEM = 40  # characters of a name in the name of its partial file


def expanded(path: object, what: str = "a path") -> Path:
    """Returns a path of the user's with a home in place of `~`, and without `..`.

    Making a folder on the way then changes nothing about the file that the path names.

    Raises:
        UsageError: neither a text nor a `Path`; an empty text, as of an empty variable, which would
            name the folder here; or an address, such as `gs://...`, which would become a folder.
    """
    if not isinstance(path, str | os.PathLike) or path == "" or re.match(r"\w+://", str(path)):
        got = shortened(repr(path))
        raise UsageError(f"expected a text or a Path on this machine as {what}, got {got}")
    home_expanded = Path(os.path.expanduser(path))
    return Path(os.path.realpath(home_expanded)) if ".." in home_expanded.parts else home_expanded


def read_bytes(path: Path) -> bytes:
    """Reads a whole file, or a pipe to its end. Raises a UsageError for more than `LARGEST`."""
    with open(path, "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > LARGEST:
            raise UsageError(f"expected at most {LARGEST:,} bytes in {path}, got {size:,}")
        return file.read()


def check_writable(path: Path) -> None:
    """Raises an OSError for a file that cannot be written, and leaves nothing behind."""
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def can_be_made(folder: Path) -> bool:
    """Returns whether a folder can be written, or made and then written. It is not made."""
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    return os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK)


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes the folders that hold nothing; those inside others come first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[Mapping[str, Tree]]:
    """Opens a .npz file as its arrays by name, or a .npy file as one array named ''.

    An array of a .npz file is read when it is asked for. Nothing is unpickled.

    Raises:
        OSError: no such file.
        UsageError: another kind of file, a damaged one, or arrays of Python objects.
    """
    import numpy as np  # not above: `train --help` needs none

    try:
        # a file that NumPy opens itself stays open where it is damaged
        with open(path, "rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            yield {"": loaded} if isinstance(loaded, np.ndarray) else loaded
    except (OSError, UsageError):
        raise
    # NumPy takes any other file for a pickle, and advises to load it unsafely
    except Exception as error:
        raise UsageError(
            f"expected arrays in {path} as numpy.savez writes them, got another kind of file, a "
            f"damaged one, or arrays of objects; write texts as np.array(texts, dtype=str)"
        ) from error


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write to, which takes the place of `path` when all is written.

    If writing fails, `path` is as it was. A power cut leaves the one or the other.
    """
    partial = path.with_name(
        f".{path.stem[:LONGEST_STEM]}.{uuid.uuid4().hex}{PARTIAL}{path.suffix}"
    )
    try:
        yield partial
        sync(partial)
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
