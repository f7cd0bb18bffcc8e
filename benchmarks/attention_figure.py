"""Time of attention over length, as a picture.

The colour says whose code it is, and the line which keys are visible.
"""

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks import attention_cases as cases
from benchmarks import timing
from benchmarks.attention_forms import check, flex, ours, sdpa
from benchmarks.attention_rows import PASSES, Row, milliseconds
from flax_attn.analysis.drawing import BLACK, BLUE, ORANGE, YELLOW, Picture, styled

HEADS = 4
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FURTHER = (32768, 65536)  # where only ours in a window is measured
CHECKED = 4096  # the work is checked up to this length
FORMS = {"ours": ours, "SDPA": sdpa, "flex": flex}
NAMES = {"ours": "flax_attn", "SDPA": "PyTorch, SDPA", "flex": "PyTorch, flex_attention"}
HOLLOW = {"markersize": 8, "markerfacecolor": "none"}  # lines that nearly meet can be told apart
STYLES: dict[str, dict[str, Any]] = {
    "ours": {"color": BLUE, "marker": "o", "markersize": 4, "zorder": 3},
    "SDPA": {"color": ORANGE, "marker": "s"} | HOLLOW,
    "flex": {"color": YELLOW, "marker": "D"} | HOLLOW,
}
WINDOW = f"window of {cases.WINDOW}"
LINES = {"all keys": "-", "causal": "--", WINDOW: ":"}


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
def draw(rows: list[Row]) -> Figure:
    """Both passes beside each other, with one legend for lines and one for colours."""
    figure = Picture(figsize=(10, 5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    lengths = sorted({row.length for row in rows if row.length})
    for ax, passes in zip(axes, PASSES):
        for form in FORMS:
            for case, line in LINES.items():
                chosen = [row for row in rows if (row.case, row.passes) == (case, passes)]
                points = [(r.length, r.figures[form]) for r in chosen if form in r.figures]
                if points:
                    ax.plot(*zip(*points), line, **STYLES[form])
        ax.set(xscale="log", yscale="log", title=passes, xlabel="length of queries and keys")
        ax.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds")
    forms = [Line2D([], [], label=NAMES[form], **STYLES[form]) for form in FORMS]
    pairs = LINES.items()
    lines = [Line2D([], [], color=BLACK, linestyle=line, label=case) for case, line in pairs]
    axes[0].legend(handles=forms, loc="upper left")
    axes[1].legend(handles=lines, loc="upper left", handlelength=3)
    figure.suptitle(message(rows), fontsize=11)
    small = f"batch 1, {HEADS} heads of {cases.WIDTH}, float32; {timing.machine()}"
    figure.supxlabel(small, fontsize=8, color="#666666")
    return figure


def message(rows: list[Row]) -> str:
    """What the picture says, from the longest length that has all of it."""
    both = [row for row in rows if PASSES[row.passes]]
    figures = {(row.case, row.length): row.figures for row in both}
    length = max(row.length for row in rows if "SDPA" in row.figures)  # pyright: ignore
    window, everything = figures[WINDOW, length], figures["all keys", length]
    ours, peer = (100 * window[form] / everything[form] for form in ("ours", "SDPA"))
    of_ours = f"takes flax_attn {ours:.0f} % of the time of all keys"
    among = f"A window of {cases.WINDOW} among {length:,} keys"
    return f"{among} {of_ours} and SDPA {peer:.0f} %, forward and backward"
