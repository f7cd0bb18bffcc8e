"""Limits on the files that a user names, so that a bad one is refused before it takes memory.

A size that a header tells is checked before anything is allocated. An error names the limit.
"""

import contextlib
import gzip
import io
import math
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from flax_attn.errors import UsageError, one_line, shortened

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_FILE = 4 * 2**30  # bytes
LARGEST_PICTURE = 2**28  # bytes of its file
MOST_PIXELS = 2**26
LONGEST_SIDE = 2**16 - 1  # pixels, as in JPEG; a picture of one row takes far more to resize
# what no text has, and how PNG and JPEG begin; bytes of 0 may be UTF-16
BINARY = re.compile("[\x01-\x08\x0e-\x1f]|^\udc89PNG|^\udcff\udcd8\udcff")
LONGEST_LINE = 10_000_000  # characters, also of a row of a table and of all its cells
LONGEST_HEADER = 10_000  # bytes, of a .npy file
LONGEST_LIST = 2**22  # bytes, of the list of what a .npz file holds
MOST_AXES = 8
MOST_TIMES = 100  # a compressed file may grow by this factor
ALWAYS_UNPACKED = 2**26  # bytes that every compressed file may grow to

OpenFile = io.BufferedReader | gzip.GzipFile


def open_file(path: Path, largest: int = LARGEST_FILE) -> io.BufferedReader:
    """Opens a file to read its bytes.

    Raises:
        OSError: no such file, or a folder.
        UsageError: a file of more than `largest` bytes.
    """
    if (size := path.stat().st_size) > largest:
        raise UsageError(
            f"expected a file of at most {largest:,} bytes in {path}, got {size:,}; split it"
        )
    return open(path, "rb")


def most_unpacked(file: BinaryIO) -> int:
    """The bytes that may come out of an open compressed file."""
    return min(LARGEST_FILE, max(ALWAYS_UNPACKED, MOST_TIMES * os.fstat(file.fileno()).st_size))


def lines(
    path: Path, file: OpenFile, most: int = LARGEST_FILE, newline: str = "\n"
) -> Iterator[str]:
    """The lines of text in an open file, each with its end, without a byte order mark.

    Args:
        path: of the file, for errors.
        file: open at its beginning.
        most: characters of all lines together.
        newline: what ends a line; '' for every usual end.

    Raises:
        UsageError: other bytes than UTF-8, with the number of their line; a line or a file that is
            too long.
    """
    number, total = 0, 0
    with io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline) as text:
        while line := text.readline(LONGEST_LINE + 1):
            number, total = number + 1, total + len(line)
            if len(line) > LONGEST_LINE:
                raise UsageError(
                    f"expected lines of at most {LONGEST_LINE:,} characters in {path}, line "
                    f"{number} has more; split it"
                )
            if total > most:
                raise UsageError(
                    f"expected at most {most:,} characters in {path}, got more; split it, or write "
                    f"it without compression"
                )
            if not line.isascii() and not _is_text(line):
                if BINARY.search(line):
                    raise UsageError(
                        f"expected a file of text, got the binary file {path}; save a spreadsheet "
                        f"as CSV, and unpack what is packed"
                    )
                raise UsageError(
                    f"expected text in UTF-8 in {path}, line {number}, got other bytes; save it in "
                    f"UTF-8"
                )
            yield line


