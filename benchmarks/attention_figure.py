"""Time of attention over length, and its picture: which keys are visible decides about the time."""

import textwrap
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks import attention_cases as cases
from benchmarks import timing
from benchmarks.attention_forms import check, flex, ours, sdpa
from benchmarks.attention_rows import PASSES, Row, milliseconds
from flax_attn.analysis.drawing import BLUE, GREY, ORANGE, Picture, styled, theme

HEADS = 4
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FURTHER = (32768, 65536)  # where only ours in a window is measured
CHECKED = 4096  # the work is checked up to this length
FORMS = {"ours": ours, "SDPA": sdpa, "flex": flex}
NAMES = {"ours": "flax_attn", "SDPA": "PyTorch, SDPA", "flex": "PyTorch, flex_attention"}
SHOWN = ("ours", "SDPA")  # in the picture
WINDOW = f"window of {cases.WINDOW}"
LINES: dict[str, dict[str, Any]] = {
    "all keys": {"color": ORANGE, "ls": "-", "marker": "s", "ms": 5},
    "causal": {"color": GREY, "ls": "--", "marker": "D", "ms": 5},
    WINDOW: {"color": BLUE, "ls": ":", "marker": "o", "ms": 5, "lw": 2},
}


def rows(shrink: int, repeats: int) -> Iterator[Row]:
    """Milliseconds by form, for each length, what is visible, and the pass."""
    for length in (*LENGTHS, *FURTHER):
        for make in (cases.all_keys, cases.causal, cases.window):
            if length in FURTHER and make is not cases.window:
                continue
            case = make(length // shrink, HEADS)
            for passes, backward in PASSES.items():
                names = [name for name in FORMS if name == "ours" or length in LENGTHS]
                names = [name for name in names if name != "flex" or not backward]
                calls = {name: FORMS[name](case, backward) for name in names}
                if length <= CHECKED:
                    check(calls)
                yield Row.of(case, passes, "ms", milliseconds(calls, repeats))


@styled
def draw(rows: list[Row], machine: str = "") -> Figure:
    """Ours and PyTorch's fused kernel beside each other, with a line for each kind of keys."""
    figure = Picture(figsize=(8.3, 4.4), layout="constrained")
    axes = figure.subplots(1, len(SHOWN), sharex=True, sharey=True)
    both = [row for row in rows if PASSES[row.passes]]
    lengths = sorted({row.length for row in both if row.length})
    for ax, form in zip(axes, SHOWN):
        for case, style in LINES.items():
            points = [
                (r.length, r.figures[form]) for r in both if r.case == case and form in r.figures
            ]
            if points:
                ax.plot(*zip(*points), **style, label=case)
        ax.set(xscale="log", yscale="log", xlabel="length of queries and keys")
        ax.set_title(NAMES[form], loc="left")
        ax.set_xticks(lengths[::2], [f"{length:,}" for length in lengths[::2]])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("milliseconds, forward and backward")
    axes[0].legend(loc="upper left", handlelength=3)
    figure.suptitle(message(rows), x=0.01, ha="left", weight="bold")
    small = f"batch 1, {HEADS} heads of {cases.WIDTH}, float32; {machine or timing.machine()}"
    figure.supxlabel(textwrap.fill(small, 110), fontsize=9, color=theme().quiet)
    return figure


def message(rows: list[Row]) -> str:
    """Returns what the picture says, from the longest length that has all of it."""
    both = [row for row in rows if PASSES[row.passes]]
    figures = {(row.case, row.length): row.figures for row in both}
    length = max(row.length for row in rows if "SDPA" in row.figures)  # pyright: ignore
    window, everything = figures[WINDOW, length], figures["all keys", length]
    ours, peer = (100 * window[form] / everything[form] for form in ("ours", "SDPA"))
    of_ours = f"takes flax_attn {ours:.0f} % of the time of all keys"
    among = f"A window of {cases.WINDOW} among {length:,} keys"
    return f"{among} {of_ours}\nand PyTorch's SDPA {peer:.0f} %, forward and backward"
