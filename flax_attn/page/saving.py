"""Writes pages as files."""

import os
from pathlib import Path

from flax_attn.errors import UsageError, escaped
from flax_attn.files import check_writable, replacing
from flax_attn.runs.directory import check_no_file_of_run

SUFFIXES = (".html", ".htm")


def check_output(path: Path, what: str) -> Path:
    """Returns the file that an output stands for: a link stays one.

    Args:
        path: to the file.
        what: the path is, for an error, such as `-o`.

    Raises:
        UsageError: it is no file that can be written.
    """
    shown = escaped(str(path))
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"expected {what} with a name that ends in .html, got {shown}")
    check_no_file_of_run(path, what)
    output = Path(os.path.realpath(path))
    try:
        check_writable(output)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write {what} {shown} ({why}); choose another file") from error
    return output


def write(text: str, path: Path, what: str) -> None:
    """Writes a page whole; a file that is there stays if this fails. Errors: `check_output`."""
    with replacing(check_output(path, what)) as partial:
        partial.write_text(text, encoding="utf-8")
