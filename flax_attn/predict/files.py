"""The files that a user names: what is in them, and whether they can be written."""

import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flax_attn.data.files import read_text
from flax_attn.errors import UsageError, one_line
from flax_attn.tasks.signals import check_signals

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES = (".png", ".pdf", ".svg")
ARRAYS = (".npy", ".csv")


def check_destination(
    path: Path, flag: str, formats: tuple[str, ...], source: Path | None = None
) -> None:
    """Raises a UsageError for a file that cannot be written, or that is the user's own input."""
    if path.suffix not in formats:
        endings = " or ".join(", ".join(formats).rsplit(", ", 1))
        raise UsageError(f"expected {flag} to end in {endings}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"expected {flag} to be a file in a directory that exists, got {path}")
    if source is not None and path.resolve() == source.resolve():
        raise UsageError(f"expected {flag} to be another file than --input, got {path} for both")


def check_text_file(path: Path, flag: str, source: Path | None = None) -> None:
    """Raises a UsageError for a text file that cannot be written, or that is the user's own input.

    Any ending will do that is not of an array or a picture.
    """
    if path.suffix in (*PICTURES, *ARRAYS):
        raise UsageError(f"expected {flag} to be a text file, such as out.txt, got {path}")
    check_destination(path, flag, (path.suffix,), source)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file of any ending, empty ones too.

    Raises:
        UsageError: no such file, another kind of file, or no line with a text.
    """
    try:
        lines = read_text(path).split("\n")
    except OSError as error:
        raise UsageError(
            f"cannot read --input {path} ({error.strerror}); give a text file"
        ) from error
    if not any(line.strip() for line in lines):
        raise UsageError(f"expected texts in --input {path}, one a line, got none")
    return lines if lines[-1] else lines[:-1]


def read_signals(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Signals of a shape `(t, channels)` as float32.

    A .npy file holds one or several, a .csv file one a line.

    Raises:
        UsageError: no such file, another format, or what are no such signals.
    """
    if path.suffix not in ARRAYS:
        raise UsageError(f"expected --input to end in .npy or .csv, got {path}")
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*input contained no data")
            signals = (
                np.load(file) if path.suffix == ".npy" else np.loadtxt(file, delimiter=",", ndmin=2)
            )
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"cannot read --input {path} ({reason}); give a .npy or .csv file of signals"
        ) from error
    except (EOFError, MemoryError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"expected numbers in --input {path}: {one_line(error)}") from error
    if not isinstance(signals, np.ndarray):
        raise UsageError(
            f"expected one array in --input {path}, got an archive of several; save one with "
            f"numpy.save"
        )
    return check_signals(signals, shape, str(path))


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


def read_images(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Images `(n, height, width)` of bytes from a picture or an IDX file.

    In a picture with a light ground, dark counts as ink.

    Raises:
        UsageError: no such file, another format, or images of another size.
    """
    from flax_attn.data import mnist  # its reader takes as long to import as jax

    try:
        images = read_png(path)[None] if path.suffix.lower() == ".png" else mnist.read_idx(path)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"cannot read --input {path} ({reason}); give a PNG or an IDX file"
        ) from error
    height, width = shape
    if images.ndim != 3 or images.shape[1:] != shape or not len(images):
        raise UsageError(
            f"expected images of {height} x {width} pixels in {path}, got shape {images.shape}"
        )
    return images


def read_png(path: Path) -> np.ndarray:
    """The pixels `(height, width)` of a picture as bytes, light ink on a dark ground."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(on_ground(picture))
    except (UnidentifiedImageError, SyntaxError) as error:
        raise UsageError(f"expected a PNG in {path}, got another kind of file") from error
    if pixels.min() == pixels.max():
        raise UsageError(f"expected something drawn in {path}, got pixels that are all alike")
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return 255 - pixels if border.mean() > 127 else pixels


def on_ground(picture: "Image") -> "Image":
    """The picture in grey. Transparent parts are white, or black where the ink is light."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture.convert("L")
    inks = picture.convert("LA")
    grey, opaque = (np.asarray(band, np.float32) for band in inks.split())
    is_light = (grey * opaque).sum() > 127 * opaque.sum()
    ground = Image.new("LA", picture.size, (0 if is_light else 255, 255))
    return Image.alpha_composite(ground.convert("RGBA"), inks.convert("RGBA")).convert("L")
