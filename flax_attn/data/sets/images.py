"""Data sets of images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from flax_attn.data import archive, contents, pictures
from flax_attn.data.contents import ALL, as_pixels
from flax_attn.data.sets.kinds import (
    ImageData,
    Images,
    Training,
    check_fractions,
    check_validation,
)
from flax_attn.data.splits import by_class, stratified, taken
from flax_attn.files import expanded, sha256
from flax_attn.schema import FilePath, Fraction, NonNegativeInt, require

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

    @property
    def image_shape(self) -> tuple[int, int]:
        return 28, 28

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)

    def load(self, manual_dir: Path | None) -> Images:
        from flax_attn.data import mnist  # its reader takes as long to import as jax

        arrays, files = mnist.load_mnist(manual_dir)
        splits = {
            "train": _first(*arrays["train"], self.num_train),
            "test": _first(*arrays["test"], self.num_test),
        }
        if self.valid_fraction:
            splits |= hold_out(*splits["train"], self.valid_fraction, self.seed)
        return Images(splits, [str(digit) for digit in range(mnist.NUM_CLASSES)], files)


def _first(images: np.ndarray, labels: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first images, as numbers in [0, 1]; all of them for 0."""
    last = number or len(images)
    return as_pixels(images[:last], "MNIST"), labels[:last]


def hold_out(
    images: np.ndarray, labels: np.ndarray, fraction: float, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the splits `valid`, a share of every class, and `train`, the rest."""
    parts = stratified(labels, (fraction, 1 - fraction), seed)
    return taken((images, labels), dict(zip(("valid", "train"), parts)))


@dataclass(frozen=True, kw_only=True)
class ImageFiles(ImageData):
    """The user's own images, from a folder by class or from a `.npz` file.

    A folder holds pictures as `train/CLASS/*.png` and `test/CLASS/*.png`, and perhaps
    `valid/CLASS/*.png`; or as `CLASS/*.png`, which are split in three. Colours become grey. A file
    has the arrays `train_images`, `train_labels`, `test_images` and `test_labels`, and perhaps
    `valid_images` and `valid_labels`; or `images` and `labels` alone, which are split in three.
    Images are `(n, height, width)`, of bytes or of numbers in [0, 1]; labels are names or whole
    numbers `(n,)`.

    Attributes:
        file: a folder with a folder of pictures for each class, or a file FILE.npz.
        height, width: the size to which images are scaled; 0 for the one size that they have.
        valid_fraction: the share of the training images that validates, where there is no `valid`;
            the share of all where they are split in three.
        test_fraction: the share of all that tests, where they are split in three.
    """

    file: FilePath
    height: Side = 0
    width: Side = 0
    valid_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions(self.valid_fraction, self.test_fraction)
        require(
            (self.height == 0) == (self.width == 0),
            "data.height and data.width both above 0, or both 0",
        )

    def check_training(self, training: Training) -> None:
        check_validation(self.valid_fraction, training)

    @property
    def image_shape(self) -> tuple[int, int] | None:
        return (self.height, self.width) if self.height else None

    def prepare(self, images: np.ndarray) -> np.ndarray:
        return images if self.image_shape is None else pictures.scale(images, self.image_shape)

    def load(self, manual_dir: Path | None) -> Images:
        path = expanded(self.file)
        if path.suffix.lower() == ".npz":
            splits, digest = archive.read(path, "images", "labels"), sha256(path)
        else:
            splits, digest = pictures.read_folder(path, self.image_shape)
        content = {}
        for name, (images, labels) in splits.items():
            images, labels = contents.images(contents.place(name, self.file), images, labels)
            content[name] = self.prepare(images), labels
        contents.check_one_shape({name: images for name, (images, _) in content.items()})
        if ALL in content:
            images, labels = content[ALL]
            parts = by_class(labels, (self.valid_fraction, self.test_fraction), self.seed)
            content = taken((images, labels), parts)
        return in_classes(content, self.valid_fraction, self.seed, {self.file: digest})


def in_classes(
    content: Mapping[str, tuple[np.ndarray, Sequence[str]]],
    valid_fraction: float,
    seed: int,
    files: dict[str, str],
) -> Images:
    """Returns images with the numbers of their classes, from images and the names of their classes.

    Where there is no `valid`, it is held out of `train`.

    Raises:
        UsageError: fewer than two classes, or one that the training split does not have.
    """
    classes = sorted({label for _, labels in content.values() for label in labels})
    number = {name: i for i, name in enumerate(classes)}
    splits = {
        name: (images, np.array([number[label] for label in labels], np.int32))
        for name, (images, labels) in content.items()
    }
    if "valid" not in splits and valid_fraction:
        splits |= hold_out(*splits["train"], valid_fraction, seed)
    contents.check_classes(
        {name: [classes[i] for i in labels] for name, (_, labels) in splits.items()}
    )
    return Images(splits, classes, files)
