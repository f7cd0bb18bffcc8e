"""The pictures of the shapes task. Triangles and boxes differ in their colours and their markers."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import BLACK, BLUE, CYCLE, GREEN, HEAT, ORANGE, PINK, TICKS, styled
from flax_attn.runs.reading import Record

KINDS = (("triangle", "^", GREEN), ("box", "s", PINK))
Marks = dict[str, np.ndarray]


def draw(run: Record) -> dict[str, Figure]:
    """All pictures of a run of the shapes task, by name."""
    title = f"{run.name}: test example 0"
    signal, marks = run.examples["inputs"][0, :, 0], marks_of(run, 0)
    maps = {name: attention_map(signal, weights[0], marks, title) for name, weights in run.attention.items()}
    return {"data_sample": data_sample(run), "predictions": predictions([run])} | maps


def marks_of(run: Record, index: int) -> Marks:
    """Centres, heights and widths `(4,)` of the shapes of one example."""
    return {key: run.examples[key][index] for key in ("centers", "heights", "widths") if key in run.examples}


def spans(marks: Marks) -> list[tuple[float, float, float, str, str, str]]:
    """`(center, first, last, kind, marker, colour)` of each shape, triangles before boxes."""
    if not marks:
        return []
    kinds = [KINDS[0], KINDS[0], KINDS[1], KINDS[1]]
    ends = [(float(c), float(c - w / 2), float(c + w / 2)) for c, w in zip(marks["centers"], marks["widths"])]
    return [(*end, *kind) for end, kind in zip(ends, kinds)]


def mark_shapes(axes: Axes, marks: Marks) -> None:
    """Shades the shapes of a signal and puts the marker of each kind on top, above the highest of them."""
    axes.set_ylim(top=29)
    for center, first, last, _, marker, colour in spans(marks):
        axes.axvspan(first, last, color=colour, alpha=0.15, lw=0)
        axes.plot(center, 0.96, marker=marker, color=colour, ms=7, transform=axes.get_xaxis_transform(), zorder=5)


def kind_legend(figure: Figure, handles: list, **kwargs) -> None:
    """A legend of the figure: the given lines, and the markers of the kinds."""
    markers = [plt.Line2D([], [], marker=m, color=c, ls="", ms=7, label=kind) for kind, m, c in KINDS]
    figure.legend(handles=[*handles, *markers], loc="lower center", ncols=len(handles) + 2, **kwargs)


@styled
def data_sample(run: Record) -> Figure:
    """Four inputs with their targets."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
    handles = []
    for i, ax in used(axes, run):
        (line,) = ax.plot(run.examples["inputs"][i, :, 0], color=BLUE, lw=1.6, label="input")
        (target,) = ax.plot(run.examples["targets"][i, :, 0], color=ORANGE, lw=1.6, ls="--", label="target")
        mark_shapes(ax, marks_of(run, i))
        ax.set_title(f"test example {i}")
        handles = [line, target]
    label_grid(axes, "position", "height")
    figure.suptitle(f"{run.config['data']['task'].replace('_', ' ')}: pairs of shapes are to be set to their mean height")
    kind_legend(figure, handles, bbox_to_anchor=(0.5, -0.06))
    return figure


