"""What a user asks of `flax-attn predict`, and what all tasks do with it."""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.highlighter import JSONHighlighter

from flax_attn.data import table
from flax_attn.data.table import Table
from flax_attn.errors import ESCAPES, LONGEST, UsageError, escaped, shortened
from flax_attn.files import replacing
from flax_attn.tasks import user_files
from flax_attn.types import JsonObject

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

TEXT_COLUMN = "text"  # the column of texts where the data of a run have no name for it
ToWrite = dict[Path, Callable[[Path], object]]  # files, and what writes each to a path
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in ESCAPES if code != ord("\n")}


@dataclasses.dataclass(frozen=True)
class Request:
    """What the user asks for: the arguments of `flax-attn predict` and `flax-attn words`."""

    run: Path
    texts: list[str]
    source: Path | None = None
    output: Path | None = None
    figure: Path | None = None
    as_json: bool = False
    beam: int | None = None
    num_best: int = 1
    allow: Sequence[str] = ()
    why: bool = False
    manual_dir: Path | None = None
    num_texts: int = 500
    num_words: int = 10

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Request":
        """Returns the request of arguments that have the names of its attributes."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in vars(args).items() if name in names})


def warn(line: str) -> None:
    print(shortened(escaped(line), LONGEST), file=sys.stderr)


def print_json(rows: list[JsonObject] | JsonObject, console: Console) -> None:
    """Prints rows as JSON. A character that could do harm is escaped as JSON does it."""
    is_ascii = not console.encoding.startswith("utf")  # there, JSON's own escapes lose nothing
    text = json.dumps(rows, indent=2, ensure_ascii=is_ascii).translate(JSON_ESCAPES)
    console.print(JSONHighlighter()(text), soft_wrap=True)


def check_figure(path: Path | None, source: Path | None = None) -> None:
    """Raises a UsageError for a `--figure` that cannot be written, or that is a file of a run."""
    if path is not None:
        user_files.check_destination(path, "--figure", user_files.PICTURES, source)


def has_table(request: Request) -> bool:
    """Returns whether the inputs stand in a table."""
    return request.source is not None and request.source.suffix.lower() in user_files.TABLES


def table_to_write(request: Request) -> Path | None:
    """Returns where a table with predictions goes: beside the input unless JSON is printed."""
    source, output = request.source, request.output
    assert source is not None
    if output is None and not request.as_json:
        output = source.with_suffix(".predictions" + source.suffix.lower())
    if output is not None:
        user_files.check_destination(output, "--output", user_files.TABLES, source)
    return output


def read_table(request: Request, column: str) -> Table:
    """Reads the table of a request, whose texts stand in a column by name or number."""
    assert request.source is not None
    check_one_source(request)
    return table.read_table(request.source, [column], "texts", "rename its column of texts")


def check_one_source(request: Request) -> None:
    """Raises a UsageError for texts beside a file of texts."""
    if request.texts and request.source is not None:
        raise UsageError("expected texts or --input, got both; leave one out")


def usable_rows(
    texts: Sequence[str], lines: Sequence[int], check: Callable[[list[str]], object]
) -> list[int]:
    """Returns the indices of the texts that can be predicted, and warns if others cannot.

    `check` raises a UsageError for a text that cannot, whose row begins in one of the `lines`.
    """
    usable: list[int] = []
    refused: list[tuple[int, UsageError]] = []
    for i, (line, text) in enumerate(zip(lines, texts)):
        try:
            check([text])
            usable.append(i)
        except UsageError as error:
            refused.append((line, error))
    if refused:
        line, error = refused[0]
        note = f"{len(refused)} of {len(texts)} rows get no prediction, the first in line {line}: "
        if not usable:
            raise UsageError(note + str(error)) from error
        warn(f"warning: {note}{error}")
    return usable


def writing(
    rows: Table, usable: Sequence[int], added: Mapping[str, Sequence[str]]
) -> Callable[[Path], None]:
    """Returns a function that writes a table with columns on the right, for the usable rows."""
    columns: dict[str, list[str]] = {}
    for name, cells in added.items():
        by_row = dict(zip(usable, cells))
        columns[name] = [by_row.get(i, "") for i in range(len(rows.rows))]
    return lambda path: table.write(rows, path, columns)


def picture_to_write(request: Request, draw: Callable[[], "Figure"]) -> ToWrite:
    """Draws the picture that is asked for, if there is one."""
    if request.figure is None:
        return {}
    from flax_attn.analysis.drawing import save  # and matplotlib, for a picture alone

    figure = draw()
    return {request.figure: lambda path: save(figure, path)}


def write_all(to_write: ToWrite) -> list[Path]:
    """Writes files by functions of a path, all of them or none."""
    with contextlib.ExitStack() as stack:
        for path, write in to_write.items():
            # a link of the user's stays one
            write(stack.enter_context(replacing(Path(os.path.realpath(path)))))
    return list(to_write)


def check_no_table(source: Path, lines: list[str], column: str) -> None:
    """Raises a UsageError for lines that are rows of a table, which has a column of this name."""
    cells = [cell.strip(' "\ufeff') for cell in re.split("[,;\t]", lines[0])] if lines else []
    if len(cells) > 1 and column in cells:
        raise UsageError(
            f"expected a text in each line of {source}, got a table with a column '{column}'; "
            f"rename the file to end in .csv"
        )


def read_texts(request: Request, example: str, column: str = TEXT_COLUMN) -> list[str]:
    """Returns the texts given, or those of a file: of a column of a table, or one a line."""
    check_one_source(request)
    if request.texts:
        return request.texts
    if request.source is None:
        raise UsageError(f"expected a text, such as {example}, or --input FILE.txt with one a line")
    if has_table(request):
        return read_table(request, column).column()
    lines = user_files.read_lines(request.source)
    check_no_table(request.source, lines, column)
    return lines
