"""The pictures of runs: those of the first page, and `spikes`, which trains its own."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Line

from docs import panels
from docs.panels import DOCS, head, new, place
from docs.ship import unpacked
from flax_attn.analysis import shapes
from flax_attn.analysis.drawing import BLUE, ORANGE, colour_bar, frame, heat_up_to, theme
from flax_attn.runs.reading import Record, read

SHOWN = (0, 2)  # test examples of the picture of predictions
EXAMPLE = 0  # of the picture of attention


def draw_shapes() -> list[Path]:
    """The question alone, and the pictures of README: two answers, and one point's attention."""
    with unpacked("shapes") as ours, unpacked("shapes_cnn") as theirs:
        attention, cnn = read(ours), read(theirs)
    return [
        *panels.save("shapes_question", lambda: shapes.data_sample(attention)),
        *panels.save("shapes_predictions", lambda: answers(attention, cnn)),
        *panels.save("shapes_attention", lambda: one_query(attention)),
    ]


def answers(attention: Record, cnn: Record) -> Figure:
    """Signals with their targets on the left, the targets with two predictions on the right."""
    figure = new(5.3)
    start = head(figure, "The target needs the height of the other shape; attention finds it")
    titles = "the question: signal and target", "the answers of two trained models"
    for row, example in enumerate(SHOWN):
        marks = shapes.marks_of(attention, example)
        signal, target, levelled, guessed = (
            record.examples[name][example, :, 0]
            for record, name in (
                (attention, "inputs"),
                (attention, "targets"),
                (attention, "predictions"),
                (cnn, "predictions"),
            )
        )
        for column, title in enumerate(titles):
            where = 0.55 + 4.0 * column, start + 0.25 + 2.2 * row
            ax = place(figure, *where, 3.65, 1.85)
            ax.plot(target, color=theme().ink, lw=4, alpha=0.3, label="target")
            if column == 0:
                ax.plot(signal, color=BLUE, lw=1.5, label="signal")
            else:
                ax.plot(guessed, "--", color=ORANGE, lw=1.5, label="five convolutions")
                ax.plot(levelled, color=BLUE, lw=1.5, label="with one attention layer")
            shapes.mark_shapes(ax, marks)
            ax.set(xlim=(-1, 100), ylim=(-2, 31), xticks=range(0, 100, 20), yticks=(0, 10, 20))
            ax.tick_params(labelbottom=row == 1, labelleft=column == 0)
            if row == 0:
                ax.set_title(title, loc="left", fontsize=10)
                ax.legend(loc="upper left", fontsize=9, borderaxespad=0.2, handlelength=1.6)
            else:
                ax.set_xlabel("position", fontsize=9)
            if column == 0:
                ax.set_ylabel("height", fontsize=9)
    return figure


def one_query(run: Record) -> Figure:
    """Draws one row of the attention matrix as arcs over the signal, and the whole matrix below."""
    signal, marks = run.examples["inputs"][EXAMPLE, :, 0], shapes.marks_of(run, EXAMPLE)
    weights = next(iter(run.attention.values()))[EXAMPLE]
    figure = new(7.5)
    center, _, _, kind, _, _ = shapes.spans(marks)[2]  # the first box
    query = round(center)
    shares = shares_of(weights[query], marks)
    on_kind = sum(share for (_, _, _, k, _, _), share in shares if k == kind)
    both = {"box": "boxes", "triangle": "triangles"}[kind]
    title = f"A point of a {kind} puts {on_kind:.0%} of its weight on the two {both}"
    start = head(figure, title)
    left, width = 1.55, 5.6
    above = place(figure, left, start + 0.05, width, 1.75)
    heat = place(figure, left, start + 2.15, width, 4.2)
    beside = place(figure, 0.6, start + 2.15, left - 0.75, 4.2)
    draw_arcs(above, signal, query, weights[query], shares)
    shapes.mark_shapes(above, marks)
    above.set_ylim(-7, 29)
    draw_heat(heat, query, weights)
    draw_beside(beside, signal, query, marks)
    shapes.outline_pairs(heat, marks)
    bar = colour_bar(figure, 1.0, cax=place(figure, left + width + 0.3, start + 2.15, 0.14, 4.2))
    bar.set_label("attention weight (square-root scale)", fontsize=9)
    return figure


def shares_of(row: np.ndarray, marks: shapes.Marks) -> list[tuple[tuple, float]]:
    """The weight that a query `(k,)` puts on each shape and the point on each side of it."""
    positions = np.arange(len(row))
    shares = []
    for span in shapes.spans(marks):
        inside = (positions >= span[1] - 1) & (positions <= span[2] + 1)
        shares.append((span, float(row[inside].sum())))
    return shares


