"""Writes pages as files."""

import os
from pathlib import Path

from flax_attn.files import replacing
from flax_attn.tasks.user_files import check_destination

SUFFIXES = (".html", ".htm")


def check_output(path: Path, what: str) -> None:
    """Raises a UsageError that names `what`, such as `-o`, for no file of a page to write."""
    is_page = path.suffix.lower() in SUFFIXES
    check_destination(path, what, (path.suffix,) if is_page else SUFFIXES)


def write(text: str, path: Path, what: str) -> None:
    """Writes a page whole; a file that is there stays if this fails. Errors: `check_output`."""
    check_output(path, what)
    with replacing(Path(os.path.realpath(path))) as partial:  # a link stays one
        partial.write_text(text, encoding="utf-8")
