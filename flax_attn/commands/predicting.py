"""The commands `predict` and `words`."""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn import platforms, published
from flax_attn.analysis.tables import wide_console
from flax_attn.data import signal_tables
from flax_attn.data.table import is_number
from flax_attn.errors import UsageError, escaped
from flax_attn.experiment import loading
from flax_attn.experiment.loading import Model
from flax_attn.runs.directory import read_config
from flax_attn.schema import require
from flax_attn.tasks import comparison, evidence, user_files
from flax_attn.tasks.artifacts import Prediction, first_attention, outputs_of
from flax_attn.tasks.inputs.signals import Signals
from flax_attn.tasks.inputs.texts import Texts
from flax_attn.tasks.requests import (
    TEXT_COLUMN,
    Request,
    ToWrite,
    check_figure,
    has_table,
    picture_to_write,
    print_json,
    read_texts,
    table_to_write,
    warn,
    write_all,
    writing,
)
from flax_attn.tasks.task import Task
from flax_attn.types import JsonObject, Options, UserInput

if TYPE_CHECKING:
    from flax_attn.analysis.drawing import Figure

IN_PICTURE = "the picture shows the weights; a word with little weight may still decide"


def predict(args: argparse.Namespace) -> list[Path]:
    """Predicts what the arguments ask for: prints, writes and draws. Returns the paths of files.

    Predictions of signals, and those for a table, go into a file beside the input; all others are
    printed, and written where `--output` says so.

    Raises a UsageError for an option or inputs that are not of the task. Nothing is written then.
    """
    request, console = Request.of(args), wide_console()
    kind, name, load = opened(request)
    takes_beam = kind.target_class.takes_beam
    is_plain = request.beam is None and request.num_best == 1
    require(takes_beam or is_plain, "--beam and --best beside a run on translation alone")
    if request.why:
        require(kind.tells_why, f"a run in classes, such as text_csv, got one on {name}")
    if len(request.texts) > 1 and all(len(text.split()) == 1 for text in request.texts):
        warn(f"note: {len(request.texts)} texts of one word; one of several words stands in quotes")
    if (products := platforms.products()) != "float32":
        warn(
            f"note: float32 is multiplied in {products} on this {platforms.current()}; "
            "JAX_DEFAULT_MATMUL_PRECISION=highest multiplies in float32"
        )
    check_figure(request.figure, request.source)
    output = output_of(request, kind)
    run = load()
    inputs, target = run.task.inputs, run.task.target
    names, given, table, usable, labels = inputs.requested(request)
    search: Options = {"beam": request.beam, "num_best": request.num_best} if takes_beam else {}
    prediction = run.predict(given, **search)
    if target.name == "classes":  # some published encoders have none of an input
        expected = "a model with classes of inputs; in Python, predict returns its outputs"
        require(prediction.classes, expected)
    is_told = request.as_json or request.why
    if is_told or (table is None and target.name != "signal"):
        rows = target.describe(names, prediction)
        if request.why and isinstance(inputs, Texts):
            moved = evidence.changes(run.model, list(run.params.values()), inputs, names)
            evidence.add(rows, prediction.tokens, moved, prediction.names)
        elif request.why:
            evidence.add_parts(rows, run.task, run.predict, given)
        if output is None or is_told:
            tell(request, run.task, rows, console)
    to_write: ToWrite = {}
    if output is not None and table is not None:
        to_write[output] = writing(table, usable, target.columns(prediction))
    elif output is not None:
        to_write[output] = lambda path: user_files.write_outputs(path, prediction.outputs)
    draw = lambda: draw_prediction(run.task, given, prediction, request)
    paths = write_all(to_write | picture_to_write(request, draw))
    if table is not None and prediction.classes and not request.as_json:
        counts = Counter(prediction.classes).most_common()
        listed = ", ".join(f"{number:,} {name}" for name, number in counts)
        console.print(Text(escaped(f"{len(names):,} texts: {listed}")), soft_wrap=True)
    if labels and not request.as_json:
        for line in scored(run.task, labels, prediction):
            console.print(Text(escaped(line)), soft_wrap=True)
    return paths


