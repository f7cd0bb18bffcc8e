"""Time of attention over length, and its picture: which keys are visible decides about the time."""

import textwrap
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks import attention_cases as cases
from flax_attn.analysis.drawing import BLUE, GREY, ORANGE, Picture, styled, theme

HEADS = 4
NAMES = {"ours": "flax_attn", "SDPA": "PyTorch, SDPA"}
Milliseconds = Mapping[tuple[str, int], Mapping[str, float]]  # of a text, by keys and length
WINDOW = f"window of {cases.WINDOW}"
LINES: dict[str, dict[str, Any]] = {
    "all keys": {"color": ORANGE, "ls": "-", "marker": "s", "ms": 5},
    "causal": {"color": GREY, "ls": "--", "marker": "D", "ms": 5},
    WINDOW: {"color": BLUE, "ls": ":", "marker": "o", "ms": 5, "lw": 2},
}


@styled
def draw(measured: Milliseconds, machine: str) -> Figure:
    """Ours and PyTorch's fused kernel beside each other, with a line for each kind of keys."""
    figure = Picture(figsize=(8.3, 4.4), layout="constrained")
    axes = figure.subplots(1, len(NAMES), sharex=True, sharey=True)
    lengths = sorted({length for _, length in measured})
    for ax, (form, name) in zip(axes, NAMES.items()):
        for case, style in LINES.items():
            of_case = ((n, figures) for (keys, n), figures in measured.items() if keys == case)
            points = [(length, figures[form]) for length, figures in of_case if form in figures]
            if points:
                ax.plot(*zip(*points), **style, label=case)
        ax.set(xscale="log", yscale="log", xlabel="length of queries and keys")
        ax.set_title(name, loc="left")
        ax.set_xticks(lengths[::2], [f"{length:,}" for length in lengths[::2]])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        ax.grid(alpha=0.25)
    axes[0].set_ylabel("milliseconds, forward and backward")
    axes[0].legend(loc="upper left", handlelength=3)
    figure.suptitle(message(measured), x=0.01, ha="left", weight="bold")
    small = f"one text, {HEADS} heads of {cases.WIDTH}, float32; {machine}"
    figure.supxlabel(textwrap.fill(small, 110), fontsize=9, color=theme().quiet)
    return figure


def message(measured: Milliseconds) -> str:
    """Returns the title, from the longest length that has all forms."""
    length = max(length for (_, length), figures in measured.items() if "SDPA" in figures)
    window, everything = measured[WINDOW, length], measured["all keys", length]
    ours, peer = (100 * window[form] / everything[form] for form in NAMES)
    of_ours = f"takes flax_attn {ours:.0f} % of the time of all keys"
    among = f"A window of {cases.WINDOW} among {length:,} keys"
    return f"{among} {of_ours}\nand PyTorch's SDPA {peer:.0f} %, forward and backward"
