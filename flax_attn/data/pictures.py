"""Pictures, in grey but for models that see colours, from files and from folders by class."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flax_attn.data import table
from flax_attn.data.contents import as_pixels
from flax_attn.data.raw import ALL, SPLITS
from flax_attn.errors import UsageError, one_line
from flax_attn.files import sha256
from flax_attn.schema import require

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
OF_SYSTEMS = ("Thumbs.db", "desktop.ini")  # files that Windows adds to folders
DEEP = ("I", "F")  # modes of Pillow with more than 8 bits a pixel begin like this

NUMBERS = "numbers.csv"  # of a folder of pictures with a number each
Size = tuple[int, int]  # height and width


def read(path: Path, in_colour: bool = False) -> np.ndarray:
    """Reads the pixels `(height, width)` of a picture as bytes; colours become grey.

    Transparent parts become white. They become black if the drawing is light. In colour, pixels are
    `(height, width, 3)`, and transparency is left out.
    """
    from PIL import Image, ImageOps

    try:
        # Pillow tries no other format: some start another program
        with Image.open(path, formats=FORMATS) as picture:
            mode = picture.mode
            turned = ImageOps.exif_transpose(picture)
            pixels = np.asarray(turned.convert("RGB") if in_colour else _on_ground(turned))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UsageError(
            f"expected a picture ({', '.join(FORMATS)}) in {path} ({one_line(error)})"
        ) from error
    require(not mode.startswith(DEEP), f"8 bits a pixel in {path}, got Pillow's mode {mode}")
    return pixels


def read_ink(path: Path) -> np.ndarray:
    """Reads as `read`, with light ink on a dark ground: one with a light border is inverted."""
    pixels = read(path)
    is_drawn = pixels.min() < pixels.max()
    require(is_drawn, f"something drawn in {path}, got pixels that are all alike")
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return 255 - pixels if border.mean() > 127 else pixels


def _on_ground(picture: "Image") -> "Image":
    """Returns the picture in grey, with a ground for its transparent parts."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture.convert("L")
    inks = picture.convert("RGBA").convert("LA")
    grey, opaque = (np.asarray(band, np.float32) for band in inks.split())
    is_light = (grey * opaque).sum() > 127 * opaque.sum()
    ground = Image.new("LA", picture.size, (0 if is_light else 255, 255))
    return Image.alpha_composite(ground.convert("RGBA"), inks.convert("RGBA")).convert("L")


def scale(images: Iterable[np.ndarray], size: Size) -> np.ndarray:
    """Scales images `(height, width)` of numbers in [0, 1] to one size `(n, height, width)`."""
    return np.stack([image if image.shape == size else _scaled(image, size) for image in images])


def _scaled(image: np.ndarray, size: Size) -> np.ndarray:
    from PIL import Image

    height, width = size
    scaled = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    return np.clip(np.asarray(scaled), 0, 1)


def read_folder(
    folder: Path, size: Size | None = None
) -> tuple[dict[str, tuple[np.ndarray, list[str]]], str]:
    """Reads images `(n, height, width)` and their classes by split, and one SHA-256 of all files.

    The folder holds `train/CLASS/PICTURE`, `test/CLASS/PICTURE` and perhaps `valid/CLASS/PICTURE`;
    or `CLASS/PICTURE`, whose images have the name `all`. Files whose name begins with a dot are
    left out. The images of a class are in the order of their names.

    Images are scaled to `size`, in [0, 1]; with None they are bytes, all of one size.
    """
    names = [path.name for path in _listed(folder)]
    roots = {ALL: folder}
    if {"train", "test"} <= set(names):
        is_known, got = set(names) <= set(SPLITS), ", ".join(names)
        require(is_known, f"train, test and perhaps valid in {folder}, got {got}")
        roots = {name: folder / name for name in SPLITS if name in names}
    paths = {name: _by_class(root) for name, root in roots.items()}
    images, digest = read_all([path for of_split in paths.values() for path in of_split], size)
    ends = np.cumsum([len(of_split) for of_split in paths.values()])
    classes = [[path.parent.name for path in of_split] for of_split in paths.values()]
    return dict(zip(paths, zip(np.split(images, ends[:-1]), classes))), digest


def read_numbered(
    folder: Path, size: Size | None = None
) -> tuple[dict[str, tuple[np.ndarray, list[float]]], str]:
    """Reads images `(n, height, width)` and the number of each, and one SHA-256 of all files.

    The folder holds pictures, and a table `numbers.csv` with their names in the column `file` and
    their numbers in the column `number`. The images have the name `all`. Arguments and errors are
    those of `read_folder`.
    """
    names, numbers = table.read_numbers(folder / NUMBERS, "file", "number")
    images, digest = read_all([folder / name for name in names], size)
    digest = hashlib.sha256(f"{digest}{numbers}".encode()).hexdigest()
    return {ALL: (images, numbers)}, digest


def read_all(paths: Sequence[Path], size: Size | None = None) -> tuple[np.ndarray, str]:
    """Reads images of one size `(n, height, width)`, and one SHA-256 of all files."""
    total, images = hashlib.sha256(), []
    for path in paths:
        image = read(path)
        image = image if size is None else scale([as_pixels(image, str(path))], size)[0]
        is_alike = not images or image.shape == images[0].shape
        hint = "set data.height and data.width to scale them"
        require(is_alike, f"images of one size, got {image.shape} pixels in {path}; {hint}")
        total.update(f"{path.parent.name}/{path.name}\0{sha256(path)}".encode())
        images.append(image)
    return np.stack(images), total.hexdigest()


def within(folder: Path) -> list[Path]:
    """Returns the pictures of a folder, sorted by name. None in it is a UsageError."""
    paths = [path for path in _listed(folder) if path.suffix.lower() in ENDINGS and path.is_file()]
    require(paths, f"pictures ({', '.join(ENDINGS)}) in {folder}, got none")
    return paths


def _by_class(root: Path) -> list[Path]:
    """Returns the pictures of all classes in a folder, `CLASS/PICTURE`."""
    within = lambda entry: _listed(entry) if entry.is_dir() else [entry]
    paths = [path for entry in _listed(root) for path in within(entry)]
    for path in paths:
        fit = path.suffix.lower() in ENDINGS and not path.is_dir() and path.parent != root
        require(fit, f"in {root} one folder of pictures for each class, got {path}")
    return paths


def _listed(path: Path) -> list[Path]:
    """Returns what a folder holds, by name, without hidden files. Nothing is a UsageError."""
    is_hidden = lambda name: name.startswith(".") or name in OF_SYSTEMS
    entries = sorted(entry for entry in path.iterdir() if not is_hidden(entry.name))
    require(entries, f"pictures in {path}, got an empty folder")
    return entries
