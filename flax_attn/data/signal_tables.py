"""Signals in tables, with a row for each signal or for each point in time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flax_attn.data.table import index_of, is_number, read_cells
from flax_attn.errors import UsageError, shortened
from flax_attn.schema import require

ENDINGS = (".csv", ".tsv")


def read(
    path: Path, label_column: str, id_column: str = "id", time_column: str = "time"
) -> tuple[list[np.ndarray], list[str] | None]:
    """Reads signals `(t, channels)`, and the cell of the label column of each.

    A first row that has more than a label and numbers is a header. Where it has both the id and the
    time column, each row is a point in time of the signal with this id, and every other column but
    that of labels is a channel; the points may stand in any order. Otherwise, each row is a signal,
    and every column but those of labels and ids is a point in time; cells may be empty behind the
    end of a signal. Columns without a name in the header are left out.

    Returns:
        The signals, and their labels; None where there is no such column.
    """
    _, rows = read_cells(path, [label_column, id_column, time_column])
    require(rows, f"rows of signals in {path}, got none")
    first = [cell.strip() for cell in rows[0][1]]
    width = max(len(row) for _, row in rows)
    numbered = index_of(label_column, [], width)
    values = [cell for i, cell in enumerate(first) if i != numbered and cell]
    is_named = label_column in first and not label_column.isdecimal()
    has_header = is_named or not all(map(is_number, values))
    header = first if has_header else []
    rows = rows[has_header:]
    require(rows, f"rows of signals in {path}, got none below its header")
    is_long = {id_column, time_column} <= set(header)
    names = (label_column, id_column, time_column) if is_long else (label_column, id_column)
    label, *keys = (index_of(name, header, width) for name in names)
    unnamed = [i for i, name in enumerate(header) if not name]  # as pandas writes its index
    others = [i for i in range(width) if i not in (label, *keys, *unnamed)]
    if is_long:
        return in_points(path, rows, header, label, (keys[0], keys[1]), others)
    signals = [in_row(path, line, header, row, others) for line, row in rows]
    if label is None:
        return signals, None
    return signals, [row[label].strip() if label < len(row) else "" for _, row in rows]


def in_row(
    path: Path, line: int, header: Sequence[str], row: Sequence[str], columns: Sequence[int]
) -> np.ndarray:
    """Reads the signal of a row, up to its last cell that is not empty."""
    cells = [(i, row[i]) for i in columns if i < len(row)]
    while cells and not cells[-1][1].strip():
        cells.pop()
    require(cells, f"numbers in {path}, line {line}, got none")
    return np.array([[number_in(path, line, header, i, cell)] for i, cell in cells], np.float32)


def in_points(
    path: Path,
    rows: Sequence[tuple[int, list[str]]],
    header: Sequence[str],
    label: int | None,
    keys: tuple[int | None, int | None],
    channels: Sequence[int],
) -> tuple[list[np.ndarray], list[str] | None]:
    """Reads the signals of a table with a row for each point in time, in the order of their ids."""
    by_id: dict[str, list[tuple[float, list[float], str]]] = {}
    of_id, of_time = keys
    assert of_id is not None
    assert of_time is not None
    for line, row in rows:
        require(len(row) == len(header), f"{len(header)} cells in {path}, line {line}")
        time = number_in(path, line, header, of_time, row[of_time])
        values = [number_in(path, line, header, i, row[i]) for i in channels]
        known = by_id.setdefault(row[of_id], [])
        known.append((time, values, "" if label is None else row[label].strip()))
        if known[0][2] != known[-1][2]:
            raise UsageError(
                f"expected one label for all points of '{shortened(row[of_id])}' in {path}, got "
                f"'{shortened(known[0][2])}' and, in line {line}, '{shortened(known[-1][2])}'"
            )
    for name, points in by_id.items():
        times = [time for time, _, _ in points]
        is_once = len({*times}) == len(times)
        require(is_once, f"each time once for '{shortened(name)}' in {path}, got one twice")
    ordered = [sorted(points, key=lambda point: point[0]) for points in by_id.values()]
    signals = [np.array([values for _, values, _ in points], np.float32) for points in ordered]
    return signals, None if label is None else [points[0][2] for points in ordered]


def number_in(path: Path, line: int, header: Sequence[str], column: int, cell: str) -> float:
    """Converts a cell to a number. Raises a UsageError that names its place."""
    is_named = column < len(header)
    name = f"column '{shortened(header[column])}'" if is_named else f"column {column + 1}"
    require(is_number(cell), f"a number in {path}, line {line}, {name}, got '{shortened(cell)}'")
    return float(cell)


def numbers_of(path: Path, cells: Sequence[str]) -> np.ndarray:
    """Converts the labels of signals to numbers."""
    for cell in cells:
        require(
            is_number(cell), f"a number as label of each signal in {path}, got '{shortened(cell)}'"
        )
    return np.array(cells, np.float32)
