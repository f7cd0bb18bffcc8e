"""A user's own texts and labels, from a CSV or TSV file."""

from pathlib import Path

from flax_attn.data.files import COMMA, TAB, read_rows
from flax_attn.errors import UsageError


def read(path: Path, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Texts and labels of a table: TSV where the file ends in `.tsv`, else CSV.

    Columns are given by name, with a header in the first row, or by number from 1.

    Raises:
        UsageError: no such file or column, a row of another number of columns, or a label or file
            that is empty.
    """
    separator = TAB if path.suffix.lower() == ".tsv" else COMMA
    try:
        rows = list(read_rows(path, separator))
    except OSError as error:
        raise UsageError(
            f"cannot read {path} ({error.strerror}); give a CSV or TSV file of texts and labels"
        ) from error
    if not rows:
        raise UsageError(f"expected rows of texts and labels in {path}, got an empty file")
    columns, header = _columns(path, rows[0][1], text_column, label_column)
    texts, labels = [], []
    for line, row in rows[header:]:
        if len(row) != len(rows[0][1]):
            hint = ' (a text with commas stands in quotes, "so, as here")'
            raise UsageError(
                f"expected {len(rows[0][1])} columns in {path}, line {line}, as in the first, got "
                f"{len(row)}: {str(row)[:60]}; mend it{hint if separator == COMMA else ''}"
            )
        if not row[columns[1]].strip():
            raise UsageError(
                f"expected a label in {path}, line {line}, got {str(row)[:60]}; mend it"
            )
        texts.append(row[columns[0]])
        labels.append(row[columns[1]].strip())
    if not texts:
        raise UsageError(f"expected rows of texts and labels in {path}, got only a header")
    if not header and labels[0] not in labels[1:] and len(set(labels[1:])) < len(labels) - 1:
        raise UsageError(
            f"expected rows alone in {path}, but the label '{labels[0]}' of line 1 comes in no "
            f"other, as in a header; name the columns "
            "(data.text_column, data.label_column), or take that line out"
        )
    return texts, labels


def _columns(path: Path, first: list[str], *wanted: str) -> tuple[tuple[int, ...], bool]:
    """The indices of the columns, and whether the first row is a header.

    It is where a column goes by name.
    """
    names, places = [name.strip() for name in first], []
    for name in wanted:
        if name not in names and not (name.isdecimal() and 1 <= int(name) <= len(first)):
            raise UsageError(
                f"no column '{name}' in {path}, which has {', '.join(names)[:200]}, or 1 to "
                f"{len(first)}; see data.text_column and "
                "data.label_column"
            )
        if names.count(name) > 1:
            raise UsageError(
                f"expected one column '{name}' in {path}, got {names.count(name)}; give its number"
            )
        places.append(names.index(name) if name in names else int(name) - 1)
    if len(set(places)) < len(places):
        raise UsageError(
            f"expected a column of texts and another of labels in {path}, got "
            f"{' and '.join(wanted)}"
        )
    return tuple(places), any(name in names for name in wanted)
