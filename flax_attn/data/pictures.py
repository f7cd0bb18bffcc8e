"""Pictures, in grey or in colour, from files and from folders by class."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
# what systems add to folders, beside hidden files
OF_SYSTEMS = ("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "__macosx", "@eadir")
DEEP = ("I", "F")  # modes of Pillow with more than 8 bits a pixel begin like this

NUMBERS = "numbers.csv"  # of a folder of pictures with a number each
Size = tuple[int, int]  # height and width


def read(path: Path, in_colour: bool = False, grounded: bool = True) -> np.ndarray:
    """Reads the pixels of a picture as bytes, `(height, width)` in grey, or in colour with 3 each.

    Transparent parts become white. They become black if the drawing is light. In colour and not
    `grounded`, transparency is left out, as `transformers` does it.
    """
    from PIL import Image, ImageOps

    try:
        # Pillow tries no other format: some start another program
        with Image.open(path, formats=FORMATS) as picture:
            mode = picture.mode
            turned = ImageOps.exif_transpose(picture)
            convert = _on_ground if grounded or not in_colour else type(turned).convert
            pixels = np.asarray(convert(turned, "RGB" if in_colour else "L"))
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


def _on_ground(picture: "Image", mode: str) -> "Image":
    """Returns the picture in a mode of Pillow, with a ground for its transparent parts."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture.convert(mode)
    inks = picture.convert("RGBA")
    grey, opaque = (np.asarray(band, np.float32) for band in inks.convert("LA").split())
    is_light = (grey * opaque).sum() > 127 * opaque.sum()
    ground = Image.new("RGBA", picture.size, (*[0 if is_light else 255] * 3, 255))
    return Image.alpha_composite(ground, inks).convert(mode)


def scale(images: Iterable[np.ndarray], size: int) -> np.ndarray:
    """Scales images of numbers in [0, 1], with channels or without, to squares of `size` pixels.

    The longer side is scaled to the square, and the edges along the other are repeated.
    """
    return np.stack([_square(image, size) for image in images])


def _square(image: np.ndarray, size: int) -> np.ndarray:
    from PIL import Image

    height, width = image.shape[:2]
    if height == width == size:
        return image
    longest = max(height, width)
    shape = [max(1, round(side * size / longest)) for side in (height, width)]
    bands = np.moveaxis(np.atleast_3d(image), -1, 0)
    resize = lambda band: Image.fromarray(band).resize(shape[::-1], Image.Resampling.BILINEAR)
    scaled = np.stack([np.asarray(resize(band)) for band in bands], axis=-1)
    around = [((size - side) // 2, (size - side + 1) // 2) for side in shape]
    padded = np.pad(scaled, [*around, (0, 0)], mode="edge")
    return np.clip(padded, 0, 1).reshape(size, size, *image.shape[2:])


class Pictures(NamedTuple):
    """Pictures that were read.

    Attributes:
        splits: images, and the class or number of each, by split.
        sha256: of all files.
        sizes: the heights and widths that the pictures have.
    """

    splits: dict[str, tuple[np.ndarray, list[str] | list[float]]]
    sha256: str
    sizes: set[Size]


def read_folder(folder: Path, size: int = 0, in_colour: bool = False) -> Pictures:
    """Reads images and their classes.

    The folder holds `train/CLASS/PICTURE`, `test/CLASS/PICTURE` and perhaps `valid/CLASS/PICTURE`;
    or `CLASS/PICTURE`, whose images have the name `all`. Hidden files are left out. The images of
    a class are in the order of their names. They have the size of `scale`, which leaves numbers in
    [0, 1]; for 0, they are bytes of one size. With `in_colour`, they are `(n, height, width, 3)`,
    unless all are grey.
    """
    names = [path.name for path in _listed(folder)]
    roots = {ALL: folder}
    if {"train", "test"} <= set(names):
        is_known, got = set(names) <= set(SPLITS), ", ".join(names)
        require(is_known, f"train, test and perhaps valid in {folder}, got {got}")
        roots = {name: folder / name for name in SPLITS if name in names}
    paths = {name: _by_class(root) for name, root in roots.items()}
    every = [path for of_split in paths.values() for path in of_split]
    images, digest, sizes = read_all(every, size, in_colour)
    ends = np.cumsum([len(of_split) for of_split in paths.values()])
    classes = [[path.parent.name for path in of_split] for of_split in paths.values()]
    return Pictures(dict(zip(paths, zip(np.split(images, ends[:-1]), classes))), digest, sizes)


def read_numbered(folder: Path, size: int = 0, in_colour: bool = False) -> Pictures:
    """Reads images and the number of each.

    The folder holds pictures, and a table `numbers.csv` with their names in the column `file` and
    their numbers in the column `number`. The images have the name `all`. Arguments and errors are
    those of `read_folder`.
    """
    names, numbers = table.read_numbers(folder / NUMBERS, "file", "number")
    images, digest, sizes = read_all([folder / name for name in names], size, in_colour)
    digest = hashlib.sha256(f"{digest}{numbers}".encode()).hexdigest()
    return Pictures({ALL: (images, numbers)}, digest, sizes)


def read_all(
    paths: Sequence[Path], size: int, in_colour: bool
) -> tuple[np.ndarray, str, set[Size]]:
    """Reads images of one size, one SHA-256 of all files, and the sizes that they have there."""
    total, images, sizes = hashlib.sha256(), [], set[Size]()
    for path in paths:
        image = read(path, in_colour)
        sizes.add(image.shape[:2])
        image = scale([as_pixels(image, str(path))], size)[0] if size else image
        is_alike = not images or image.shape == images[0].shape
        hint = "set data.size to scale them"
        require(is_alike, f"images of one size, got {image.shape[:2]} pixels in {path}; {hint}")
        total.update(f"{path.parent.name}/{path.name}\0{sha256(path)}".encode())
        images.append(image)
    together = np.stack(images)
    are_grey = in_colour and (together == together[..., :1]).all()
    return together[..., 0] if are_grey else together, total.hexdigest(), sizes


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
    is_hidden = lambda name: name.startswith(".") or name.lower() in OF_SYSTEMS
    entries = sorted(entry for entry in path.iterdir() if not is_hidden(entry.name))
    require(entries, f"pictures in {path}, got an empty folder")
    return entries
