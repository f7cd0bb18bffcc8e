"""Pairs of sentences, one the translation of the other, and the user's own files of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flax_attn.data.files import read_text
from flax_attn.errors import UsageError

LANGUAGES = ("en", "de", "fr")  # of Multi30k


class Pair(NamedTuple):
    """A text, and what it is to become."""

    source: str
    target: str


def read_tsv(path: Path, source_column: int = 1, target_column: int = 2) -> list[Pair]:
    """The pairs of a file, one a line, in columns from 1 with tabs between.

    Empty lines are left out.

    Raises:
        UsageError: no such file, a line that is no pair, or bytes that are not UTF-8, with the
            number of the line; or sources that are all numbers, as in a column of another thing.
    """
    try:
        lines = read_text(path).split("\n")
    except OSError as error:
        raise UsageError(
            f"cannot read {path} ({error.strerror}); give a file of pairs, source and target with "
            f"a tab between"
        ) from error
    pairs = []
    for number, line in enumerate(lines, 1):
        cells = [" ".join(cell.split()) for cell in line.split("\t")]
        if not any(cells):
            continue
        pair = Pair(
            *(
                cells[column - 1] if column <= len(cells) else ""
                for column in (source_column, target_column)
            )
        )
        if not all(pair):
            raise UsageError(
                f"expected source and target with a tab between in {path}, line {number}, columns "
                f"{source_column} and {target_column}, "
                f"got {line[:60]!r}; mend it"
            )
        pairs.append(pair)
    if not pairs:
        raise UsageError(f"expected pairs of sentences in {path}, got none")
    if all(pair.source.isdecimal() for pair in pairs):
        raise UsageError(
            f"expected texts in column {source_column} of {path}, got numbers; see "
            f"data.source_column and data.target_column"
        )
    return pairs


def check_aligned(
    source_file: str, sources: Sequence[str], target_file: str, targets: Sequence[str]
) -> None:
    """Raises a UsageError where two files of sentences have different numbers of lines."""
    if len(sources) != len(targets):
        raise UsageError(
            f"expected {source_file} and {target_file} to say the same line by line, got "
            f"{len(sources):,} and {len(targets):,} lines; "
            "get both again"
        )
