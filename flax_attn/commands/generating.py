"""What `flax-attn generate` prints and draws."""

import argparse
from pathlib import Path

from flax_attn.errors import escaped_lines
from flax_attn.experiment import loading
from flax_attn.schema import require
from flax_attn.tasks.requests import check_figure, warn
from flax_attn.types import Options

BETWEEN = "-" * 15  # two texts
UNFINISHED = "\ufffd"  # stands for the first bytes of a character


def generate(args: argparse.Namespace) -> list[Path]:
    """Prints one text as it is written, or several one after another. Draws the first on request.

    Returns the paths of what was drawn.
    """
    require(args.samples > 0, f"--samples of at least 1, got {args.samples}")
    check_figure(args.figure)
    run = loading.load(args.run, warn, allow=tuple(args.allow))
    shown = ""

    def show(texts: list[str]) -> None:
        """Prints what is new of the first text, without a character that is not finished."""
        nonlocal shown
        text = texts[0].rstrip(UNFINISHED)
        print(escaped_lines(text[len(shown) :]), end="", flush=True)
        shown = text

    names = ("length", "temperature", "top_k", "seed")
    options: Options = {name: getattr(args, name) for name in names}
    options["on_texts"] = show if args.samples == 1 else None
    generated = run.generate([args.prompt] * args.samples, **options)
    print(escaped_lines(f"\n{BETWEEN}\n".join(generated.texts)[len(shown) :]), flush=True)
    if args.figure is None:
        return []
    from flax_attn.analysis import language  # and matplotlib, for a picture alone
    from flax_attn.analysis.drawing import save

    figure = language.looks(generated.tokens, generated.attention, args.run.resolve().name)
    return [save(figure, args.figure)]
