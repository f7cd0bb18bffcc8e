"""Translations of a user's own texts, from a run directory alone."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn import decoding, experiment
from flax_attn.analysis.drawing import save
from flax_attn.analysis.translation import alignment_map
from flax_attn.classify import read_texts
from flax_attn.decoding import Translation
from flax_attn.errors import UsageError
from flax_attn.predict import PICTURES
from flax_attn.run_directory import replacing
from flax_attn.tasks import translation
from flax_attn.tasks.translation import Reader


def translate(
    run: Path,
    given: list[str],
    source: Path | None,
    console: Console,
    *,
    output: Path | None = None,
    figure: Path | None = None,
    beam: int | None = None,
    num_best: int = 1,
    as_json: bool = False,
) -> list[Path]:
    """Translates texts, given as they are or one a line of a file, prints them or writes them one a line, and draws the first.

    Args:
        beam: of the search; None for that of the run's config.
        num_best: how many translations of each text are printed, the best first.

    Returns the paths of what was written.

    Raises:
        UsageError: neither or both of texts and a file, a text that is empty or of unknown words alone, more translations wanted
            than the beam holds, or a place that cannot be written.
    """
    for path, flag, formats in ((output, "--output", (".txt",)), (figure, "--figure", PICTURES)):
        if path is not None and (path.suffix not in formats or not path.parent.is_dir()):
            raise UsageError(f"expected {flag} to end in {' or '.join(formats)}, in a directory that exists, got {path}")
    if output is not None and source is not None and output.resolve() == source.resolve():
        raise UsageError(f"expected --output to be another file than --input, got {output} for both")
    warn = lambda line: print(line, file=sys.stderr)
    config, model, params, _ = experiment.load(run, warn=warn)
    width: int = config.decoding.beam if beam is None else beam
    if not 1 <= num_best <= width:
        raise UsageError(f"expected --best from 1 to the beam of {width}, got {num_best}; raise --beam")
    reader = translation.load_reader(run, config.data, vars(model))
    texts = read_texts(given, source)
    check_sources(reader, texts, config.data.max_length, warn)
    options: dict[str, Any] = {} if width == 1 else {"length_penalty": config.decoding.length_penalty, "num_best": num_best}
    found = decoding.translate(model, params[0], reader.sources(texts), mark=reader.target.size, beam=width, **options)
    if as_json:
        console.print_json(json.dumps([to_json(reader, *each) for each in zip(texts, found)], ensure_ascii=False))
    elif output is None:
        for each in zip(texts, found):
            show(reader, *each, console)
    written = {}
    if output is not None:
        written[output] = lambda path: path.write_text("".join(f"{reader.write(best.tokens)}\n" for best, *_ in found), encoding="utf-8")
    if figure is not None:
        written[figure] = lambda path: save(draw(reader, run.name, texts[0], found[0][0]), path)
    with contextlib.ExitStack() as stack:
        for path, write in written.items():
            write(stack.enter_context(replacing(path)))
    return list(written)


def check_sources(reader: Reader, texts: list[str], max_length: int, warn: Any) -> None:
    """Raises a UsageError for a text with nothing in it that the run knows; warns of one longer than any that it was trained on."""
    for number, text in enumerate(texts, 1):
        tokens = reader.source.encode(reader.clean(text))
        which = f", in text {number}" if len(texts) > 1 else ""
        if not tokens:
            raise UsageError(f"expected a text with words in it, got {text!r}{which}")
        if not any(known and part.strip() for part, known in reader.source_parts(text)):
            raise UsageError(f"expected a text with at least one word that the run has seen, got none in {text[:60]!r}{which}")
        if len(tokens) > max_length:
            warn(f"warning: {len(tokens)} tokens{which}, where the run was trained on at most {max_length}; expect less, or split the text")


def show(reader: Reader, text: str, found: list[Translation], console: Console) -> None:
    """The text and its translations, the best first, with their scores where there are several."""
    console.print(Text(text, style="bold"), soft_wrap=True)
    for each in found:
        score = f"{each.score:8.3f}  " if len(found) > 1 else ""
        console.print(Text(f"  {score}{reader.write(each.tokens)}"), soft_wrap=True)
    unknown = [part for part, known in reader.source_parts(text) if not known]
    if unknown:
        console.print(Text(f"  not among the words that the run knows: {', '.join(unknown)}", style="dim"), soft_wrap=True)


def to_json(reader: Reader, text: str, found: list[Translation]) -> dict[str, Any]:
    translations = [
        {
            "text": reader.write(each.tokens),
            "score": each.score,
            "tokens": reader.target_words(each.tokens),
            "alignment": np.round(each.alignment, 4).tolist(),
        }
        for each in found
    ]
    source = [{"token": part, "known": known} for part, known in reader.source_parts(text)]
    return {"input": text, "source_tokens": source, "translations": translations}


def draw(reader: Reader, name: str, text: str, best: Translation) -> Any:
    """The alignment of a translation; the mark of the end is no part of it."""
    return alignment_map(reader.source_words(text), reader.target_words(best.tokens), best.alignment, name)
