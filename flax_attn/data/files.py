"""Text files and tables, read so that what is wrong is told with its line."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from flax_attn.errors import UsageError

LONGEST_CELL = 2**30  # characters


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, without a byte order mark.

    Raises a UsageError with the line of other bytes.
    """
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise UsageError(
            f"expected text in UTF-8 in {path}, line {line}, got other bytes; save it in UTF-8"
        ) from error


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, each with the line it begins at, without those that are empty.

    Raises a UsageError with the line of a row that is none.
    """
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"expected a CSV row in {path}, line {line} ({error}); mend it") from error
