"""Translations of a user's own texts, from a run directory alone."""

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from flax_attn import decoding, experiment
from flax_attn.analysis.drawing import save
from flax_attn.analysis.translation import alignment_map
from flax_attn.decoding import Translation
from flax_attn.errors import UsageError
from flax_attn.run_directory import replacing
from flax_attn.tasks import translation
from flax_attn.tasks.translation import Reader
from flax_attn.user_files import LINES, PICTURES, check_destination, read_lines

MOST_DRAWN = 200  # tokens, of which there is still something to see in a picture


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

    By the parameters of the first seed of the run; what is drawn is the first translation that is not empty.

    Args:
        beam: of the search; None for that of the run's config.
        num_best: how many translations of each text are printed, the best first.

    Returns the paths of what was written.

    Raises:
        UsageError: neither or both of texts and a file, a text that is empty or of unknown words alone, more translations wanted
            than the beam holds, or a place that cannot be written.
    """
    for path, flag, formats in ((output, "--output", LINES), (figure, "--figure", PICTURES)):
        if path is not None:
            check_destination(path, flag, formats, source)
    if output is not None and (num_best > 1 or as_json):
        raise UsageError("expected --output alone, for it holds the best translation of each line; leave out --best and --json")
    warn = lambda line: print(line, file=sys.stderr)
    config, model, params, derived = experiment.load(run, warn=warn)
    width: int = config.decoding.beam if beam is None else beam
    if min(width, num_best) < 1:
        raise UsageError(f"expected --beam and --best above 0, got {width} and {num_best}")
    if num_best > width:
        raise UsageError(f"expected --best from 1 to the beam of {width}, got {num_best}; raise --beam")
    reader = translation.load_reader(run, config.data, vars(model))
    texts = list(given) if source is None else read_lines(source)
    if bool(given) == (source is not None):
        raise UsageError('expected a text, "ein mann schläft .", or --input FILE.txt with one a line')
    known = check_sources(reader, texts, derived["longest"]["source"], warn, in_file=source is not None)
    if figure is not None and known and (length := len(reader.source_parts(texts[known[0]]))) > MOST_DRAWN:
        raise UsageError(f"expected a text of at most {MOST_DRAWN} tokens to draw, got {length}; leave out --figure")
    options = {"mark": reader.target.size, "beam": width, "max_length": translation.most_tokens(derived), "num_best": num_best}
    found: dict[int, list[Translation]] = {i: [] for i in range(len(texts))}
    if known:
        sources = reader.sources([texts[i] for i in known])
        found |= dict(zip(known, decoding.translate(model, params[0], sources, length_penalty=config.decoding.length_penalty, **options)))
    for i in known:
        if not found[i][0].ended:
            warn(f"warning: the translation of text {i + 1} did not come to its end in {options['max_length']} tokens")
    if as_json:
        console.print_json(json.dumps([to_json(reader, texts[i], found[i]) for i in found], ensure_ascii=False))
    elif output is None:
        for i in known:
            show(reader, texts[i], found[i], console)
    written = {}
    if output is not None:
        lines = "".join(f"{reader.write(found[i][0].tokens) if found[i] else ''}\n" for i in found)
        written[output] = lambda path: path.write_text(lines, encoding="utf-8")
    if figure is not None:
        drawn = next((i for i in known if found[i][0].tokens), None)
        if drawn is None:
            warn(f"warning: every translation is empty; {figure} is not drawn")
        else:
            written[figure] = lambda path: save(draw(reader, run.resolve().name, texts[drawn], found[drawn][0]), path)
    with contextlib.ExitStack() as stack:
        for path, write in written.items():
            write(stack.enter_context(replacing(path)))
    return list(written)


def check_sources(reader: Reader, texts: list[str], longest: int, warn: Callable[[str], None], in_file: bool) -> list[int]:
    """Which texts can be translated; in a file others are left empty, with a warning unless they are.

    Warns of what the run does not know and of what is longer than all that it was trained on. Raises a UsageError for a text given
    by hand that has nothing in it that the run knows.
    """
    usable = []
    for i, text in enumerate(texts):
        which = f"line {i + 1}" if in_file else f"text {i + 1}"
        parts = reader.source_parts(text)
        if not any(known and part.strip() for part, known in parts):
            if not in_file:
                said = "at least one word that the run has seen, got none in" if parts else "words in it, got"
                raise UsageError(f"expected a text with {said} {text[:60]!r}")
            if parts:
                warn(f"warning: {which} has no word that the run has seen; its translation is left empty")
            continue
        usable.append(i)
        if unknown := [part for part, known in parts if not known]:
            warn(f"warning: {which} has what the run does not know: {' '.join(unknown)}")
        if len(parts) > longest:
            warn(f"warning: {which} has {len(parts)} tokens, where the longest in training had {longest}; expect less, or split it")
    return usable


def show(reader: Reader, text: str, found: Sequence[Translation], console: Console) -> None:
    """The text and its translations, the best first, with their scores where there are several."""
    console.print(Text(text, style="bold"), soft_wrap=True)
    for each in found:
        score = f"{each.score:8.3f}  " if len(found) > 1 else ""
        console.print(Text(f"  {score}{reader.write(each.tokens)}"), soft_wrap=True)


def to_json(reader: Reader, text: str, found: Sequence[Translation]) -> dict[str, Any]:
    translations = [
        {
            "text": reader.write(each.tokens),
            "score": each.score,
            "ended": each.ended,
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
