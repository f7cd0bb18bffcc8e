"""Rows of the measurement of attention: figures and their ratios, as a table and as JSON lines."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import timing
from benchmarks.attention_cases import Case
from benchmarks.attention_forms import Call

PASSES = {"forward": False, "forward and backward": True}  # whether the backward pass is there
NAMES = ("case", "pass", "length", "batch", "heads")  # columns of every table


class Row(NamedTuple):
    """One case: how much time or memory each form takes, and ratios by what is divided by what."""

    case: str
    length: int | None = None
    batch: int | None = None
    heads: int | None = None
    passes: str = ""
    unit: str = ""
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    note: str = ""

    @classmethod
    def of(cls, case: Case, *fields: Any, **named: Any) -> "Row":
        """Returns the row of a case with its sizes; the fields are those from `passes` on."""
        return cls(case.name, case.length, case.batch, case.heads, *fields, **named)

    def line(self, group: str) -> str:
        context = {"machine": timing.machine(), "comparison": f"attention, {group}"}
        return json.dumps(context | self._asdict()) + "\n"


def milliseconds(calls: dict[str, Call], repeats: int) -> dict[str, float]:
    """Medians of calls that take turns, by `repeats` rounds; by more where they are short."""
    seconds = timing.alternate(calls, repeats, least=1.0 if repeats > 1 else 0.0)
    return {name: 1e3 * value for name, value in seconds.items()}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def tabulate(title: str, rows: Iterable[Row]) -> Table:
    """Returns all rows of a group. A column is there where a row has something in it."""
    lines = [cells(row) for row in rows]
    columns = dict.fromkeys((*NAMES, *(column for line in lines for column in line)))
    table = Table(title=title, title_justify="left")
    # Names first, then figures, then ratios; notes last.
    for column in sorted(columns, key=lambda column: (column == "note", "/" in column)):
        words = column in ("case", "pass", "note")
        table.add_column(column, justify="left" if words else "right", overflow="fold")
    for line in lines:
        table.add_row(*(line.get(column.header, "") for column in table.columns))
    return table


def cells(row: Row) -> dict[str, str]:
    """Returns what stands in a table for a row, by column."""
    passes = "both" if PASSES.get(row.passes) else row.passes
    sizes = ["" if size is None else f"{size:,}" for size in (row.length, row.batch, row.heads)]
    line = dict(zip(NAMES, (row.case, passes, *sizes)))
    line |= {f"{name}, {row.unit}": number(value) for name, value in row.figures.items()}
    line |= {name: number(value) for name, value in row.ratios.items()}
    return {name: cell for name, cell in (line | {"note": row.note}).items() if cell}
