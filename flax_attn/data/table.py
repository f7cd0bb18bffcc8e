"""A user's own texts and labels, from a CSV file."""

import csv
from pathlib import Path

from flax_attn.data.builders import sha256 as sha256
from flax_attn.errors import UsageError


def read(path: Path, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Texts and labels of a CSV file, whose columns are given by name, with a header in the first row, or by number from 1.

    Raises:
        UsageError: no such file or column, a row that is shorter, or a label or file that is empty.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError:
        raise UsageError(f"no file {path}; give a CSV file of texts and labels") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"expected CSV in UTF-8 in {path} ({error}); mend it") from error
    if not rows:
        raise UsageError(f"expected rows of texts and labels in {path}, got an empty file")
    columns, header = _columns(path, rows[0][1], text_column, label_column)
    texts, labels = [], []
    for line, row in rows[header:]:
        if len(row) <= max(columns) or not row[columns[1]].strip():
            raise UsageError(f"expected a text and a label in {path}, line {line}, got {str(row)[:60]}; mend it")
        texts.append(row[columns[0]])
        labels.append(row[columns[1]].strip())
    if not texts:
        raise UsageError(f"expected rows of texts and labels in {path}, got only a header")
    return texts, labels


def _columns(path: Path, first: list[str], *wanted: str) -> tuple[tuple[int, ...], bool]:
    """The places of the columns, and whether the first row is a header: it is where columns go by name."""
    if all(name.isdecimal() for name in wanted):
        places = tuple(int(name) - 1 for name in wanted)
        if min(places) < 0 or max(places) >= len(first):
            raise UsageError(f"expected columns from 1 to {len(first)} of {path}, got {' and '.join(wanted)}; see data.text_column")
        return places, False
    names = [name.strip() for name in first]
    for name in wanted:
        if name not in names:
            raise UsageError(f"no column '{name}' in {path}, which has {', '.join(names)}; see data.text_column and data.label_column")
    return tuple(names.index(name) for name in wanted), True
