"""MNIST: 60,000 and 10,000 handwritten digits of 28 x 28 pixels, from the IDX files.

Source: LeCun, Cortes & Burges 1998.

An IDX file is two zero bytes, the type of its numbers, the number of its axes, their sizes as
big-endian integers, and the numbers; the original files are compressed.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import UInt8

from flax_attn.data.builders import FilesBuilder, files
from flax_attn.errors import UsageError
from flax_attn.files import read_bytes
from flax_attn.schema import require
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
GZIP = b"\x1f\x8b"  # the first bytes of a packed file


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

    def _generate_examples(
        self, images_file: Path, labels_file: Path
    ) -> Iterator[tuple[int, JsonObject]]:
        images, labels = read_idx(images_file), read_idx(labels_file)
        fit = images.shape == (len(labels), SIZE, SIZE) and (labels < NUM_CLASSES).all()
        require(fit, f"images of 28 x 28 pixels in {images_file}, with labels in {labels_file}")
        for i, (image, label) in enumerate(zip(images, labels)):
            yield i, {"image": image, "label": int(label)}


def read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """Reads the array of bytes in an IDX file, compressed or not."""
    content = read_bytes(path)
    try:
        content = gzip.decompress(content) if content.startswith(GZIP) else content
        if content[:3] != bytes([0, 0, UNSIGNED_BYTE]):
            raise ValueError(f"it begins with {content[:3].hex(' ')}, not 00 00 08")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4).astype(int)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{path} is no whole IDX file ({error}); get it again") from error
