"""A user's own table: a CSV or TSV file whose separator is found by what is in it."""

import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flax_attn.data.files import COMMA, SEMICOLON, TAB, decode, parse_rows
from flax_attn.errors import UsageError, counted, shortened
from flax_attn.files import read_bytes
from flax_attn.schema import require

SEPARATORS = {TAB: "tab", SEMICOLON: "semicolon", COMMA: "comma"}  # the first of equals
LOOKED_AT = 100  # rows, from which the separator is found
LONGEST_NAME = 40  # characters of a column in an error
BOM = "\ufeff"  # by which Excel knows UTF-8


class Table(NamedTuple):
    """The rows of a table below its header, if it has one, and the line of each.

    Attributes:
        path, separator: of the file.
        header: the first row, where a column goes by name. Else it is empty.
        rows: all others, with as many cells as the first.
        lines: where each of them begins.
        columns: the indices of the columns that were asked for.
    """

    path: Path
    separator: str
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    columns: tuple[int, ...]

    def cells(self, name: str) -> list[str]:
        """Returns the cells of a column by name or number; empty for none."""
        index = index_of(name, self.header, len(self.rows[0]))
        return [] if index is None else [row[index].strip() for row in self.rows]

    def column(self, number: int = 0) -> list[str]:
        """Returns the cells of a column that was asked for."""
        return [row[self.columns[number]] for row in self.rows]


def read(path: Path, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Reads texts and labels of a table."""
    table = read_pairs(path, text_column, label_column, "label")
    labels, spelt = [label.strip() for label in table.column(1)], {}
    for label in dict.fromkeys(labels):
        other = spelt.setdefault(label.casefold(), label)
        both = f"'{shortened(other)}' and '{shortened(label)}'"
        require(other == label, f"each class of {path} in one spelling, got {both}")
    return table.column(), labels


def read_numbers(path: Path, text_column: str, column: str) -> tuple[list[str], list[float]]:
    """Reads texts and numbers of a table."""
    table = read_pairs(path, text_column, column, "number")
    for line, cell in zip(table.lines, table.column(1)):
        hint = ", with a point as in 3.5" if "," in cell else ""
        where = f"{path}, line {line}{hint}"
        require(is_number(cell), f"a number in {where}, got '{shortened(cell)}'")
    return table.column(), [float(cell) for cell in table.column(1)]


def read_pairs(path: Path, text_column: str, other_column: str, other: str) -> Table:
    """Reads a table with a column of texts and a second one, which has an entry in every row.

    `other` names what stands in the second, and the key `data.{other}_column` selects it.
    """
    advice = f"name others by data.text_column and data.{other}_column, or without a header give "
    advice += "their numbers from 1"
    table = read_table(path, [text_column, other_column], f"texts and {other}s", advice)
    for line, entry in zip(table.lines, table.column(1)):
        require(entry.strip(), f"a {other} in {path}, line {line}, got none")
    return table


def read_table(path: Path, wanted: Sequence[str], content: str, advice: str) -> Table:
    """Reads a table with columns that are given by name, or by number from 1.

    Where one goes by name, the first row is a header. Errors name the `content` of the table, and
    give the advice on a column that is not there.
    """
    separator, numbered = read_cells(path, wanted)
    header = [name.strip() for name in numbered[0][1]] if numbered else []
    columns = tuple(_index(path, header, name, advice) for name in wanted) if header else ()
    has_header = any(name in header for name in wanted)
    below = numbered[has_header:]
    require(below, f"rows of {content} in {path}, got none below its header")
    for line, row in below:
        if len(row) != len(header):
            count, got = counted(len(header), "column"), f"got {len(row)}: {str(row)[:60]}"
            hint = f"; a text with a {SEPARATORS[separator]} stands in quotes"
            got += "" if separator == TAB else hint
            raise UsageError(f"expected {count} in {path}, line {line}, as in the first, {got}")
    lines, rows = map(list, zip(*below))
    return Table(path, separator, header if has_header else [], rows, lines, columns)


def read_cells(path: Path, wanted: Sequence[str]) -> tuple[str, list[tuple[int, list[str]]]]:
    """Reads the separator of a table, and its rows, each with the line it begins at."""
    text = decode(path, read_bytes(path))
    separator = separator_of(path, text, wanted)
    return separator, list(parse_rows(path, text, separator))


def separator_of(path: Path, text: str, wanted: Sequence[str]) -> str:
    """Returns the separator of a table: a tab, a semicolon or a comma.

    It cuts the first row into the columns that are wanted, and most of the first rows into as many
    cells as the first. `csv.Sniffer` knows no columns, and takes a comma within texts for it. A
    table of one column has the separator that its ending names.
    """
    merits: dict[str, tuple[int, int]] = {}
    for separator in SEPARATORS:
        rows: list[list[str]] = []
        try:
            for _, row in itertools.islice(parse_rows(path, text, separator), LOOKED_AT):
                rows.append(row)
        except UsageError:
            pass  # raised again when all is read
        if rows and len(rows[0]) > 1:
            header = [name.strip() for name in rows[0]]
            named = [index_of(name, header, len(header)) is not None for name in wanted]
            merits[separator] = sum(named), sum(len(row) == len(header) for row in rows)
    by_ending = TAB if path.suffix.lower() == ".tsv" else COMMA
    return max(merits, key=lambda separator: merits[separator], default=by_ending)


def write(table: Table, path: Path, added: dict[str, list[str]]) -> None:
    """Writes a table with further columns on the right, by name.

    It has the separator that it had, or that of its new ending where this is another.
    """
    for name in added:
        require(name not in table.header, f"no column '{name}' in {table.path}, as it is added")
    rows = [[*row, *cells] for row, *cells in zip(table.rows, *added.values())]
    if table.header:
        rows.insert(0, [*table.header, *added])
    with open(table.path, encoding="utf-8") as source:
        mark = BOM if source.read(1) == BOM else ""
    separator, ending = table.separator, path.suffix.lower()
    if ending != table.path.suffix.lower():
        separator = TAB if ending == ".tsv" else COMMA
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(mark)
        if separator == TAB:  # a row is a line, and no cell is quoted
            one_line = str.maketrans("\t\r\n", "   ")
            cells = ([cell.translate(one_line) for cell in row] for row in rows)
            file.writelines(TAB.join(row) + "\n" for row in cells)
        else:
            csv.writer(file, delimiter=separator, lineterminator="\n").writerows(rows)


def index_of(name: str, header: Sequence[str], width: int) -> int | None:
    """Returns the index of a column by its name in the header, or by number from 1 to the width."""
    if name in header:
        return header.index(name)
    return int(name) - 1 if name.isdecimal() and 1 <= int(name) <= width else None


def is_number(cell: str) -> bool:
    """Returns whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _index(path: Path, header: list[str], name: str, advice: str) -> int:
    """Returns the index of a column. Raises a UsageError for one that is not there, or twice."""
    index = index_of(name, header, len(header))
    if index is None:
        if len(header) == 1:
            advice = f"a comma, a semicolon or a tab separates columns; {advice}"
        names = ", ".join(shortened(other, LONGEST_NAME) for other in header)
        raise UsageError(
            f"no column '{shortened(name)}' in {path}, which has {shortened(names, 150)}; {advice}"
        )
    require(header.count(name) < 2, f"one column '{name}' in {path}, got several")
    return index
