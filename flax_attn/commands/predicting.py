"""What `flax-attn predict` prints, writes and draws, for each kind of task."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn.commands.requests import (
    Request,
    check_figure,
    print_json,
    read_texts,
    warn,
    write_all,
)
from flax_attn.commands.translating import predict_translations
from flax_attn.errors import UsageError, escaped
from flax_attn.experiment import loading
from flax_attn.experiment.config import Config
from flax_attn.experiment.loading import Run
from flax_attn.predict import arrays, files
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.tasks import (
    ImageClasses,
    LanguageModel,
    PairsOfTexts,
    Prediction,
    Signals,
    Task,
    TextClasses,
)
from flax_attn.types import JsonObject

MOST_NEXT = 10  # tokens that may come next


def predict(request: Request, console: Console) -> list[Path]:
    """Answers a request. Returns the paths of what was written.

    Raises:
        UsageError: no run, an option that is not for its kind of task, inputs that are not of its
            kind, or a place that cannot be written. Nothing is written then.
    """
    config, _ = loading.read_values(request.run, request.allow)
    if config.task_class is not PairsOfTexts and (
        request.beam is not None or request.num_best != 1
    ):
        raise UsageError("expected --beam and --best for a run on translation alone")
    if config.task_class not in COMMANDS:
        raise UsageError(
            f"expected a run on signals, texts, images, translation or language, got one on "
            f"{config.values['data']['name']}"
        )
    return COMMANDS[config.task_class](request, config, console)


def predict_signals(request: Request, config: Config, console: Console) -> list[Path]:
    """Writes predictions in the shape and units of the signals.

    They go beside the signals unless the user says where.
    """
    run = loading.load(request.run, warn, allow=request.allow)
    assert isinstance(run.task, Signals)
    source, shape = request.source, run.task.shape
    if request.texts or request.as_json or source is None:
        raise UsageError(
            f"expected --input FILE with signals of {shape[0]} points, and neither a text nor "
            f"--json, for a run on signals"
        )
    signals = files.read_signals(source, shape)
    output = request.output or source.with_suffix(".predictions" + source.suffix)
    files.check_destination(output, "--output", files.ARRAYS, source)
    check_no_file_of_run(output, "--output")
    check_figure(request.figure, request.source)
    prediction = run.predict(signals)
    to_write: dict[Path, Callable[[Path], object]] = {
        output: lambda path: files.write_signals(path, arrays.outputs_of(prediction))
    }
    if request.figure is not None:
        from flax_attn.predict import drawing  # and matplotlib, for a picture alone

        figure = drawing.draw_signals(signals.reshape(-1, *shape), prediction, source.name)
        to_write[request.figure] = lambda path: drawing.save(figure, path)
    return write_all(to_write)


def predict_texts(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints the classes of texts in falling order, with the weights of the tokens."""
    check_classes(request)
    texts = read_texts(request, '"The final starts next week."', skip_empty=True)
    run = loading.load(request.run, warn, allow=request.allow)
    return predict_classes(request, run, texts, texts, console)


