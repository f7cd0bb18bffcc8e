"""The files that a user names: what is in them, and whether they can be written."""

import os
import re
import warnings
from pathlib import Path

import numpy as np

from flax_attn import bounded
from flax_attn.data import files as text_files
from flax_attn.data import pictures
from flax_attn.errors import UsageError, one_line
from flax_attn.files import check_writable
from flax_attn.runs.directory import check_no_file_of_run

PICTURES = (".png", ".pdf", ".svg")
ARRAYS = (".npy", ".csv")
TABLES = (".csv", ".tsv")
IDX = (b"\0\0", b"\x1f\x8b")  # the first bytes of such a file, and of a packed one


def check_destination(
    path: Path, flag: str, formats: tuple[str, ...], source: Path | None = None
) -> None:
    """Raises a UsageError for a file that cannot be written, is the input, or is one of a run."""
    if path.suffix not in formats:
        endings = " or ".join(", ".join(formats).rsplit(", ", 1))
        raise UsageError(f"expected {flag} to end in {endings}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"expected {flag} to be a file in a directory that exists, got {path}")
    try:
        check_writable(Path(os.path.realpath(path)))
    except OSError as error:
        raise UsageError(
            f"cannot write {path} for {flag} ({error.strerror}); choose another place"
        ) from error
    if source is not None and os.path.realpath(path) == os.path.realpath(source):
        raise UsageError(f"expected {flag} to be another file than --input, got {path} for both")
    check_no_file_of_run(path, flag)


def check_text_file(path: Path, flag: str, source: Path | None = None) -> None:
    """Checks as `check_destination`. Any ending will do that is not of an array or a picture."""
    if path.suffix in (*PICTURES, *ARRAYS):
        raise UsageError(f"expected {flag} to be a text file, such as out.txt, got {path}")
    check_destination(path, flag, (path.suffix,), source)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file of any ending, empty ones too.

    Raises:
        UsageError: no such file, another kind of file, one beyond the limits of `bounded`, or no
            line with a text.
    """
    try:
        lines = list(text_files.read_lines(path))
    except OSError as error:
        raise UsageError(
            f"cannot read --input {path} ({error.strerror}); give a text file"
        ) from error
    if not any(line.strip() for line in lines):
        raise UsageError(f"expected texts in --input {path}, one a line, got none")
    return lines


def read_signals(path: Path) -> np.ndarray:
    """The array in a .npy file, or the numbers in a CSV file, one signal a line.

    Raises:
        UsageError: no such file, one beyond the limits of `bounded`, or what are no numbers.
    """
    try:
        return bounded.read_npy(path) if path.suffix == ".npy" else read_csv(path)
    except OSError as error:
        raise UsageError(
            f"cannot read --input {path} ({error.strerror}); give a .npy or .csv file of signals"
        ) from error


def read_csv(path: Path) -> np.ndarray:
    """The numbers `(lines, columns)` of a CSV file.

    Raises:
        OSError: no such file.
        UsageError: what are no numbers, or lines of unequal lengths.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*input contained no data")
            numbers = np.loadtxt(text_files.read_lines(path), delimiter=",", ndmin=2)
        if not numbers.size:
            raise UsageError(f"expected numbers in {path}, got an empty file")
        return numbers
    except UsageError:
        raise
    except ValueError as error:
        reason, _, _ = one_line(error).partition("; use")  # NumPy's advice is for its own callers
        place = re.search(r"at row (\d+), column (\d+)", reason)  # NumPy counts rows from 0
        if place is not None and "could not convert" in reason:
            row, column = map(int, place.groups())
            reason = reason.replace(place[0], f"in row {row + 1}, column {column}")
        raise UsageError(
            f"expected numbers in {path}, with commas between, such as 0.5,1.25, and no header "
            f"({reason}); mend it"
        ) from error


def write_signals(path: Path, signals: np.ndarray) -> None:
    """Writes signals in the format of the file's ending."""
    if path.suffix == ".npy":
        np.save(path, signals)
    else:
        np.savetxt(
            path,
            signals.reshape(-1, signals.shape[-1] if signals.ndim < 3 else signals.shape[1]),
            delimiter=",",
            fmt="%.7g",
        )


def read_images(path: Path, light_ink: bool, in_colour: bool = False) -> np.ndarray:
    """Images `(n, height, width)` from a picture, a .npy file or an IDX file.

    A picture is of bytes, and its colours become grey unless `in_colour`. With `light_ink`, one
    with a light ground is inverted.

    Raises:
        UsageError: no such file, another format, or one beyond the limits of `bounded`.
    """
    try:
        if path.suffix.lower() in pictures.ENDINGS:
            image = pictures.read_ink(path) if light_ink else pictures.read(path, in_colour)
            return image[None]
        if path.suffix == ".npy":
            return bounded.read_npy(path)
        from flax_attn.data import mnist  # its reader takes as long to import as jax

        with bounded.open_file(path) as file:
            start = file.read(2)
        if start not in IDX:
            endings = ", ".join(pictures.ENDINGS)
            raise UsageError(
                f"expected --input to be a picture ({endings}), a folder of pictures, a .npy or an "
                f"IDX file, got {path}; save it as PNG"
            )
        return mnist.read_idx(path)
    except OSError as error:
        raise UsageError(
            f"cannot read --input {path} ({error.strerror}); give a picture, a folder of "
            "pictures, a .npy or an IDX file"
        ) from error
