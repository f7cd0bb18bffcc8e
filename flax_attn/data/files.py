"""Text files and tables, read so that what is wrong is told with its line."""

import csv
from collections.abc import Iterator
from pathlib import Path

from flax_attn import bounded
from flax_attn.errors import UsageError

COMMA, SEMICOLON, TAB = ",", ";", "\t"


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8, without their ends and without a byte order mark.

    Raises:
        OSError, UsageError: as `bounded.open_file` and `bounded.lines`.
    """
    with bounded.open_file(path) as file:
        for line in bounded.lines(path, file):
            yield line.removesuffix("\n").removesuffix("\r")


def read_text(path: Path) -> str:
    """The text of a file in UTF-8. Errors are those of `read_lines`."""
    with bounded.open_file(path) as file:
        return "".join(bounded.lines(path, file)).replace("\r\n", "\n")


def read_rows(path: Path, separator: str = COMMA) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table, each with the line it begins at, without lines that are empty.

    Cells with commas or semicolons between are CSV: a cell may stand in quotes. Cells with tabs
    between are TSV: a row is a line, and a quote is a character like any other.

    Raises:
        OSError, UsageError: as `read_lines`, and with the line of a row that is none.
    """
    if separator == TAB:
        for line, text in enumerate(read_lines(path), 1):
            if text.strip():
                yield line, text.split(TAB)
        return
    csv.field_size_limit(bounded.LONGEST_LINE)
    with bounded.open_file(path) as file:
        line, length = 1, 0

        def lines() -> Iterator[str]:
            """The lines of the file, as long as the row they belong to is not too long."""
            nonlocal length
            for text in bounded.lines(path, file, newline=""):
                length += len(text)
                if length > bounded.LONGEST_LINE:
                    raise UsageError(
                        f"expected rows of at most {bounded.LONGEST_LINE:,} characters in {path}, "
                        f"that of line {line} has more; close its quotes, or split it"
                    )
                yield text

        reader = csv.reader(lines(), delimiter=separator, strict=True)
        try:
            for row in reader:
                if row:
                    yield line, row
                line, length = reader.line_num + 1, 0
        except csv.Error as error:
            reason = str(error).replace("unexpected end of data", "a quote is never closed")
            raise UsageError(
                f"expected a CSV row in {path}, line {line} ({reason}); mend it"
            ) from error
