"""Loss curves, the same for every task."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import BLUE, CYCLE, ORANGE, SKY, styled
from flax_attn.runs.reading import Record, curve

LABELS = {"mse": "mean squared error (normalised units)", "loss": "cross-entropy", "accuracy": "accuracy"}


@styled
def loss_curves(runs: list[Record]) -> Figure:
    """Training and validation error against the step, on a log scale: the mean over seeds in a band from least to most.

    Where there is an accuracy it stands beside it.
    """
    metrics = ("mse",) if any(run.measured == "mse" for run in runs) else ("loss", "accuracy")
    figure, axes = plt.subplots(1, len(metrics), figsize=(1 + 7 * len(metrics), 5), squeeze=False, layout="constrained")
    for metric, ax in zip(metrics, axes[0]):
        draw_curves(ax, runs, metric)
    axes[0, 0].set_yscale("log")
    seeds = {len({row["seed"] for row in run.rows}) for run in runs}
    band = f", mean and range over {max(seeds)} seeds" if max(seeds) > 1 else ""
    figure.suptitle((runs[0].name if len(runs) == 1 else "validation and training error") + band)
    return figure


def draw_curves(ax: Axes, runs: list[Record], metric: str) -> None:
    """One metric of every run and split; of several runs training and validation alone."""
    for run, colour in zip(runs, CYCLE * len(runs)):
        for split, line, own in (("train", ":", SKY), ("valid", "-", BLUE), ("test", "--", ORANGE)):
            if split == "test" and len(runs) > 1:
                continue
            steps, values = curve(run.rows, f"{split}/{metric}")
            if not values.size:
                continue
            shade = colour if len(runs) > 1 else own
            label = f"{run.name}, {split}" if len(runs) > 1 else split
            ax.plot(steps, values.mean(axis=0), line, color=shade, lw=1.7, label=label)
            if len(values) > 1:
                ax.fill_between(steps, values.min(axis=0), values.max(axis=0), color=shade, alpha=0.2, lw=0)
    ax.set_xlabel("training step")
    ax.set_ylabel(LABELS[metric])
    ax.grid(axis="y", which="both", alpha=0.2)
    ax.legend()
