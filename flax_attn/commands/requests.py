"""What a user asks of `flax-attn predict`, and what all kinds of task do with it."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.highlighter import JSONHighlighter

from flax_attn.errors import ESCAPES, LONGEST, UsageError, escaped, shortened
from flax_attn.files import replacing
from flax_attn.predict import files
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.types import JsonObject

JSON_ESCAPES = {code: f"\\u{code:04x}" for code in ESCAPES if code != ord("\n")}


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    Attributes:
        run: a run directory.
        texts: as they were given on the command line.
        source: a file of inputs.
        output: where predictions go.
        figure: where a picture goes.
        as_json: whether JSON is printed.
        beam, num_best: of translations.
        allow: modules of the user's own that may be imported.
    """

    run: Path
    texts: list[str]
    source: Path | None = None
    output: Path | None = None
    figure: Path | None = None
    as_json: bool = False
    beam: int | None = None
    num_best: int = 1
    allow: tuple[str, ...] = ()


def warn(line: str) -> None:
    print(shortened(escaped(line), LONGEST), file=sys.stderr)


def print_json(rows: list[JsonObject], console: Console) -> None:
    """Prints rows as JSON. A character that could do harm is escaped as JSON does it."""
    is_ascii = not console.encoding.startswith("utf")  # there, JSON's own escapes lose nothing
    text = json.dumps(rows, indent=2, ensure_ascii=is_ascii).translate(JSON_ESCAPES)
    console.print(JSONHighlighter()(text), soft_wrap=True)


def check_figure(path: Path | None, source: Path | None = None) -> None:
    """Raises a UsageError for a `--figure` that cannot be written, or that is a file of a run."""
    if path is not None:
        files.check_destination(path, "--figure", files.PICTURES, source)
        check_no_file_of_run(path, "--figure")


def write_all(to_write: dict[Path, Callable[[Path], object]]) -> list[Path]:
    """Writes files by functions of a path, all of them or none."""
    try:
        with contextlib.ExitStack() as stack:
            for path, write in to_write.items():
                # a link stays one
                write(stack.enter_context(replacing(Path(os.path.realpath(path)))))
    except OSError as error:
        paths = " and ".join(map(str, to_write))
        raise UsageError(
            f"cannot write {paths} ({error.strerror}); choose another place"
        ) from error
    return list(to_write)


def read_texts(request: Request, example: str, skip_empty: bool = False) -> list[str]:
    """The texts given, or those of a file, one a line."""
    if request.texts and request.source is None:
        return request.texts
    if request.texts or request.source is None:
        raise UsageError(f"expected a text, {example}, or --input FILE.txt with one a line")
    lines = files.read_lines(request.source)
    return [line for line in lines if line.strip()] if skip_empty else lines
