"""Pairs of sentences, one the translation of the other, and the user's own files of them."""

from pathlib import Path
from typing import NamedTuple

from flax_attn.data.files import read_rows
from flax_attn.data.table import SEPARATORS, separator_of
from flax_attn.errors import UsageError

LANGUAGES = ("en", "de", "fr")  # of Multi30k


class Pair(NamedTuple):
    """A text, and what it is to become."""

    source: str
    target: str


def read(path: Path, source_column: int = 1, target_column: int = 2) -> list[Pair]:
    """The pairs of a table without a header, one a row, in columns from 1.

    The separator is found by what is in the table. Empty rows are left out.

    Raises:
        UsageError: no such file, a row that is no pair, or bytes that are not UTF-8, with the
            number of the line; or sources that are all numbers, as in a column of another thing.
    """
    columns, pairs = (source_column, target_column), []
    try:
        separator = separator_of(path, [str(column) for column in columns])
        for number, row in read_rows(path, separator):
            cells = [" ".join(cell.split()) for cell in row]
            if not any(cells):
                continue
            pair = Pair(*(cells[i - 1] if i <= len(cells) else "" for i in columns))
            if not all(pair):
                raise UsageError(
                    f"expected source and target with a {SEPARATORS[separator]} between in {path}, "
                    f"line {number}, columns {source_column} and {target_column}, "
                    f"got {separator.join(row)[:60]!r}; mend it, or see data.source_column and "
                    f"data.target_column"
                )
            pairs.append(pair)
    except OSError as error:
        raise UsageError(
            f"cannot read {path} ({error.strerror}); give a file of pairs, source and target with "
            f"a tab between"
        ) from error
    if not pairs:
        raise UsageError(f"expected pairs of sentences in {path}, got none")
    if all(pair.source.isdecimal() for pair in pairs):
        raise UsageError(
            f"expected texts in column {source_column} of {path}, got numbers; see "
            f"data.source_column and data.target_column"
        )
    return pairs
