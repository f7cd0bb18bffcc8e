"""Pictures of translations: which parts of a source each part of the translation was read from."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import Picture, colour_bar, scale_of, styled
from flax_attn.analysis.matrices import draw_matrix, label_room, name_cells, panel_size
from flax_attn.analysis.plotting import attention
from flax_attn.runs.reading import Record

SHOWN = 4
LARGEST = 3.0  # inches of a panel


def draw(run: Record) -> dict[str, Figure]:
    """Draws all pictures of a run on translation, by name."""
    # There is nothing to see of an empty translation.
    shown = np.flatnonzero(run.examples["prediction_lengths"])[:SHOWN].tolist()
    pictures = run.attention.items() if shown else ()
    return {name: alignments(run, weights, shown) for name, weights in pictures}


@styled
def alignments(run: Record, weights: np.ndarray, shown: list[int]) -> Figure:
    """Draws the alignments of some test examples, each without its padding."""
    words = [words_of(run, i) for i in shown]
    scale = scale_of(weights, 1.0)
    most = max(len(targets) for _, targets in words), max(len(sources) for sources, _ in words)
    panel = panel_size(*most, LARGEST)
    across, down = min(2, len(shown)), -(-len(shown) // 2)
    left = max(label_room(targets) for _, targets in words)
    below = max(label_room(sources) for sources, _ in words)
    size = across * (panel[0] + left) + 1, down * (panel[1] + below) + 0.5
    figure = Picture(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for ax in axes.flat[len(shown) :]:
        ax.axis("off")
    for ax, i, (sources, targets) in zip(axes.flat, shown, words):
        draw_matrix(ax, weights[i, : len(targets), : len(sources)], **scale)
        keep_cells(ax, (len(targets), len(sources)), most)  # it forgets what ticks look like
        name_cells(ax.xaxis, sources, panel[0])
        name_cells(ax.yaxis, targets, panel[1])
        ax.set_xlabel("source", x=len(sources) / most[1] / 2)  # below the cells that there are
        ax.set_ylabel("translation", y=1 - len(targets) / most[0] / 2)
        ax.set_title(f"test example {i}", loc="left")
    figure.suptitle(
        f"{run.name}: each row is a token of a translation,\nand shows what it was read from"
    )
    colour_bar(figure, **scale, ax=axes, shrink=0.6)
    return figure


def keep_cells(ax: Axes, shape: tuple[int, int], most: tuple[int, int]) -> None:
    """Draws a matrix of this shape at the top left, with cells as large as those of the largest."""
    rows, columns = shape
    ax.set(xlim=(-0.5, most[1] - 0.5), ylim=(most[0] - 0.5, -0.5))
    ax.spines[["top", "bottom"]].set_bounds(-0.5, columns - 0.5)
    ax.spines[["left", "right"]].set_bounds(-0.5, rows - 0.5)
    ax.spines.right.set_position(("data", columns - 0.5))
    ax.spines.bottom.set_position(("data", rows - 0.5))


def words_of(run: Record, index: int) -> tuple[list[str], list[str]]:
    """Returns the tokens of a source and of its translation."""
    examples = run.examples
    sources = examples["source_words"][index, : examples["source_lengths"][index]]
    targets = examples["predicted_words"][index, : examples["prediction_lengths"][index]]
    return sources.tolist(), targets.tolist()


@styled
def alignment_map(
    sources: list[str], targets: list[str], weights: np.ndarray, title: str
) -> Figure:
    """Draws the alignment `(t, s)` of one translation, with the source across."""
    title = f"{title}: each row is a token of the translation,\nand shows what it was read from"
    figure = attention(weights, targets, sources, title=title, top=1.0)
    figure.axes[0].set(xlabel="source", ylabel="translation")
    return figure
