"""Pictures, in grey but for models that see colours, from files and from folders by class.

Pillow tries the formats that are named here and no other, so that no file starts another program.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flax_attn import bounded
from flax_attn.data.contents import ALL, SPLITS, as_pixels
from flax_attn.errors import UsageError
from flax_attn.files import sha256

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
DEEP = ("I", "F")  # modes of Pillow with more than 8 bits a pixel begin like this

Size = tuple[int, int]  # height and width


def read(path: Path, in_colour: bool = False) -> np.ndarray:
    """The pixels `(height, width)` of a picture as bytes; colours become grey.

    Transparent parts become white. They become black if the drawing is light. In colour, pixels are
    `(height, width, 3)`, and transparency is left out.

    Raises:
        UsageError: no such file, another format, a damaged file, or more than 8 bits a pixel.
    """
    from PIL import ImageOps

    try:
        with bounded.open_picture(path, FORMATS) as picture:
            mode = picture.mode
            turned = ImageOps.exif_transpose(picture)
            pixels = np.asarray(turned.convert("RGB") if in_colour else _on_ground(turned))
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}); give a picture") from error
    if mode.startswith(DEEP):
        raise UsageError(
            f"expected 8 bits a pixel in {path}, got Pillow's mode {mode}; save it with 8 bits"
        )
    return pixels


def read_ink(path: Path) -> np.ndarray:
    """As `read`, with light ink on a dark ground: a picture with a light border is inverted.

    Raises:
        UsageError: also a picture in which nothing is drawn.
    """
    pixels = read(path)
    if pixels.min() == pixels.max():
        raise UsageError(f"expected something drawn in {path}, got pixels that are all alike")
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return 255 - pixels if border.mean() > 127 else pixels


def _on_ground(picture: "Image") -> "Image":
    """The picture in grey, with a ground for its transparent parts."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture.convert("L")
    inks = picture.convert("RGBA").convert("LA")
    grey, opaque = (np.asarray(band, np.float32) for band in inks.split())
    is_light = (grey * opaque).sum() > 127 * opaque.sum()
    ground = Image.new("LA", picture.size, (0 if is_light else 255, 255))
    return Image.alpha_composite(ground.convert("RGBA"), inks.convert("RGBA")).convert("L")


def scale(images: Iterable[np.ndarray], size: Size) -> np.ndarray:
    """Images `(height, width)` of numbers in [0, 1], scaled to one size `(n, height, width)`."""
    return np.stack([image if image.shape == size else _scaled(image, size) for image in images])


def _scaled(image: np.ndarray, size: Size) -> np.ndarray:
    from PIL import Image

    height, width = size
    scaled = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    return np.clip(np.asarray(scaled), 0, 1)


def read_folder(
    folder: Path, size: Size | None = None
) -> tuple[dict[str, tuple[np.ndarray, list[str]]], str]:
    """Images `(n, height, width)` and their classes by split, and one SHA-256 of all files.

    The folder holds `train/CLASS/PICTURE`, `test/CLASS/PICTURE` and perhaps `valid/CLASS/PICTURE`;
    or `CLASS/PICTURE`, whose images have the name `all`. Files whose name begins with a dot are
    left out. The images of a class are in the order of their names.

    Args:
        folder: the path of the folder.
        size: to which images are scaled, in [0, 1]; None for bytes, all of one size.

    Raises:
        UsageError: folders or files that are not as above, or images of several sizes.
    """
    names = [path.name for path in _entries(folder, folder)]
    roots = {ALL: folder}
    if {"train", "test"} <= set(names):
        if not set(names) <= set(SPLITS):
            raise UsageError(
                f"expected train, test and perhaps valid in {folder}, got {', '.join(names)}"
            )
        roots = {name: folder / name for name in SPLITS if name in names}
    total, first = hashlib.sha256(), None
    splits: dict[str, tuple[np.ndarray, list[str]]] = {}
    for name, root in roots.items():
        images, labels = [], []
        for path in _pictures(folder, root):
            image = read(path)
            image = image if size is None else scale([as_pixels(image, str(path))], size)[0]
            first = first or (path, image.shape)
            if image.shape != first[1]:
                raise UsageError(
                    f"expected images of one size, got {first[1]} pixels in {first[0]} and "
                    f"{image.shape} in {path}; set data.height and data.width to scale them"
                )
            total.update(os.fsencode(path.relative_to(folder).as_posix()) + b"\0")
            total.update(bytes.fromhex(sha256(path)))
            images.append(image)
            labels.append(path.parent.name)
        splits[name] = np.stack(images), labels
    return splits, total.hexdigest()


def within(folder: Path) -> list[Path]:
    """The pictures of a folder, sorted by name; not what is hidden.

    Raises:
        UsageError: a folder without any, or one that cannot be read.
    """
    entries = _listed(folder, "give a folder")
    paths = [path for path in entries if path.suffix.lower() in ENDINGS and path.is_file()]
    if not paths:
        raise UsageError(f"expected pictures ({', '.join(ENDINGS)}) in {folder}, got none")
    return paths


def _pictures(folder: Path, root: Path) -> list[Path]:
    """The pictures of all classes in a folder, `CLASS/PICTURE`."""
    paths = []
    for entry in _entries(root, folder):
        if not entry.is_dir():
            raise UsageError(
                f"expected in {root} one folder for each class, got the file {entry.name}"
            )
        inside = _entries(entry, folder)
        for path in inside:
            if path.suffix.lower() not in ENDINGS or path.is_dir():
                raise UsageError(
                    f"expected pictures alone ({', '.join(ENDINGS)}) in the folder of a class, got "
                    f"{path}; give train/CLASS/ and test/CLASS/, or CLASS/"
                )
        paths += inside
    return paths


def _entries(path: Path, folder: Path) -> list[Path]:
    """What a folder within the folder of all classes holds. Nothing in it is a UsageError."""
    entries = _listed(path, "give a folder of pictures by class, or a .npz file")
    if not entries:
        raise UsageError(f"expected pictures by class in {folder}, got nothing in {path}")
    return entries


def _listed(path: Path, advice: str) -> list[Path]:
    """What a folder holds, by name; not what is hidden. The advice is for one that is not read."""
    try:
        return sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}); {advice}") from error
