"""Data sets of images."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flax_attn.data.sets.kinds import ImageData, Images, Training, check_held_out
from flax_attn.data.splits import stratified
from flax_attn.errors import UsageError
from flax_attn.fields import shares, zero_or_above


@dataclass(frozen=True, kw_only=True)
class MNIST(ImageData):
    """Handwritten digits.

    Attributes:
        valid_fraction: the share of the training images that validates.
        num_train, num_test: use the first images only, this many; 0 for all.
    """

    valid_fraction: float = 0.0
    num_train: int = 0
    num_test: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        shares(self, "valid_fraction")
        zero_or_above(self, "num_train", "num_test")

    @property
    def image_shape(self) -> tuple[int, int]:
        return 28, 28

    def check_training(self, training: Training) -> None:
        check_held_out(self.valid_fraction, training)

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
    """The first images, as numbers in [0, 1]; all of them for 0."""
    last = number or len(images)
    return as_pixels(images[:last], "MNIST"), labels[:last]


def hold_out(
    images: np.ndarray, labels: np.ndarray, fraction: float, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The splits `valid`, a share of every class, and `train`, the rest."""
    parts = stratified(labels, (fraction, 1 - fraction), seed)
    return {name: (images[part], labels[part]) for name, part in zip(("valid", "train"), parts)}


def as_pixels(images: np.ndarray, source: str) -> np.ndarray:
    """Images as float32 in [0, 1], from bytes or such numbers.

    Raises:
        UsageError: other numbers.
    """
    if images.dtype == np.uint8:
        return images.astype(np.float32) / 255
    if images.dtype.kind != "f" or not ((images >= 0) & (images <= 1)).all():
        raise UsageError(
            f"expected bytes or numbers in [0, 1] as pixels of {source}, got {images.dtype}"
        )
    return images.astype(np.float32)
