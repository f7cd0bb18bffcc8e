"""Pictures of numbers: predictions over targets."""

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import BLUE, Picture, styled, theme
from flax_attn.runs.reading import Record


@styled
def scatter(run: Record) -> Figure:
    """Draws predictions over the targets of the test split, with the line where both are equal."""
    targets, predicted = (run.examples[name] for name in ("targets", "predictions"))
    figure = Picture(figsize=(5.4, 5.2), layout="constrained")
    ax = figure.subplots()
    both = np.concatenate([targets, predicted])
    room = 0.04 * float(np.ptp(both)) or 1.0
    ends = [float(both.min()) - room, float(both.max()) + room]
    ax.plot(ends, ends, color=theme().quiet, lw=1.2, ls="--", label="prediction = target")
    ax.scatter(targets, predicted, s=14, color=BLUE, alpha=0.45, lw=0, label="test example")
    ax.set(xlim=ends, ylim=ends, aspect="equal", xlabel="target", ylabel="prediction")
    ax.grid(alpha=0.2)
    ax.legend(loc="upper left")
    error = run.mean("mae")
    figure.suptitle(f"{run.name}: off by {error:.2g} on average, {len(targets)} test examples")
    return figure
