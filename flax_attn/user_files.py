"""The files that a user names on the command line: their formats, and whether they can be read and written."""

from pathlib import Path

from flax_attn.data.files import read_text
from flax_attn.errors import UsageError

PICTURES = (".png", ".pdf", ".svg")
LINES = (".txt",)


def check_destination(path: Path, flag: str, formats: tuple[str, ...], source: Path | None = None) -> None:
    """Raises a UsageError for a file that cannot be written, or that is the user's own input."""
    if path.suffix not in formats:
        raise UsageError(f"expected {flag} to end in {' or '.join(', '.join(formats).rsplit(', ', 1))}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"expected {flag} to be a file in a directory that exists, got {path}")
    if source is not None and path.resolve() == source.resolve():
        raise UsageError(f"expected {flag} to be another file than --input, got {path} for both")


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, empty ones too. Raises a UsageError where none has a text."""
    if path.suffix not in LINES:
        raise UsageError(f"expected --input to end in {LINES[0]} for a run on texts, got {path}")
    try:
        lines = read_text(path).split("\n")
    except OSError as error:
        raise UsageError(f"cannot read --input {path} ({error.strerror}); give a text file") from error
    if not any(line.strip() for line in lines):
        raise UsageError(f"expected texts in --input {path}, one a line, got none")
    return lines if lines[-1] else lines[:-1]
