"""The commands `predict` and `words` for a run."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from flax_attn.errors import UsageError, escaped
from flax_attn.tasks import evidence, user_files
from flax_attn.tasks.artifacts import Prediction, first_attention, outputs_of
from flax_attn.tasks.cell import GridTask
from flax_attn.tasks.inputs.signals import Signals
from flax_attn.tasks.inputs.texts import Texts
from flax_attn.tasks.requests import (
    TEXT_COLUMN,
    Load,
    Request,
    ToWrite,
    check_figure,
    has_table,
    picture_to_write,
    print_json,
    read_texts,
    table_to_write,
    write_all,
    writing,
)
from flax_attn.types import JsonObject, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.analysis.drawing import Figure

IN_PICTURE = "the picture shows the weights; a word with little weight may still decide"


def predict(request: Request, load: Load, console: "Console") -> list[Path]:
    """Answers `flax-attn predict`: prints, writes and draws. Returns the paths of files.

    Predictions of signals, and those for a table, go into a file beside the input; all others are
    printed, and written where `--output` says so.
    """
    check_figure(request.figure, request.source)
    run = load()
    task = run.task
    assert isinstance(task, GridTask)
    inputs, output = task.inputs, output_of(request, task)
    names, given, table, usable = inputs.requested(request)
    prediction = run.predict(given)
    is_printed = table is None and task.target.name != "signal"
    if is_printed or request.as_json or request.why:
        rows = task.target.describe(names, prediction)
        if request.why and isinstance(inputs, Texts):
            moved = evidence.changes(run, inputs, names)
            evidence.add(rows, prediction.tokens, moved, prediction.names)
        tell(request, task, rows, console)
    to_write: ToWrite = {}
    if output is not None and table is not None:
        to_write[output] = writing(table, usable, task.target.columns(prediction))
    elif output is not None:
        array = outputs_of(prediction)
        column = array[:, None] if array.ndim == 1 and output.suffix == ".csv" else array
        to_write[output] = lambda path: user_files.write_signals(path, column)
    draw = lambda: draw_prediction(task, given, prediction, request)
    paths = write_all(to_write | picture_to_write(request, draw))
    if table is not None and prediction.classes and not request.as_json:
        counts = Counter(prediction.classes).most_common()
        listed = ", ".join(f"{number:,} {name}" for name, number in counts)
        console.print(Text(escaped(f"{len(names):,} texts: {listed}")), soft_wrap=True)
    return paths


def output_of(request: Request, task: GridTask) -> Path | None:
    """Returns the file for predictions, if there is one, and checks that it can be written."""
    if has_table(request) and task.inputs.name == "text":
        return table_to_write(request)
    output, source = request.output, request.source
    if output is None and task.target.name == "signal" and source is not None:
        output = source.with_suffix(f".predictions{source.suffix}")
    if output is not None:
        user_files.check_destination(output, "--output", user_files.ARRAYS, source)
    return output


def tell(request: Request, task: GridTask, rows: list[JsonObject], console: "Console") -> None:
    """Prints predictions, and the effect of each word where that is asked for."""
    if request.as_json:
        print_json(rows, console)
        return
    for row in rows:
        task.target.show(row, console)
        if request.why:
            evidence.print_why(row, console)
    if request.why and request.figure is not None:
        console.print(Text(IN_PICTURE, style="dim"), soft_wrap=True)


def draw_prediction(
    task: GridTask, given: UserInput, prediction: Prediction, request: Request
) -> "Figure":
    """Draws a user's inputs with their predictions and the first attention."""
    if task.target.name == "signal" and isinstance(task.inputs, Signals):
        from flax_attn.analysis import signals

        shaped = np.asarray(given).reshape(-1, *task.inputs.shape)
        weights, name = first_attention(prediction)[1], str(request.source and request.source.name)
        return signals.draw_outputs(shaped, outputs_of(prediction), weights, name)
    from flax_attn.analysis.drawing import theme

    verdicts = [(verdict, theme().ink) for verdict in task.target.verdicts(prediction)]
    return task.inputs.draw(given, prediction, verdicts, request.run.name)


def words(request: Request, load: Load, console: "Console") -> None:
    """Prints of each class the words without which it is less probable, in test texts.

    With `--input`, the texts are those of a file.
    """
    run = load()
    task = run.task
    assert isinstance(task, GridTask)
    assert isinstance(task.inputs, Texts)
    inputs, names = task.inputs, task.target.class_names()
    assert names is not None
    if request.source is None:
        texts = test_texts(task, request.manual_dir)
    else:
        texts = read_texts(request, "", getattr(task.data, "text_column", TEXT_COLUMN))
    texts = [text for text in texts if inputs.can_read(text)]
    if not texts:
        raise UsageError("expected texts with a word that the run has seen, got none")
    chosen = np.linspace(0, len(texts) - 1, min(len(texts), request.num_texts)).astype(int)
    texts = [texts[i] for i in chosen]  # a file may stand in the order of its classes
    _, tokens, _ = inputs.read(texts)
    moved = evidence.changes(run, inputs, texts)
    table = evidence.words_by_class(tokens, moved, names, request.num_words)
    if request.as_json:
        print_json(evidence.to_json(table, len(texts)), console)
    else:
        evidence.print_words(table, len(texts), console)


def test_texts(task: GridTask, manual_dir: Path | None) -> list[str]:
    """Reads the texts of the test split again.

    Raises:
        UsageError: the data are not there, or are others than the run began with.
    """
    try:
        raw = task.data.load(manual_dir)
    except UsageError as error:
        raise UsageError(f"{error}; or give texts by --input FILE") from error
    if dict(raw.files) != task.files:
        raise UsageError(
            f"expected {', '.join(raw.files)} as the run began with, got other contents; restore "
            "them, or give texts by --input FILE"
        )
    return list(raw.splits["test"].inputs)
