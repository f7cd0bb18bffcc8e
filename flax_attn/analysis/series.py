"""Pictures of series: which of them the model weighs, and what it predicts."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import BLACK, BLUE, HEAT, ORANGE, TICKS, styled
from flax_attn.runs.reading import Record


def draw(run: Record) -> dict[str, Figure]:
    """All pictures of a run on series, by name."""
    return {"predictions": predictions(run)} | {name: gates(run, weights) for name, weights in run.attention.items()}


@styled
def predictions(run: Record) -> Figure:
    """Predictions over the output for four test examples."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 5.6), sharex=True, sharey=True, layout="constrained")
    for i, ax in enumerate(axes.flat[: len(run.examples["inputs"])]):
        ax.plot(run.examples["targets"][i, :, 0], color=BLACK, lw=3.5, alpha=0.35, label="output")
        ax.plot(run.examples["predictions"][i, :, 0], color=BLUE, lw=1.6, label="prediction")
        ax.set_title(f"test example {i}")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    axes[0, 0].legend()
    figure.suptitle(run.name)
    return figure


@styled
def gates(run: Record, weights) -> Figure:
    """The weight of every series at every step, for one example and as the mean over all that are kept."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
    relevant = run.config["data"]["relevant"]
    for ax, shown, title in zip(axes, (weights[0], weights.mean(axis=0)), ("test example 0", f"mean over {len(weights)} test examples")):
        image = ax.imshow(shown.T, **HEAT, aspect="auto")
        ax.axhline(relevant - 0.5, color=ORANGE, lw=1, ls=":")
        ax.axhline(relevant + 0.5, color=ORANGE, lw=1, ls=":")
        ax.set(xlabel="step", title=title)
    axes[0].set_ylabel(f"input series ({relevant} decides the output)")
    figure.colorbar(image, ax=axes, label="attention weight", ticks=TICKS)
    return figure