@styled
def predictions(runs: list[Record]) -> Figure:
    """Predictions of one or several models over the target, on four test examples."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained")
    handles = []
    for i, ax in used(axes, runs[0]):
        (handle,) = ax.plot(runs[0].examples["targets"][i, :, 0], color=BLACK, lw=3.5, alpha=0.35, label="target")
        handles = [handle]
        for run, colour in zip(runs, CYCLE * len(runs)):
            handles += ax.plot(run.examples["predictions"][i, :, 0], color=colour, lw=1.5, label=f"prediction, {run.name}")
        mark_shapes(ax, marks_of(runs[0], i))
        ax.set_title(f"test example {i}")
    label_grid(axes, "position", "height")
    kind_legend(figure, handles, bbox_to_anchor=(0.5, -0.06))
    return figure


@styled
def attention_map(signal: np.ndarray, weights: np.ndarray, marks: Marks, title: str) -> Figure:
    """The attention matrix of one signal: keys across, queries up, the signal and its shapes along both axes."""
    figure = plt.figure(figsize=(7.6, 7.4), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(1, 5, 0.18), height_ratios=(5, 1))
    heat = figure.add_subplot(grid[0, 1])
    across, up = figure.add_subplot(grid[1, 1], sharex=heat), figure.add_subplot(grid[0, 0], sharey=heat)
    low, high = -0.5, len(signal) - 0.5
    image = heat.imshow(weights, **HEAT, aspect="auto", extent=(low, high, low, high))
    positions = np.arange(len(signal))
    across.plot(positions, signal, color=BLACK, lw=1.2)
    up.plot(signal, positions, color=BLACK, lw=1.2)
    up.invert_xaxis()
    for center, first, last, _, marker, colour in spans(marks):
        across.axvspan(first, last, color=colour, alpha=0.3, lw=0)
        up.axhspan(first, last, color=colour, alpha=0.3, lw=0)
        heat.plot(center, 1.02, marker=marker, color=colour, ms=8, clip_on=False, transform=heat.get_xaxis_transform())
        heat.plot(1.02, center, marker=marker, color=colour, ms=8, clip_on=False, transform=heat.get_yaxis_transform())
    for _, first, last, kind, _, colour in spans(marks):  # outline where shapes of a kind attend to one another
        for _, other_first, other_last, other_kind, _, _ in spans(marks):
            if kind == other_kind:
                size = (other_last - other_first, last - first)
                heat.add_patch(plt.Rectangle((other_first, first), *size, fill=False, edgecolor=colour, lw=1.2, ls=":"))
    heat.tick_params(labelbottom=False, labelleft=False)
    for spine in heat.spines.values():
        spine.set_visible(False)
    across.set_xlabel("key: the position that is attended to")
    up.set_ylabel("query: the position that attends")
    across.set_ylabel("height")
    up.set_xlabel("height")
    figure.colorbar(image, cax=figure.add_subplot(grid[0, 2]), label="attention weight", ticks=TICKS)
    heat.set_title(title, pad=18)
    if marks:
        kind_legend(figure, [], bbox_to_anchor=(0.5, -0.05))
    return figure


@styled
def predicted(inputs: np.ndarray, outputs: np.ndarray, attention: np.ndarray | None, title: str) -> Figure:
    """Signals with their predictions, one a row, and beside each its attention matrix where there is one."""
    shown = min(len(inputs), 4)
    columns = 1 if attention is None else 2
    size = (4.5 + 3.4 * columns, 3.2 * shown + 0.6)
    figure, axes = plt.subplots(shown, columns, figsize=size, squeeze=False, layout="constrained", width_ratios=(1.6, 1)[:columns])
    for i in range(shown):
        axes[i, 0].plot(inputs[i, :, 0], color=BLUE, lw=1.6, label="input")
        axes[i, 0].plot(outputs[i, :, 0], color=ORANGE, lw=1.6, label="prediction")
        axes[i, 0].set(xlabel="position", ylabel="height", title=f"signal {i}")
        if attention is not None:
            image = axes[i, 1].imshow(attention[i], **HEAT)
            axes[i, 1].set(xlabel="key", ylabel="query", title="attention")
            figure.colorbar(image, ax=axes[i, 1], label="weight")
    axes[0, 0].legend(loc="best")
    figure.suptitle(title)
    return figure


def used(axes: np.ndarray, run: Record) -> list[tuple[int, Axes]]:
    """The axes of a grid with the example that each shows; what there is no example for is switched off."""
    shown = len(run.examples["inputs"])
    for ax in axes.flat[shown:]:
        ax.axis("off")
    return list(enumerate(axes.flat[:shown]))


def label_grid(axes: np.ndarray, x: str, y: str) -> None:
    """Labels the outer axes of a grid."""
    for ax in axes[-1]:
        ax.set_xlabel(x, labelpad=8)
    for ax in axes[:, 0]:
        ax.set_ylabel(y)
