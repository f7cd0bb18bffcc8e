"""Pictures of translations: which parts of a source each part of the translation was read from."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import HEAT, TICKS, literal
from flax_attn.runs.reading import Record

SHOWN = 4


def draw(run: Record) -> dict[str, Figure]:
    """All pictures of a run on translation, by name."""
    shown = np.flatnonzero(run.examples["prediction_lengths"])[:SHOWN].tolist()  # there is nothing to see of an empty translation
    return {name: alignments(run, weights, shown) for name, weights in run.attention.items()} if shown else {}


@literal
def alignments(run: Record, weights: np.ndarray, shown: list[int]) -> Figure:
    """The alignments of some test examples."""
    examples = run.examples
    figure, axes = plt.subplots(2, 2, figsize=(13, 11), layout="constrained")
    for ax, i in zip(axes.flat, shown):
        num_source, num_target = examples["source_lengths"][i], examples["prediction_lengths"][i]
        sources, targets = examples["source_words"][i, :num_source].tolist(), examples["predicted_words"][i, :num_target].tolist()
        image = draw_alignment(ax, sources, targets, weights[i, :num_target, :num_source])
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    figure.suptitle(f"{run.name}: what each part of a translation was read from")
    figure.colorbar(image, ax=axes, label="attention weight", ticks=TICKS, shrink=0.6)
    return figure


@literal
def alignment_map(sources: list[str], targets: list[str], weights: np.ndarray, title: str) -> Figure:
    """The alignment of one translation."""
    size = 0.3 * len(sources) + 3, 0.3 * max(len(targets), 1) + 2
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    image = draw_alignment(ax, sources, targets, weights)
    ax.set_title(title)
    figure.colorbar(image, ax=ax, label="attention weight", ticks=TICKS)
    return figure


def draw_alignment(ax: Axes, sources: list[str], targets: list[str], weights: np.ndarray):
    """Weights `(t, s)`, the source across and what it became downwards."""
    image = ax.imshow(weights, **{**HEAT, "origin": "upper"}, aspect="auto")
    upright = max(map(len, sources), default=0) < 2
    ax.set_xticks(range(len(sources)), sources, rotation=0 if upright else 60, ha="center" if upright else "right", fontsize=9)
    ax.set_yticks(range(len(targets)), targets, fontsize=9)
    ax.set(xlabel="source", ylabel="translation")
    return image
