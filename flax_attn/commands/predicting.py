"""What `flax-attn predict` prints, writes and draws, for each kind of task."""

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn.analysis.drawing import of_weight, save
from flax_attn.data.sets import SignalData
from flax_attn.errors import UsageError
from flax_attn.experiment import loading
from flax_attn.experiment.config import Config
from flax_attn.files import replacing
from flax_attn.predict import drawing, files
from flax_attn.runs.directory import read_config
from flax_attn.tasks import ImageClasses, PairsOfTexts, Prediction, Signals, Task, TextClasses


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
    print(line, file=sys.stderr)


def predict(request: Request, console: Console) -> list[Path]:
    """Answers a request. Returns the paths of what was written.

    Raises:
        UsageError: no run, an option that is not for its kind of task, inputs that are not of its kind, or a place that
            cannot be written. Nothing is written then.
    """
    stored = read_config(request.run)
    stored = {key: value for key, value in stored.items() if key != "derived"}
    config = Config.of(stored, complete=True, allowed=request.allow)
    if config.task_class is not PairsOfTexts and (request.beam is not None or request.num_best != 1):
        raise UsageError("expected --beam and --best for a run on translation alone")
    if config.task_class not in COMMANDS:
        raise UsageError(f"expected a run on shapes, texts, images or translation, got one on {stored['data'].get('name')}")
    return COMMANDS[config.task_class](request, config, console)


def predict_signals(request: Request, config: Config, console: Console) -> list[Path]:
    """Writes predictions in the shape and units of the signals, beside them unless the user says where."""
    assert isinstance(config.data, SignalData)
    source = request.source
    if request.texts or request.as_json or source is None:
        raise UsageError(
            f"expected --input FILE with signals of {config.data.shape[0]} points, and neither a text nor --json, for a run on signals"
        )
    signals = files.read_signals(source, config.data.shape)
    output = request.output or source.with_suffix(".predictions" + source.suffix)
    files.check_destination(output, "--output", files.ARRAYS, source)
    check_figure(request)
    run = loading.load(request.run, warn, allow=request.allow)
    prediction = run.predict(signals)
    to_write: dict[Path, Callable[[Path], Any]] = {output: lambda path: files.write_signals(path, prediction.outputs)}
    if request.figure is not None:
        title = f"{run.path.name} on {source.name}"
        figure = drawing.draw_signals(signals, prediction, title)
        to_write[request.figure] = lambda path: save(figure, path)
    return write_all(to_write)