def scored(task: Task, labels: Sequence[str], prediction: Prediction) -> list[str]:
    """Returns how good predictions are where their file has labels that the run knows."""
    if task.target.name == "classes":
        known = {*prediction.names}
        hits = [label == name for label, name in zip(labels, prediction.classes) if label in known]
        scores = {"accuracy": np.array(hits, float)}
    elif task.target.name == "number":
        pairs = zip(labels, outputs_of(prediction))
        distances = [abs(number - float(label)) for label, number in pairs if is_number(label)]
        scores = {"mae": np.array(distances, float)}
    else:
        return []
    (count,) = map(len, scores.values())
    told = comparison.lines(comparison.compare(scores, {}))
    if told and count < len(labels):
        told.append(f"({len(labels) - count:,} rows without a label that the run knows left out)")
    return told


def opened(request: Request) -> tuple[type[Task], str, Callable[[], Model]]:
    """Returns the task of a run or a published model, a name for its data, and what loads it."""
    load = lambda: loading.load(request.run, warn, allow=tuple(request.allow))
    if published.is_published(request.run):
        model = load()
        return type(model.task), request.run.name, lambda: model
    config, _ = loading.parted(read_config(request.run), request.allow)
    return config.task, config.values["data"]["name"], load


def output_of(request: Request, task: type[Task]) -> Path | None:
    """Returns the file for predictions, if there is one, and checks that it can be written."""
    output, source, target = request.output, request.source, task.target_class
    if has_table(request) and task.input_class.name == "text" and target.name != "text":
        return table_to_write(request)
    if output is None and target.name == "signal" and source is not None:
        ending = ".csv" if source.suffix.lower() in signal_tables.ENDINGS else source.suffix
        output = source.with_suffix(f".predictions{ending}")
    if output is not None:
        is_text, others = target.name == "text", (*user_files.PICTURES, *user_files.ARRAYS)
        require(not is_text or output.suffix not in others, f"a text file, got --output {output}")
        endings = (output.suffix,) if is_text else user_files.ARRAYS
        user_files.check_destination(output, "--output", endings, source)
    return output


def tell(request: Request, task: Task, rows: list[JsonObject], console: Console) -> None:
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
    task: Task, given: UserInput, prediction: Prediction, request: Request
) -> "Figure":
    """Draws a user's inputs with their predictions and the first attention."""
    if task.target.name == "signal" and isinstance(task.inputs, Signals):
        from flax_attn.analysis import signals

        shaped = task.inputs.rows(given)
        weights, name = first_attention(prediction)[1], str(request.source and request.source.name)
        return signals.draw_outputs(shaped, outputs_of(prediction), weights, name)
    from flax_attn.analysis.drawing import theme

    verdicts = [(verdict, theme().ink) for verdict in task.target.verdicts(prediction)]
    return task.inputs.draw(given, prediction, verdicts, request.run.name)


def print_words(args: argparse.Namespace) -> list[Path]:
    """Prints of each class the words without which it is less probable, in test texts.

    With `--input`, the texts are those of a file. Errors are those of `predict`.
    """
    request, console = Request.of(args), wide_console()
    are_some = min(request.num_texts, request.num_words) > 0
    require(are_some, "--texts and --words to be whole numbers above 0")
    kind, name, load = opened(request)
    are_texts = kind.name == "text-classes"
    require(are_texts, f"a run on texts in classes, such as text_csv, got one on {name}")
    run = load()
    inputs, names = run.task.inputs, run.task.target.class_names()
    assert isinstance(inputs, Texts)
    assert names is not None
    if request.source is None:
        texts = test_texts(run.task, request.manual_dir)
    else:
        texts = read_texts(request, "", getattr(inputs.data, "text_column", TEXT_COLUMN))
    texts = [text for text in texts if inputs.can_read(text)]
    require(texts, "texts with a word that the run has seen, got none")
    chosen = np.linspace(0, len(texts) - 1, min(len(texts), request.num_texts)).astype(int)
    texts = [texts[i] for i in chosen]  # a file may stand in the order of its classes
    _, tokens, _ = inputs.read(texts)
    moved = evidence.changes(run.model, list(run.params.values()), inputs, texts)
    table = evidence.words_by_class(tokens, moved, names, request.num_words)
    if request.as_json:
        print_json(evidence.to_json(table, len(texts)), console)
    else:
        evidence.print_words(table, len(texts), console)
    return []


def test_texts(task: Task, manual_dir: Path | None) -> list[str]:
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