def predict_images(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints the classes of images in falling order."""
    check_classes(request)
    run = loading.load(request.run, warn, allow=request.allow)
    assert isinstance(run.task, ImageClasses)
    names, images = read_images(request, run.task)
    return predict_classes(request, run, names, images, console)


def predict_classes(
    request: Request,
    run: Run,
    names: list[str],
    inputs: list[str] | np.ndarray,
    console: Console,
) -> list[Path]:
    """Prints the classes of inputs by these names, and draws them on request."""
    prediction = run.predict(inputs)
    print_classes(request, describe(names, prediction), console)
    if request.figure is None:
        return []
    from flax_attn.predict import drawing

    if isinstance(inputs, list):
        figure = drawing.draw_texts(prediction, request.run.name)
    else:  # pictures show ink; photographs are shown as they are
        has_ink = isinstance(run.task, ImageClasses) and run.task.data.light_ink
        figure = drawing.draw_images(inputs if has_ink else 1 - inputs, prediction)
    return [drawing.save(figure, request.figure)]


def predict_next(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints the most probable tokens after each text. Draws what the last of the first sees."""
    check_classes(request)
    texts = read_texts(request, '"ROMEO:"')
    run = loading.load(request.run, warn, allow=request.allow)
    prediction = run.predict(texts)
    if request.figure is not None and not prediction.attention:
        raise UsageError(f"the model of {request.run.name} gives no weights; leave out --figure")
    rows: list[JsonObject] = []
    for text, shares in zip(texts, arrays.outputs_of(prediction)):
        order = np.argsort(-shares, kind="stable")[:MOST_NEXT]
        best = [{"token": prediction.names[i], "probability": float(shares[i])} for i in order]
        rows.append({"input": text, "next": best})
    if request.as_json:
        print_json(rows, console)
    for row in rows if not request.as_json else ():
        shown = {repr(token["token"]): token["probability"] for token in row["next"]}
        show_classes({"input": row["input"], "classes": shown}, console)
    if request.figure is None:
        return []
    from flax_attn.analysis import language  # and matplotlib, for a picture alone
    from flax_attn.analysis.drawing import save

    last = {name: weights[0][:, -1] for name, weights in prediction.attention.items()}
    figure = language.looks(prediction.tokens[0], last, request.run.resolve().name)
    return [save(figure, request.figure)]


COMMANDS: dict[type[Task], Callable[[Request, Config, Console], list[Path]]] = {
    Signals: predict_signals,
    ImageClasses: predict_images,
    TextClasses: predict_texts,
    PairsOfTexts: predict_translations,
    LanguageModel: predict_next,
}


def check_classes(request: Request) -> None:
    """Raises a UsageError for options that are not for a run on texts or images."""
    if request.output is not None:
        raise UsageError(
            "expected no --output for a run on texts or images, whose predictions are printed; "
            "--json prints JSON"
        )
    check_figure(request.figure, request.source)


def read_images(request: Request, task: ImageClasses) -> tuple[list[str], np.ndarray]:
    """The images of a file, in [0, 1] and of the size that the model takes, and a name for each."""
    source = request.source
    height, width = task.image_shape
    if request.texts or source is None:
        raise UsageError(
            f"expected --input FILE with an image of {height} x {width} pixels (PNG), or a .npy or "
            f"IDX file of images"
        )
    images = task.prepare(files.read_images(source, task.data.light_ink), str(source))
    names = (
        [source.name] if len(images) == 1 else [f"{source.name} [{i}]" for i in range(len(images))]
    )
    return names, images


def describe(names: list[str], prediction: Prediction) -> list[JsonObject]:
    """Of each input the classes in falling order, and its tokens or the weights of its patches."""
    rows = []
    weights = arrays.token_weights(prediction)
    attention = next(iter(arrays.attention_of(prediction).values()), None)
    for i, (name, shares) in enumerate(zip(names, arrays.outputs_of(prediction))):
        order = np.argsort(-shares, kind="stable")
        row: JsonObject = {"input": name}
        row["classes"] = {prediction.names[k]: float(shares[k]) for k in order}
        if attention is not None and prediction.tokens:
            tokens = zip(prediction.tokens[i], prediction.known[i], weights[i])
            row["tokens"] = [
                {"token": token, "known": known, "weight": weight}
                for token, known, weight in tokens
            ]
        elif attention is not None:
            row["patches"] = attention[i].reshape(-1, attention.shape[-1]).mean(axis=0).tolist()
        rows.append(row)
    return rows


def print_classes(request: Request, rows: list[JsonObject], console: Console) -> None:
    if request.as_json:
        print_json(rows, console)
        return
    for row in rows:
        show_classes(row, console)


def show_classes(row: JsonObject, console: Console) -> None:
    """The classes in falling order, and the tokens on the colours of their weights."""
    console.print(Text(escaped(row["input"]), style="bold"), soft_wrap=True)
    classes = {escaped(name): share for name, share in row["classes"].items()}
    width = max(map(len, classes))
    for name, share in classes.items():
        console.print(Text(f"  {name:<{width}}  {share:6.1%}  {'█' * round(30 * share)}"))
    tokens = row.get("tokens")
    if not tokens:
        return
    line, top = Text("  "), max(token["weight"] for token in tokens)
    for token in tokens:
        written = escaped(token["token"])
        text = f" {written} " if token["known"] else f" ({written}) "
        line.append(text, style=style_of(token["weight"], top, console))
        line.append(f"{token['weight']:.2f} ", style="dim")
    console.print(line, soft_wrap=True)
    if not all(token["known"] for token in tokens):
        console.print(Text("  in brackets: not among the words that the run knows", style="dim"))


def style_of(weight: float, top: float, console: Console) -> str:
    """The colours of a token; none where the console has none, as in a file."""
    if console.color_system is None:
        return ""
    from flax_attn.analysis import drawing  # and matplotlib, for its colours

    with drawing.on(drawing.DARK):  # on white, a weight of 0 would look like a mark
        back, front = drawing.of_weight(weight, top)
    return f"{front} on {back}"