def predict_texts(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints the classes of texts in falling order, with the weights of the tokens."""
    check_classes(request)
    texts = read_texts(request, '"The final starts next week."', skip_empty=True)
    prediction = loading.load(request.run, warn, allow=request.allow).predict(texts)
    print_classes(request, describe(texts, prediction), console)
    if request.figure is None:
        return []
    return [save(drawing.draw_texts(prediction, request.run.name), request.figure)]


def predict_images(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints the classes of images in falling order."""
    check_classes(request)
    names, images = read_images(request, config)
    prediction = loading.load(request.run, warn, allow=request.allow).predict(images)
    print_classes(request, describe(names, prediction), console)
    if request.figure is None:
        return []
    return [save(drawing.draw_images(images, prediction, request.run.name), request.figure)]


def predict_translations(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints translations, or writes the best of each line, and draws the first that is not empty."""
    if request.output is not None:
        files.check_destination(request.output, "--output", files.LINES, request.source)
        if request.num_best > 1 or request.as_json:
            raise UsageError("expected --output alone, for it holds the best translation of each line; leave out --best and --json")
    check_figure(request)
    beam = config.decoding.beam if request.beam is None else request.beam
    if min(beam, request.num_best) < 1:
        raise UsageError(f"expected --beam and --best above 0, got {beam} and {request.num_best}")
    if request.num_best > beam:
        raise UsageError(f"expected --best from 1 to the beam of {beam}, got {request.num_best}; raise --beam")
    texts = read_texts(request, '"ein mann schläft ."')
    run = loading.load(request.run, warn, allow=request.allow)
    assert isinstance(run.task, PairsOfTexts)
    usable = check_sources(run.task, texts, in_file=request.source is not None)
    if request.figure is not None and usable:
        length = len(run.task.encoder.source_parts(texts[usable[0]]))
        if length > drawing.MOST_DRAWN:
            raise UsageError(f"expected a text of at most {drawing.MOST_DRAWN} tokens to draw, got {length}; leave out --figure")
    prediction = run.predict(texts, beam=beam, num_best=request.num_best)
    for i in usable:
        if not prediction.translations[i][0].ended:
            most = run.task.max_length
            warn(f"warning: the translation of text {i + 1} did not come to its end in {most} tokens")
    if request.as_json:
        rows = [translations_to_json(text, prediction, i) for i, text in enumerate(texts)]
        console.print_json(json.dumps(rows, ensure_ascii=False))
    elif request.output is None:
        for i in usable:
            show_translations(texts[i], prediction, i, console)
    return write_all(translations_to_write(request, prediction, usable))


COMMANDS: dict[type[Task], Callable[[Request, Config, Console], list[Path]]] = {
    Signals: predict_signals,
    ImageClasses: predict_images,
    TextClasses: predict_texts,
    PairsOfTexts: predict_translations,
}


def check_classes(request: Request) -> None:
    """Raises a UsageError for options that are not for a run on texts or images."""
    if request.output is not None:
        raise UsageError("expected no --output for a run on texts or images, whose classes are printed; --json prints JSON")
    check_figure(request)


def check_figure(request: Request) -> None:
    if request.figure is not None:
        files.check_destination(request.figure, "--figure", files.PICTURES, request.source)


def write_all(to_write: dict[Path, Callable[[Path], Any]]) -> list[Path]:
    """Writes files by functions of a path, all of them or none."""
    try:
        with contextlib.ExitStack() as stack:
            for path, write in to_write.items():
                write(stack.enter_context(replacing(path)))
    except OSError as error:
        paths = " and ".join(map(str, to_write))
        raise UsageError(f"cannot write {paths} ({error.strerror}); choose another place") from error
    return list(to_write)


def read_texts(request: Request, example: str, skip_empty: bool = False) -> list[str]:
    """The texts given, or those of a file, one a line."""
    if request.texts and request.source is None:
        return request.texts
    if request.texts or request.source is None:
        raise UsageError(f"expected a text, {example}, or --input FILE.txt with one a line")
    lines = files.read_lines(request.source)
    return [line for line in lines if line.strip()] if skip_empty else lines


def read_images(request: Request, config: Config) -> tuple[list[str], np.ndarray]:
    """The images of a file, in [0, 1], and a name for each."""
    source = request.source
    height, width = config.data.image_shape  # pyright: ignore
    if request.texts or source is None:
        raise UsageError(f"expected --input FILE with an image of {height} x {width} pixels (PNG), or an IDX file of images")
    images = files.read_images(source, (height, width)).astype(np.float32) / 255
    names = [source.name] if len(images) == 1 else [f"{source.name} [{i}]" for i in range(len(images))]
    return names, images


def describe(names: list[str], prediction: Prediction) -> list[dict[str, Any]]:
    """Of each input the classes in falling order, and its tokens or the weights of its patches."""
    rows = []
    weights = drawing.token_weights(prediction)
    attention = next(iter(prediction.attention.values()), None)
    for i, (name, shares) in enumerate(zip(names, prediction.outputs)):
        order = np.argsort(-shares, kind="stable")
        row: dict[str, Any] = {"input": name}
        row["classes"] = {prediction.names[k]: float(shares[k]) for k in order}
        if attention is not None and prediction.tokens:
            tokens = zip(prediction.tokens[i], prediction.known[i], weights[i])
            row["tokens"] = [{"token": token, "known": known, "weight": weight} for token, known, weight in tokens]
        elif attention is not None:
            row["patches"] = attention[i].reshape(-1, attention.shape[-1]).mean(axis=0).tolist()
        rows.append(row)
    return rows


def print_classes(request: Request, rows: list[dict[str, Any]], console: Console) -> None:
    if request.as_json:
        console.print_json(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        show_classes(row, console)


def show_classes(row: dict[str, Any], console: Console) -> None:
    """The classes in falling order, and the tokens on the colours of their weights."""
    console.print(Text(row["input"], style="bold"), soft_wrap=True)
    width = max(map(len, row["classes"]))
    for name, share in row["classes"].items():
        console.print(Text(f"  {name:<{width}}  {share:6.1%}  {'█' * round(30 * share)}"))
    tokens = row.get("tokens")
    if not tokens:
        return
    line, top = Text("  "), max(token["weight"] for token in tokens)
    for token in tokens:
        back, front = of_weight(token["weight"], top)
        text = f" {token['token']} " if token["known"] else f" ({token['token']}) "
        line.append(text, style=f"{front} on {back}")
        line.append(f"{token['weight']:.2f} ", style="dim")
    console.print(line, soft_wrap=True)
    if not all(token["known"] for token in tokens):
        console.print(Text("  in brackets: not among the words that the run knows", style="dim"))


def check_sources(task: PairsOfTexts, texts: list[str], in_file: bool) -> list[int]:
    """The texts that can be translated. In a file the others are left empty, with a warning unless they are empty.

    Warns of what the run does not know, and of what is longer than all that it was trained on.

    Raises:
        UsageError: a text given by hand with nothing in it that the run knows.
    """
    usable = []
    for i, text in enumerate(texts):
        which = f"line {i + 1}" if in_file else f"text {i + 1}"
        parts = task.encoder.source_parts(text)
        if not any(known and part.strip() for part, known in parts):
            if not in_file:
                expected = "at least one word that the run has seen, got none in" if parts else "words in it, got"
                raise UsageError(f"expected a text with {expected} {text[:60]!r}")
            if parts:
                warn(f"warning: {which} has no word that the run has seen; its translation is left empty")
            continue
        usable.append(i)
        if unknown := [part for part, known in parts if not known]:
            warn(f"warning: {which} has what the run does not know: {' '.join(unknown)}")
        if len(parts) > task.longest_source:
            warn(
                f"warning: {which} has {len(parts)} tokens, where the longest in training had {task.longest_source}; "
                "expect less, or split it"
            )
    return usable


def show_translations(text: str, prediction: Prediction, i: int, console: Console) -> None:
    """The text and its translations, the best first, with their scores where there are several."""
    console.print(Text(text, style="bold"), soft_wrap=True)
    several = len(prediction.translations[i]) > 1
    for translation, written in zip(prediction.translations[i], prediction.written[i]):
        score = f"{translation.score:8.3f}  " if several else ""
        console.print(Text(f"  {score}{written}"), soft_wrap=True)


def translations_to_json(text: str, prediction: Prediction, i: int) -> dict[str, Any]:
    translations = [
        {
            "text": written,
            "score": translation.score,
            "ended": translation.ended,
            "tokens": tokens,
            "alignment": np.round(translation.alignment, 4).tolist(),
        }
        for translation, written, tokens in zip(prediction.translations[i], prediction.written[i], prediction.target_tokens[i])
    ]
    tokens = zip(prediction.tokens[i], prediction.known[i])
    source = [{"token": token, "known": known} for token, known in tokens]
    return {"input": text, "source_tokens": source, "translations": translations}


def translations_to_write(request: Request, prediction: Prediction, usable: list[int]) -> dict[Path, Callable[[Path], Any]]:
    """The files that a request for translations wants."""
    to_write: dict[Path, Callable[[Path], Any]] = {}
    if request.output is not None:
        lines = "".join(f"{text}\n" for text in prediction.outputs)
        to_write[request.output] = lambda path: path.write_text(lines, encoding="utf-8")
    if request.figure is not None:
        drawn = next((i for i in usable if prediction.translations[i][0].tokens), None)
        if drawn is None:
            warn(f"warning: every translation is empty; {request.figure} is not drawn")
        else:
            figure = drawing.draw_translation(prediction, drawn, request.run.resolve().name)
            to_write[request.figure] = lambda path: save(figure, path)
    return to_write
