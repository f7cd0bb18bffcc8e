"""What `flax-attn predict` prints, writes and draws for a run on translation."""

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
from flax_attn.errors import UsageError, escaped
from flax_attn.experiment import loading
from flax_attn.experiment.config import Config
from flax_attn.fields import LARGEST_BY_NAME
from flax_attn.predict import files
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.tasks import PairsOfTexts, Prediction
from flax_attn.tasks.encoders import knows_any
from flax_attn.types import JsonObject


def predict_translations(request: Request, config: Config, console: Console) -> list[Path]:
    """Prints translations, or writes the best of each line. Draws the first that is not empty."""
    if request.output is not None:
        files.check_text_file(request.output, "--output", request.source)
        check_no_file_of_run(request.output, "--output")
        if request.num_best > 1 or request.as_json:
            raise UsageError(
                "expected --output alone, for it holds the best translation of each line; leave "
                "out --best and --json"
            )
    check_figure(request.figure, request.source)
    beam = config.decoding.beam if request.beam is None else request.beam
    check_beam(beam, request.num_best)
    texts = read_texts(request, '"ein mann schläft ."')
    run = loading.load(request.run, warn, allow=request.allow)
    assert isinstance(run.task, PairsOfTexts)
    usable, warnings = check_sources(run.task, texts, in_file=request.source is not None)
    if request.figure is not None and usable:
        check_drawn(run.task, texts[usable[0]])
    for warning in warnings:
        warn(warning)
    prediction = run.predict(texts, beam=beam, num_best=request.num_best)
    for i in usable:
        if not prediction.translations[i][0].ended:
            most = run.task.max_length
            warn(
                f"warning: the translation of text {i + 1} did not come to its end in {most} tokens"
            )
    if request.as_json:
        rows = [translations_to_json(text, prediction, i) for i, text in enumerate(texts)]
        print_json(rows, console)
    elif request.output is None:
        for i in usable:
            show_translations(texts[i], prediction, i, console)
    return write_all(translations_to_write(request, prediction, usable))


def check_beam(beam: int, num_best: int) -> None:
    """Raises a UsageError for a beam that is no number of translations, or too small for them."""
    if min(beam, num_best) < 1:
        raise UsageError(f"expected --beam and --best above 0, got {beam} and {num_best}")
    if beam > LARGEST_BY_NAME["beam"]:
        raise UsageError(f"expected --beam of at most {LARGEST_BY_NAME['beam']:,}, got {beam}")
    if num_best > beam:
        raise UsageError(
            f"expected --best from 1 to the beam of {beam}, got {num_best}; raise --beam"
        )


def check_drawn(task: PairsOfTexts, text: str) -> None:
    """Raises a UsageError for a text that is too long to draw."""
    from flax_attn.predict import drawing  # and matplotlib, for a picture alone

    length = len(task.encoder.source_parts(text))
    if length > drawing.MOST_DRAWN:
        raise UsageError(
            f"expected a text of at most {drawing.MOST_DRAWN} tokens to draw, got {length}; leave "
            f"out --figure"
        )


def check_sources(
    task: PairsOfTexts, texts: list[str], in_file: bool
) -> tuple[list[int], list[str]]:
    """The texts that can be translated, and warnings.

    In a file the others are left empty, with a warning unless they are empty.

    The warnings also say what the run does not know, and what is longer than all that it was
    trained on.

    Raises:
        UsageError: a text given by hand with nothing in it that the run knows.
    """
    usable, warnings = [], []
    for i, text in enumerate(texts):
        which = f"line {i + 1}" if in_file else f"text {i + 1}"
        parts = task.encoder.source_parts(text)
        if not knows_any(parts):
            if not in_file:
                expected = (
                    "at least one word that the run has seen, got none in"
                    if parts
                    else "words in it, got"
                )
                raise UsageError(f"expected a text with {expected} {text[:60]!r}")
            if parts:
                warnings.append(
                    f"warning: {which} has no word that the run has seen; its translation is left "
                    f"empty"
                )
            continue
        usable.append(i)
        if unknown := [part for part, known in parts if not known]:
            warnings.append(f"warning: {which} has what the run does not know: {' '.join(unknown)}")
        if len(parts) > task.longest_source:
            warnings.append(
                f"warning: {which} has {len(parts)} tokens, where the longest in training had "
                f"{task.longest_source}; "
                "expect less, or split it"
            )
    return usable, warnings


def show_translations(text: str, prediction: Prediction, i: int, console: Console) -> None:
    """The text and its translations, the best first, with their scores where there are several."""
    console.print(Text(escaped(text), style="bold"), soft_wrap=True)
    several = len(prediction.translations[i]) > 1
    for translation, written in zip(prediction.translations[i], prediction.written[i]):
        score = f"{translation.score:8.3f}  " if several else ""
        console.print(Text(f"  {score}{escaped(written)}"), soft_wrap=True)


def translations_to_json(text: str, prediction: Prediction, i: int) -> JsonObject:
    translations = [
        {
            "text": written,
            "score": translation.score,
            "ended": translation.ended,
            "tokens": tokens,
            "alignment": np.round(translation.alignment, 4).tolist(),
        }
        for translation, written, tokens in zip(
            prediction.translations[i], prediction.written[i], prediction.target_tokens[i]
        )
    ]
    tokens = zip(prediction.tokens[i], prediction.known[i])
    source = [{"token": token, "known": known} for token, known in tokens]
    return {"input": text, "source_tokens": source, "translations": translations}


def translations_to_write(
    request: Request, prediction: Prediction, usable: list[int]
) -> dict[Path, Callable[[Path], object]]:
    """The files that a request for translations wants."""
    to_write: dict[Path, Callable[[Path], object]] = {}
    if request.output is not None:
        lines = "".join(f"{text}\n" for text in prediction.outputs)
        to_write[request.output] = lambda path: path.write_text(lines, encoding="utf-8")
    if request.figure is not None:
        drawn = next((i for i in usable if prediction.translations[i][0].tokens), None)
        if drawn is None:
            warn(f"warning: every translation is empty; {request.figure} is not drawn")
        else:
            from flax_attn.predict import drawing

            figure = drawing.draw_translation(prediction, drawn, request.run.resolve().name)
            to_write[request.figure] = lambda path: drawing.save(figure, path)
    return to_write
