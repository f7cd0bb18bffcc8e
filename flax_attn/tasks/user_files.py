"""The files that a user names: reading what is in them, and whether they can be written."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flax_attn.data import files as text_files
from flax_attn.data import pictures, signal_tables
from flax_attn.errors import UsageError
from flax_attn.files import check_writable, open_arrays
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.schema import require
from flax_attn.types import UserInput

PICTURES = (".png", ".pdf", ".svg")
ARRAYS = (".npy", ".csv")
TABLES = (".csv", ".tsv")


def check_destination(
    path: Path, flag: str, formats: tuple[str, ...], source: Path | None = None
) -> None:
    """Raises a UsageError for a file that cannot be written, is the input, or is one of a run."""
    require(path.suffix in formats, f"{flag} to end in {' or '.join(formats)}, got {path}")
    require(not path.is_dir(), f"a file for {flag}, got the folder {path}")
    try:
        check_writable(Path(os.path.realpath(path)))
    except OSError as error:
        raise UsageError(
            f"cannot write {path} for {flag} ({error.strerror}); choose another place"
        ) from error
    if source is not None and os.path.realpath(path) == os.path.realpath(source):
        raise UsageError(f"expected {flag} to be another file than --input, got {path} for both")
    check_no_file_of_run(path, flag)


def read_lines(path: Path) -> list[str]:
    """Reads the lines of a text file of any ending, or of a pipe, empty ones too."""
    lines = text_files.read_lines(path)
    require("".join(lines).strip(), f"texts in --input {path}, one a line, got none")
    return lines


def read_array(path: Path) -> np.ndarray:
    """Reads the array in a .npy file. Raises a UsageError for an archive of several."""
    with open_arrays(path) as arrays:
        require(list(arrays) == [""], f"one array in {path}, got {', '.join(arrays)}")
        return arrays[""]


def read_signals(
    path: Path, columns: Sequence[str] = ("label", "id", "time")
) -> tuple[UserInput, list[str]]:
    """Reads the array in a .npy file, or the signals of a table with the labels that there are.

    `columns` are those of labels, ids and times.
    """
    ending = path.suffix.lower()
    if ending == ".npy":
        return read_array(path), []
    require(ending in signal_tables.ENDINGS, f"--input to end in .npy or .csv, got {path}")
    signals, labels = signal_tables.read(path, *columns)
    is_one = len({len(signal) for signal in signals}) == 1
    return np.stack(signals) if is_one else signals, labels or []


def write_outputs(path: Path, outputs: np.ndarray | list[str]) -> None:
    """Writes texts as lines, and an array in the format of the file's ending."""
    if isinstance(outputs, list):
        path.write_text("".join(f"{text}\n" for text in outputs), encoding="utf-8")
    elif path.suffix == ".npy":
        np.save(path, outputs)
    else:
        np.savetxt(path, outputs.reshape(len(outputs), -1), delimiter=",", fmt="%.7g")


def read_images(
    path: Path, light_ink: bool, in_colour: bool = False, grounded: bool = True
) -> np.ndarray:
    """Reads images `(n, height, width)` from a picture, a .npy file or an IDX file.

    A picture is of bytes, and its colours become grey unless `in_colour`. With `light_ink`, one
    with a light ground is inverted. `grounded` is that of `pictures.read`.
    """
    if path.suffix.lower() in pictures.ENDINGS:
        image = pictures.read_ink(path) if light_ink else pictures.read(path, in_colour, grounded)
        return image[None]
    if path.suffix == ".npy":
        return read_array(path)
    from flax_attn.data import mnist  # its reader takes as long to import as jax

    try:
        return mnist.read_idx(path)
    except UsageError as error:
        raise UsageError(
            f"expected --input to be a picture ({', '.join(pictures.ENDINGS)}), a folder of "
            f"pictures, a .npy or an IDX file ({error})"
        ) from error
