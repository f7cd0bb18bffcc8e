"""The pictures of the shapes task. Triangles and boxes differ in colour and marker."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from flax_attn.analysis.drawing import (
    BLUE,
    CYCLE,
    DASHES,
    GREEN,
    ORANGE,
    PINK,
    Picture,
    colour_bar,
    frame,
    heat_up_to,
    scale_of,
    styled,
    theme,
)
from flax_attn.analysis.losses import error_on_test
from flax_attn.analysis.matrices import KEY, QUERY
from flax_attn.runs.reading import Record
from flax_attn.types import Options

KINDS = (("triangle", "^", GREEN), ("box", "s", PINK))
Marks = dict[str, np.ndarray]


def draw(run: Record) -> dict[str, Figure]:
    """Draws all pictures of a run of the shapes task, by name."""
    signal, marks = run.examples["inputs"][0, :, 0], marks_of(run, 0)
    drawn = {"data_sample": data_sample(run), "predictions": predictions([run])}
    for name, weights in run.attention.items():
        title = message(run, weights[0], marks)
        drawn[name] = attention_map(signal, weights[0], marks, title)
    return drawn


def message(run: Record, weights: np.ndarray, marks: Marks) -> str:
    """Returns the share of weight `(q, k)` that shapes put on shapes of their kind, as a title."""
    positions = np.arange(len(weights))
    inside = {kind: np.zeros(len(weights), bool) for kind, _, _ in KINDS}
    for _, first, last, kind, _, _ in spans(marks):
        inside[kind] |= (positions >= first) & (positions <= last)
    of_shapes = [weights[chosen][:, chosen].sum(axis=1) for chosen in inside.values()]
    shares = np.concatenate(of_shapes)
    if not shares.size or run.config["data"].get("task") != "by_shape":
        return f"{run.name}: which position reads which, in test example 0"
    title = f"{run.name}, test example 0: shapes put {shares.mean():.0%} of their weight\n"
    return f"{title}on shapes of their kind, in the dotted frames"


def marks_of(run: Record, index: int) -> Marks:
    """Returns centres, heights and widths `(4,)` of the shapes of one example."""
    keys = [key for key in ("centers", "heights", "widths") if key in run.examples]
    return {key: run.examples[key][index] for key in keys}


def spans(marks: Marks) -> list[tuple[float, float, float, str, str, str]]:
    """Returns `(center, first, last, kind, marker, colour)` of each shape, triangles first."""
    if not marks:
        return []
    kinds = [KINDS[0], KINDS[0], KINDS[1], KINDS[1]]
    pairs = zip(marks["centers"].tolist(), marks["widths"].tolist())
    ends = [(center, center - width / 2, center + width / 2) for center, width in pairs]
    return [(*end, *kind) for end, kind in zip(ends, kinds)]


def mark_shapes(axes: Axes, marks: Marks) -> None:
    """Shades the shapes of a signal, with the marker of its kind above each."""
    if marks:
        axes.set_ylim(top=29)
    for center, first, last, _, marker, colour in spans(marks):
        axes.axvspan(first, last, color=colour, alpha=0.15, lw=0)
        above = axes.get_xaxis_transform()
        axes.plot(center, 0.96, marker=marker, color=colour, ms=7, transform=above, zorder=5)


def kind_legend(figure: Figure, lines: list[Line2D], has_marks: bool = True) -> None:
    """Draws a legend under the figure, of lines and of the markers of the kinds of shapes."""
    style: Options = {"ls": "", "ms": 7}
    kinds = KINDS if has_marks else ()
    markers = [Line2D([], [], marker=m, color=c, label=kind, **style) for kind, m, c in kinds]
    num_columns = min(len(lines) + len(markers), 6)
    figure.legend(handles=[*lines, *markers], loc="outside lower center", ncols=num_columns)


@styled
def data_sample(run: Record) -> Figure:
    """Draws four inputs with their targets."""

    def draw_lines(ax: Axes, i: int) -> list[Line2D]:
        inputs, targets = (run.examples[name][i, :, 0] for name in ("inputs", "targets"))
        lines = ax.plot(inputs, color=BLUE, lw=1.6, label="input")
        return lines + ax.plot(targets, color=ORANGE, lw=1.6, ls="--", label="target")

    task = run.config["data"].get("task", "").replace("_", " ")
    title = f"{task}: in the target both shapes of a pair have their mean height"
    title = title if task else f"{run.name}: what the model is to make of its inputs"
    return four_examples(run, draw_lines, title)


@styled
def predictions(runs: list[Record]) -> Figure:
    """Draws the predictions of one or several runs over the target, on four test examples."""

    def draw_lines(ax: Axes, i: int) -> list[Line2D]:
        target = runs[0].examples["targets"][i, :, 0]
        lines = ax.plot(target, color=theme().ink, lw=3.5, alpha=0.35, label="target")
        for run, colour, dash in zip(runs, CYCLE * len(runs), DASHES * len(runs)):
            outputs = run.examples["predictions"][i, :, 0]
            lines += ax.plot(outputs, color=colour, ls=dash, lw=1.5, label=run.name)
        return lines

    return four_examples(runs[0], draw_lines, error_on_test(runs))


def four_examples(
    run: Record, draw_lines: Callable[[Axes, int], list[Line2D]], title: str
) -> Figure:
    """Draws a grid of four test examples with their shapes, and a legend of the lines."""
    figure = Picture(figsize=(8.3, 5.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    shown = len(run.examples["inputs"])
    for ax in axes.flat[shown:]:
        ax.axis("off")
    lines: list[Line2D] = []
    for i, ax in enumerate(axes.flat[:shown]):
        lines = draw_lines(ax, i)
        mark_shapes(ax, marks_of(run, i))
        ax.set_title(f"test example {i}")
    for ax in axes[-1]:
        ax.set_xlabel("position", labelpad=8)
    for ax in axes[:, 0]:
        ax.set_ylabel("height")
    figure.suptitle(title)
    kind_legend(figure, lines, bool(marks_of(run, 0)))
    return figure


@styled
def attention_map(signal: np.ndarray, weights: np.ndarray, marks: Marks, title: str) -> Figure:
    """Draws an attention matrix `(q, k)`, with the signal `(t,)` and its shapes along both axes."""
    figure = Picture(figsize=(7.6, 7.4), layout="constrained")
    ratios = {"width_ratios": (1, 5, 0.18), "height_ratios": (5, 1)}
    grid = figure.add_gridspec(2, 3, **ratios, wspace=0.06)
    heat = figure.add_subplot(grid[0, 1])
    across = figure.add_subplot(grid[1, 1], sharex=heat)
    beside = figure.add_subplot(grid[0, 0], sharey=heat)
    low, high = -0.5, len(signal) - 0.5  # cells are centred on whole numbers
    scale = scale_of(weights, 1.0)
    colours, _ = heat_up_to(**scale)
    heat.imshow(weights, **colours, aspect="auto", extent=(low, high, high, low))
    positions = np.arange(len(signal))
    across.plot(positions, signal, color=theme().ink, lw=1.2)
    beside.plot(signal, positions, color=theme().ink, lw=1.2)
    beside.invert_xaxis()  # heights rise away from the map
    mark_map(heat, across, beside, marks)
    heat.tick_params(labelbottom=False, labelleft=False)
    frame(heat)
    across.set(xlabel=KEY, ylabel="height")
    beside.set(xlabel="height", ylabel=QUERY)
    colour_bar(figure, **scale, cax=figure.add_subplot(grid[0, 2]))
    heat.set_title(title, pad=18)
    if marks:
        kind_legend(figure, [])
    return figure


def mark_map(heat: Axes, across: Axes, beside: Axes, marks: Marks) -> None:
    """Marks the shapes along both axes, and outlines where shapes of a kind read one another."""
    for center, first, last, _, marker, colour in spans(marks):
        across.axvspan(first, last, color=colour, alpha=0.3, lw=0)
        beside.axhspan(first, last, color=colour, alpha=0.3, lw=0)
        style: Options = {"marker": marker, "color": colour, "ms": 8, "clip_on": False}
        heat.plot(center, 1.02, **style, transform=heat.get_xaxis_transform())
        heat.plot(1.02, center, **style, transform=heat.get_yaxis_transform())
    outline_pairs(heat, marks)


def outline_pairs(heat: Axes, marks: Marks) -> None:
    """Outlines where the shapes of a kind attend to each other."""
    outline: Options = {"fill": False, "lw": 1.6, "ls": ":"}
    for _, top, bottom, kind, _, colour in spans(marks):
        for _, left, right, other, _, _ in spans(marks):
            if kind == other:
                size = right - left, bottom - top
                heat.add_patch(Rectangle((left, top), *size, edgecolor=colour, **outline))
