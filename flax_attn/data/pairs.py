"""Pairs of sentences, one the translation of the other, and the user's own files of them."""

from pathlib import Path
from typing import NamedTuple

from flax_attn.data.table import SEPARATORS, read_cells
from flax_attn.errors import UsageError

LANGUAGES = ("en", "de", "fr")  # of Multi30k
ADVICE = "see data.source_column and data.target_column"


class Pair(NamedTuple):
    """A text, and what it is to become."""

    source: str
    target: str


def read(path: Path, source_column: int = 1, target_column: int = 2) -> list[Pair]:
    """Reads the pairs of a table without a header, one a row, in columns from 1.

    The separator is found by what is in the table. Empty rows are left out.
    """
    columns, pairs = (source_column, target_column), []
    separator, rows = read_cells(path, [str(column) for column in columns])
    for number, row in rows:
        cells = [" ".join(cell.split()) for cell in row]
        if not any(cells):
            continue
        pair = Pair(*(cells[i - 1] if i <= len(cells) else "" for i in columns))
        if not all(pair):
            raise UsageError(
                f"expected source and target with a {SEPARATORS[separator]} between in {path}, "
                f"line {number}, got {separator.join(row)[:60]!r}; {ADVICE}"
            )
        pairs.append(pair)
    if all(pair.source.isdecimal() for pair in pairs):
        raise UsageError(f"expected pairs of texts in {path}, got none, or numbers; {ADVICE}")
    return pairs
