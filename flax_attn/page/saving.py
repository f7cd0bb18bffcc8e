"""Pages as files: what is checked before one is written, and how it is written."""

import os
from pathlib import Path

from flax_attn.errors import UsageError, escaped
from flax_attn.files import check_writable, replacing
from flax_attn.runs.directory import check_no_file_of_run

SUFFIXES = (".html", ".htm")


def check_output(path: Path, what: str) -> Path:
    """The file that an output stands for: a link stays one.

    Args:
        path: to the file.
        what: the path is, for an error, such as `-o`.

    Raises:
        UsageError: it is no file that can be written.
    """
    shown, advice = escaped(str(path)), "choose another file"
    if path.is_dir():
        raise UsageError(f"expected a file for {what}, got the directory {shown}; add report.html")
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"expected {what} with a name that ends in .html, got {shown}; {advice}")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"no directory {escaped(str(folder))} for {what}; make it, or {advice}")
    check_no_file_of_run(path, what)
    output = Path(os.path.realpath(path))
    try:
        check_writable(output)
    except OSError as error:
        raise cannot_write(path, what, error) from error
    return output


def cannot_write(path: Path, what: str, error: OSError) -> UsageError:
    return UsageError(f"cannot write {what} {path} ({error.strerror}); choose another file")


def write(text: str, path: Path, what: str) -> None:
    """Writes a page whole. A file that is there stays if this fails.

    Raises:
        UsageError: as `check_output`.
    """
    output = check_output(path, what)
    try:
        with replacing(output) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, what, error) from error
