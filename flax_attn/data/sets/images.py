"""Data sets of images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta

from flax_attn.data import archive, contents, pictures
from flax_attn.data.contents import as_pixels
from flax_attn.data.raw import Columns, Raw, stratified
from flax_attn.data.sets.kinds import ImageData
from flax_attn.data.sets.own import Given, OwnData
from flax_attn.files import expanded, sha256
from flax_attn.schema import Fraction, NonNegativeInt
from flax_attn.types import JsonObject

Side = Annotated[int, Meta(ge=0, le=8_192)]  # pixels


@dataclass(frozen=True, kw_only=True)
class MNIST(ImageData):
    """Handwritten digits.

    Attributes:
        valid_fraction: the share of the training images that validates.
        num_train, num_test: use the first images only, this many; 0 for all.
    """

    light_ink: ClassVar[bool] = True

    valid_fraction: Fraction = 0.0
    num_train: NonNegativeInt = 0
    num_test: NonNegativeInt = 0

    def load(self, manual_dir: Path | None) -> Raw:
        from flax_attn.data import builders, mnist  # which take as long to import as jax

        rows, files = builders.load(mnist.MNIST, ("train", "test"), manual_dir)
        train = _first(rows["train"], self.num_train)
        splits = {"train": train, "test": _first(rows["test"], self.num_test)}
        if share := self.valid_fraction:
            valid, rest = stratified(train.targets, (share, 1 - share), self.seed)
            splits |= {"valid": train.take(valid), "train": train.take(rest)}
        return Raw(splits, files, [str(digit) for digit in range(mnist.NUM_CLASSES)])


def _first(rows: list[JsonObject], number: int) -> Columns:
    """Returns the first images, as numbers in [0, 1]; all of them for 0."""
    rows = rows[: number or None]
    images, labels = (np.stack([row[name] for row in rows]) for name in ("image", "label"))
    return Columns(as_pixels(images, "MNIST"), labels)


@dataclass(frozen=True, kw_only=True)
class ImageFiles(OwnData, ImageData):
    """The user's own images, from a folder or from a `.npz` file.

    A folder holds pictures as `train/CLASS/*.png` and `test/CLASS/*.png`, and perhaps
    `valid/CLASS/*.png`; or as `CLASS/*.png`, which are split in three. A file has the arrays
    `train_images`, `train_labels`, `test_images` and `test_labels`, and perhaps `valid_images` and
    `valid_labels`; or `images` and `labels` alone, which are split in three. Images are
    `(n, height, width)`, or in colour `(n, height, width, 3)`, of bytes or of numbers in [0, 1];
    labels are names or whole numbers `(n,)`. With `target=number`, a folder holds pictures and a
    table `numbers.csv` with the columns `file` and `number`, and the labels of a file are numbers.

    Attributes:
        target: what each image has: `classes` or `number`.
        size: pixels along a side of the squares to which images are scaled, and padded by their
            edges. 0 leaves images as they are, all of one size.
        colour: whether pictures keep their colours. Pictures that are all grey have none.
    """

    target: Literal["classes", "number"] = "classes"
    size: Side = 0
    colour: bool = True

    def prepare(self, images: np.ndarray) -> np.ndarray:
        return pictures.scale(images, self.size) if self.size else images

    def given(self, name: str) -> Given:
        path = expanded(name)
        if path.suffix.lower() == ".npz":
            arrays, digest = archive.read(path, "images", "labels"), sha256(path)
            sizes = {np.shape(images)[1:3] for images, _ in arrays.values()}
        else:
            read = pictures.read_numbered if self.target == "number" else pictures.read_folder
            arrays, digest, sizes = read(path, self.size, self.colour)
        splits = {}
        for split, pair in arrays.items():
            rows = contents.checked(contents.place(split, name), self, *pair)
            splits[split] = rows._replace(inputs=self.prepare(rows.inputs))
        contents.check_one_shape(splits)
        return Given(splits, digest, self.notes(sizes))

    def notes(self, sizes: set[pictures.Size]) -> list[str]:
        """Says how images of these sizes are scaled, if they are."""
        if not self.size or sizes == {(self.size, self.size)}:
            return []
        has = " to ".join(
            f"{height} x {width}" for height, width in sorted({min(sizes), max(sizes)})
        )
        padded = " and padded" * any(height != width for height, width in sizes)
        to = f"{self.size} x {self.size}; data.size sets another size"
        return [f"images of {has} pixels are scaled{padded} to {to}"]
