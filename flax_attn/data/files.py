"""Text files and tables of the user, read whole. What is wrong is named with its line."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from flax_attn.errors import UsageError
from flax_attn.files import read_bytes

COMMA, SEMICOLON, TAB = ",", ";", "\t"
# how spreadsheets (.xlsx and .xls), files packed by gzip, and pictures begin
BINARY = (b"PK\3\4", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"\x89PNG", b"\xff\xd8\xff")


def decode(path: Path, content: bytes) -> str:
    """Decodes the content of a text file in UTF-8, without its byte order mark."""
    if content.startswith(BINARY):
        hint = "save a spreadsheet (.xlsx) as CSV, and unpack what is packed"
        raise UsageError(f"expected a file of text, got the binary file {path}; {hint}")
    try:
        text = content.decode("utf-8-sig")
        first = text.find("\0")  # as in UTF-16
    except UnicodeDecodeError as error:
        text, first = "", error.start
    if first >= 0:
        line = 1 + content.count(b"\n", 0, first)
        got = "another encoding, such as Latin-1; save it in UTF-8"
        raise UsageError(f"expected text in UTF-8 in {path}, line {line}, got {got}")
    return text


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8. Errors are those of `decode`."""
    return decode(path, read_bytes(path)).replace("\r\n", "\n")


def read_lines(path: Path) -> list[str]:
    """Reads the lines of a text file, without their ends. Errors are those of `read_text`."""
    return split_lines(read_text(path))


def split_lines(text: str) -> list[str]:
    """Splits a text at its line feeds alone, so that a cell may have other ends of lines."""
    return [line.removesuffix("\n") for line in io.StringIO(text)]


def read_rows(path: Path, separator: str = COMMA) -> list[tuple[int, list[str]]]:
    """Reads the rows of a table. Errors are those of `read_text` and `parse_rows`."""
    return list(parse_rows(path, decode(path, read_bytes(path)), separator))


def parse_rows(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Parses the rows of a table, each with the line it begins at, without lines that are empty.

    Cells with commas or semicolons between are CSV: a cell may stand in quotes. Cells with tabs
    between are TSV: a row is a line, and a quote is a character like any other.
    """
    csv.field_size_limit(sys.maxsize)
    if separator == TAB:
        for line, row in enumerate(io.StringIO(text.replace("\r\n", "\n")), 1):
            if row.strip():
                yield line, row.removesuffix("\n").split(TAB)
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        reason = str(error).replace("unexpected end of data", "a quote is never closed")
        raise UsageError(f"expected a CSV row in {path}, line {line} ({reason})") from error