def draw_arcs(
    ax: Axes,
    signal: np.ndarray,
    query: int,
    row: np.ndarray,
    shares: list[tuple[tuple, float]],
) -> None:
    """Draws the signal, and an arc from the query to each key, as thick as its weight."""
    ax.plot(signal, color=theme().ink, lw=1.3)
    for key in np.flatnonzero(row > 0.005):
        high = max(signal[query], signal[key]) + 4 + 0.3 * abs(key - query)
        ends = (query, signal[query]), ((query + key) / 2, high), (key, signal[key])
        path = Line(ends, (Line.MOVETO, Line.CURVE3, Line.CURVE3))
        style = {"facecolor": "none", "edgecolor": BLUE, "alpha": 0.7, "capstyle": "round"}
        ax.add_patch(PathPatch(path, lw=0.6 + 9 * float(row[key]), **style, zorder=4))
    ax.plot(query, signal[query], "o", color=ORANGE, ms=7, zorder=6)
    arrow = {"arrowstyle": "-|>", "color": ORANGE, "lw": 1.4}
    asked = {"ha": "right", "va": "center", "fontsize": 9.5, "arrowprops": arrow}
    ax.annotate("this point asks\n(the query)", (query - 1, signal[query] + 0.6), (22, 21), **asked)
    for (center, _, _, _, _, _), share in shares:
        ax.text(center, -2.2, f"{share:.0%}", ha="center", va="top", fontsize=9.5)
    ax.text(0.5, -2.2, "weight on each shape:", ha="left", va="top", fontsize=9)
    ax.set(xlim=(-0.5, len(signal) - 0.5), ylim=(-7, 29), yticks=(0, 10, 20))
    ax.set_ylabel("height", fontsize=9)
    ax.tick_params(labelbottom=False)


def draw_heat(ax: Axes, query: int, weights: np.ndarray) -> None:
    """Draws the matrix, with the row of the query between two lines."""
    low, high = -0.5, len(weights) - 0.5
    colours, _ = heat_up_to(1.0)
    ax.imshow(weights, **colours, aspect="auto", extent=(low, high, high, low))
    for edge in (query - 0.7, query + 0.7):
        ax.axhline(edge, color=ORANGE, lw=1)
    arrow = {"arrowstyle": "-|>", "color": ORANGE, "lw": 1.4}
    said = {"ha": "right", "va": "center", "fontsize": 9.5, "arrowprops": arrow}
    ax.annotate("the row of this point", (high - 3, query), (high - 8, query - 11), **said)
    ax.set_xlabel("key: the point that is attended to", fontsize=9)
    ax.tick_params(labelleft=False)
    frame(ax)


def draw_beside(ax: Axes, signal: np.ndarray, query: int, marks: shapes.Marks) -> None:
    """Draws the signal along the queries, downwards."""
    ax.plot(signal, np.arange(len(signal)), color=theme().ink, lw=1.2)
    ax.plot(signal[query], query, "o", color=ORANGE, ms=7, zorder=6)
    for _, first, last, _, _, colour in shapes.spans(marks):
        ax.axhspan(first, last, color=colour, alpha=0.15, lw=0)
    ax.set(xlim=(29, -2), ylim=(len(signal) - 0.5, -0.5), xticks=(20, 0))
    ax.set_xlabel("height", fontsize=9)
    ax.set_ylabel("query: the point that asks", fontsize=9)


def draw_spikes() -> list[Path]:
    """The picture of the page that says how to build one's own: its blocks run, in full."""
    text = (DOCS / "build_your_own.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    script = ["import numpy as np"]
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks:
            name = re.match(r"# (\w+\.py)\n", block)
            if name:
                (Path(folder) / name[1]).write_text(block, encoding="utf-8")
            elif "prediction = run.predict(signals)" in block:
                script.append(block.replace("spikes.py:quick", "spikes.py"))
        script.append('np.savez("spikes.npz", prediction.attention["near"][0])')
        command = [sys.executable, "-c", "\n".join(script)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        weights = np.load(Path(folder) / "spikes.npz")["arr_0"]
    shown = [panels.Matrix(weights)]
    title = "The smaller spike, at 10, attends most to the point beside the higher one, at 31"
    return panels.save("spikes", lambda: panels.matrices(title, shown, float(weights.max())))


PICTURES: dict[str, Callable[[], list[Path]]] = {
    "shapes": draw_shapes,
    "spikes": draw_spikes,
}
