"""Trained runs that come with the package, so that a page answers before anything is trained.

`python -m docs.ship` writes them into `flax_attn/shipped`.
"""

import atexit
import functools
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "shipped"
NAMES = ("dates", "shapes", "induction")


def place(path: Path) -> Path:
    """Returns the directory of a run that comes with the package, where a path is its name.

    A path of the user's own is returned as it is.
    """
    name = str(path)
    return unpacked(name) if name in NAMES and not os.path.lexists(path) else path


@functools.cache
def unpacked(name: str) -> Path:
    """Unpacks a run of the package for as long as the program runs, and returns its directory."""
    folder = Path(tempfile.mkdtemp(prefix="flax_attn-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    return folder / name
