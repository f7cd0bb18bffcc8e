"""Pictures of series: which of them the model weighs, and what it predicts."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flax_attn.analysis.drawing import BLUE, ORANGE, Picture, colour_bar, scale_of, styled, theme
from flax_attn.analysis.losses import error_on_test
from flax_attn.analysis.matrices import draw_matrix
from flax_attn.runs.reading import Record


def draw(run: Record) -> dict[str, Figure]:
    """Draws all pictures of a run on series, by name."""
    drawn = {name: gates(run, weights) for name, weights in run.attention.items()}
    return {"predictions": predictions(run)} | drawn


@styled
def predictions(run: Record) -> Figure:
    """Draws predictions over the output for four test examples."""
    figure = Picture(figsize=(8.3, 5.2), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for i, ax in enumerate(axes.flat[: len(run.examples["inputs"])]):
        output = run.examples["targets"][i, :, 0]
        ax.plot(output, color=theme().ink, lw=3.5, alpha=0.35, label="output")
        ax.plot(run.examples["predictions"][i, :, 0], color=BLUE, lw=1.6, label="prediction")
        ax.set_title(f"test example {i}")
    for ax in axes[-1]:
        ax.set_xlabel("step")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].legend()
    figure.suptitle(error_on_test([run]))
    return figure


@styled
def gates(run: Record, weights: np.ndarray) -> Figure:
    """Draws the weight of every series at every step, for one example and the mean over all."""
    figure = Picture(figsize=(8.3, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    relevant = run.config["data"]["relevant"]
    scale = scale_of(weights, 1.0)
    titles = "test example 0", f"mean over {len(weights)} test examples"
    for ax, shown, title in zip(axes, (weights[0], weights.mean(axis=0)), titles):
        draw_matrix(ax, shown.T, **scale)
        for edge in (relevant - 0.5, relevant + 0.5):
            ax.axhline(edge, color=ORANGE, lw=1.5, ls=":")
        ax.set(xlabel="step", title=title)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("input series")
    share = weights[:, :, relevant].mean() / weights.sum(axis=-1).mean()
    figure.suptitle(
        f"{run.name}: {share:.0%} of the weight is on series {relevant},\n"
        "between the dotted lines, which decides the output"
    )
    colour_bar(figure, **scale, ax=axes)
    return figure