def _is_text(line: str) -> bool:
    """Whether no byte of a line had to be escaped."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_npy(path: Path) -> np.ndarray:
    """The array in a .npy file. It stays on disk until it is used.

    Raises:
        OSError: as `open_file`.
        UsageError: no array, one of Python objects, an empty one, or a file that is cut off.
    """
    with open_file(path) as file:
        head = io.BytesIO(file.read(LONGEST_HEADER))
        size = os.fstat(file.fileno()).st_size
    if head.getvalue()[:2] == b"PK":
        raise UsageError(
            f"expected one array in {path}, got an archive of several; save one with numpy.save"
        )
    shape, is_fortran, dtype, needed = _npy_header(str(path), head)
    if not needed:
        raise UsageError(f"expected numbers in {path}, got an empty array, of shape {shape}")
    offset = head.tell()
    if needed > size - offset:
        raise UsageError(
            f"{path} is cut off: its header says {needed:,} bytes, and {size - offset:,} follow; "
            f"get the file again"
        )
    return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")


def read_npz(
    path: Path,
    file: BinaryIO | None = None,
    choose: Callable[[list[str]], Iterable[str]] = list,
    most: int | None = None,
) -> dict[str, np.ndarray]:
    """The arrays in a .npz file, by name.

    Args:
        path: of the file.
        file: the same file, where it is open already; it stays open.
        choose: from the names of all arrays to those that are read. The others are left alone.
        most: bytes of all arrays that are read; None for `most_unpacked`.

    Raises:
        OSError: as `open_file`.
        UsageError: no such archive, a damaged one, what are no arrays or arrays of Python objects,
            or more than `most` bytes. What `choose` raises, too.
    """
    if file is None:
        with open_file(path) as opened:
            return read_npz(path, opened, choose, most)
    try:
        with _open_zip(path, file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            names = list(choose(list(members)))
            unpacked = sum(members[name].file_size for name in names)
            most = most_unpacked(file) if most is None else most
            if unpacked > most:
                raise UsageError(
                    f"expected at most {most:,} bytes unpacked from {path}, got {unpacked:,}; "
                    f"split it, or save it with numpy.savez, without compression"
                )
            return {name: _read_member(path, archive, members[name]) for name in names}
    except UsageError:
        raise
    except Exception as error:  # whatever is raised for a file that is damaged, also an OSError
        raise UsageError(
            f"expected arrays in {path} ({one_line(error)}); save it with numpy.savez"
        ) from error


def _open_zip(path: Path, file: BinaryIO) -> zipfile.ZipFile:
    """The archive in an open file, with a list of members of at most `LONGEST_LIST` bytes."""
    file.seek(0)
    begin = file.read(6)
    if begin == b"\x93NUMPY":
        raise UsageError(
            f"expected an archive of several arrays in {path}, got one array; save it with "
            f"numpy.savez"
        )
    if begin[:2] != b"PK":
        raise UsageError(
            f"expected arrays in {path}, got another kind of file; save it with numpy.savez"
        )

    def read(size: int = -1) -> bytes:
        """Reads a piece of the file. The list of members is read as one piece."""
        if size > LONGEST_LIST:
            raise UsageError(
                f"expected an archive of arrays in {path} with a list of at most "
                f"{LONGEST_LIST:,} bytes, got one of {size:,}; save it with numpy.savez"
            )
        return file.read(size)

    bounded = SimpleNamespace(read=read, seek=file.seek, tell=file.tell, seekable=file.seekable)
    return zipfile.ZipFile(cast(BinaryIO, bounded))


def _read_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array of an archive."""
    where = f"{shortened(info.filename)} of {path}"
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others unpack without a bound
    is_encrypted = info.flag_bits & 1
    if not info.filename.endswith(".npy") or is_encrypted or info.compress_type not in kinds:
        raise UsageError(
            f"expected an array that numpy.savez has written in {where}, got another kind of file; "
            f"save it again"
        )
    with archive.open(info) as member:
        head = io.BytesIO(member.read(LONGEST_HEADER))
    _, _, _, needed = _npy_header(where, head)
    if head.tell() + needed != info.file_size:
        raise UsageError(
            f"expected {head.tell() + needed:,} bytes in {where} by its header, got "
            f"{info.file_size:,}; save it again"
        )
    with archive.open(info) as member, warnings.catch_warnings(action="ignore"):
        return np.lib.format.read_array(member, allow_pickle=False)


def _npy_header(where: str, head: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """What the head of a .npy file says, which is read to its end.

    Returns the shape, whether the first axis is innermost, the type of the numbers, and the bytes
    of them all.
    """
    formats = np.lib.format
    readers = {(1, 0): formats.read_array_header_1_0, (2, 0): formats.read_array_header_2_0}
    try:
        with warnings.catch_warnings(action="ignore"):
            shape, is_fortran, dtype = readers[formats.read_magic(head)](head)
    except Exception as error:  # whatever numpy makes of a header, which is an expression of Python
        raise UsageError(
            f"expected numbers in {where}, got no .npy file with a header of at most "
            f"{LONGEST_HEADER:,} bytes; write it with numpy.save"
        ) from error
    are_numbers = dtype.itemsize and not dtype.hasobject
    are_sizes = all(type(size) is int and size >= 0 for size in shape)
    if not are_numbers or not are_sizes or len(shape) > MOST_AXES:
        got = shortened(f"{dtype} of shape {shape}")
        advice = "write an array of numbers alone"
        if dtype.hasobject:
            advice += ", and texts as np.array(texts, dtype=str)"
        raise UsageError(f"expected numbers in {where}, got {got}; {advice}")
    return shape, is_fortran, dtype, math.prod(shape) * dtype.itemsize


@contextlib.contextmanager
def open_picture(path: Path, formats: Sequence[str] = ("PNG",)) -> Iterator["Image"]:
    """Opens a picture of these formats of Pillow, and lets it be decoded where it is small enough.

    Pillow tries no other format: some start another program.

    Raises:
        OSError: as `open_file`.
        UsageError: another kind of file, a damaged one, or a picture that is too large.
    """
    from PIL import Image, UnidentifiedImageError

    names = formats[0] if len(formats) == 1 else f"picture ({', '.join(formats)})"
    too_large = (Image.DecompressionBombWarning, Image.DecompressionBombError)
    with open_file(path, LARGEST_PICTURE) as file, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file, formats=list(formats)) as picture:
                if math.prod(picture.size) > MOST_PIXELS or max(picture.size) > LONGEST_SIDE:
                    raise Image.DecompressionBombError
                yield picture
        except UsageError:
            raise
        except too_large as error:
            raise UsageError(
                f"expected a picture of at most {MOST_PIXELS:,} pixels, and {LONGEST_SIDE:,} a "
                f"side, in {path}, got more; make it smaller"
            ) from error
        except (UnidentifiedImageError, SyntaxError) as error:
            raise UsageError(
                f"expected a {names} in {path}, got another kind of file or a damaged one; save it "
                f"as PNG, or get it again"
            ) from error
        except Exception as error:  # whatever Pillow makes of a damaged file
            raise UsageError(
                f"expected a whole {names} in {path}, got a damaged one ({one_line(error)})"
            ) from error
