"""MNIST: 60,000 and 10,000 handwritten digits of 28 x 28 pixels, from the IDX files.

Source: LeCun, Cortes & Burges 1998.

An IDX file is two zero bytes, the type of its numbers, the number of its axes, their sizes as
big-endian integers, and the numbers; the original files are compressed.
"""

import gzip
import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import UInt8

from flax_attn import bounded
from flax_attn.data.builders import FilesBuilder, files, load
from flax_attn.errors import UsageError
from flax_attn.types import JsonObject

SIZE = 28
NUM_CLASSES = 10
ADDRESS = "https://storage.googleapis.com/cvdf-datasets/mnist/"
LISTED = """
train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
"""
UNSIGNED_BYTE = 8
AT_ONCE = 2**20  # bytes of a file that are read at once


class MNIST(FilesBuilder, skip_registration=True):
    """Handwritten digits, 28 x 28 pixels."""

    FILES = files(ADDRESS, LISTED)
    SPLITS = {
        "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
    }
    FEATURES = {
        "image": tfds.features.Tensor(shape=(SIZE, SIZE), dtype=np.uint8, encoding="zlib"),
        "label": tfds.features.Scalar(dtype=np.int32),
    }
    HOMEPAGE = "http://yann.lecun.com/exdb/mnist/"

    def _generate_examples(
        self, images_file: Path, labels_file: Path
    ) -> Iterator[tuple[int, JsonObject]]:
        images, labels = read_idx(images_file), read_idx(labels_file)
        if images.shape[1:] != (SIZE, SIZE):
            raise UsageError(
                f"expected images of {SIZE} x {SIZE} pixels in {images_file}, got shape "
                f"{images.shape}; get the file again"
            )
        if labels.shape != images.shape[:1] or (labels >= NUM_CLASSES).any():
            raise UsageError(
                f"expected {len(images)} labels below {NUM_CLASSES} in {labels_file}, got shape "
                f"{labels.shape}; get the file again"
            )
        for i, (image, label) in enumerate(zip(images, labels)):
            yield i, {"image": image, "label": int(label)}


def load_mnist(
    manual_dir: Path | None,
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, str]]:
    """Images `(n, 28, 28)` of bytes and labels `(n,)` by split, and the sums of the files.

    Errors are those of `builders.load`.
    """
    rows, sums = load(MNIST, ("train", "test"), manual_dir)
    arrays = {
        split: (
            np.stack([row["image"] for row in examples]),
            np.array([row["label"] for row in examples], np.int32),
        )
        for split, examples in rows.items()
    }
    return arrays, sums


def read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """The array of bytes in an IDX file, compressed or not.

    Raises:
        OSError: as `bounded.open_file`.
        UsageError: the file is cut off, is no IDX file of bytes, or holds more or less than its
            header says.
    """
    with bounded.open_file(path) as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        most = bounded.most_unpacked(file) if is_packed else path.stat().st_size
        file.seek(0)
        try:
            if not is_packed:
                return _read_array(path, file, most)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read_array(path, unpacked, most)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{path} is damaged ({error}); get the file again") from error


def _read_array(path: Path, file: bounded.OpenFile, most: int) -> UInt8[np.ndarray, "..."]:
    """The array in an open IDX file that holds at most `most` bytes."""
    start = file.read(4)
    if len(start) < 4 or start[:3] != bytes([0, 0, UNSIGNED_BYTE]):
        raise UsageError(
            f"expected an IDX file of bytes, which begins with 00 00 08, in {path}, got "
            f"{start[:3].hex(' ') or 'nothing'}"
        )
    axes, sizes = start[3], file.read(4 * start[3])
    if len(sizes) < 4 * axes:
        raise UsageError(f"{path} is damaged (its header is cut off); get the file again")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    if not 0 < axes <= bounded.MOST_AXES or 0 in shape:
        raise UsageError(
            f"expected 1 to {bounded.MOST_AXES} axes with something on each in {path}, got shape "
            f"{shape}"
        )
    damaged = f"{path} is damaged (its header says {shape}, {math.prod(shape)} bytes"
    if math.prod(shape) > most:
        raise UsageError(f"{damaged}, more than the {most:,} that it may hold); get the file again")
    content = np.empty(math.prod(shape), np.uint8)
    filled = 0
    while part := file.read(min(AT_ONCE, len(content) - filled)):
        content[filled : filled + len(part)] = np.frombuffer(part, np.uint8)
        filled += len(part)
    if filled < len(content) or file.read(1):
        follow = filled if filled < len(content) else "more"
        raise UsageError(f"{damaged}, and {follow} follow); get the file again")
    return content.reshape(shape)
