"""The confusion matrix of a classifier."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import literal
from flax_attn.runs.reading import Record


@literal
def confusion_matrix(run: Record) -> Figure:
    """How often each true class, up, was taken for each class, across: shares of the true class over all seeds, and counts."""
    counts, names = run.examples["confusion"], run.config["derived"]["classes"]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = max(4.5, 0.62 * len(names) + 2)
    figure, ax = plt.subplots(figsize=(size + 1, size), layout="constrained")
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            ax.text(j, i, f"{count:,}", ha="center", va="center", fontsize=8, color="white" if shares[i, j] > 0.5 else "black")
    turned = {"rotation": 45, "ha": "right"} if len("".join(names)) > 30 else {}
    ax.set_xticks(range(len(names)), names, **turned)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="predicted class", ylabel="true class")
    seeds = len(run.summary["seeds"])
    ax.set_title(f"{run.name}: test{f', {seeds} seeds together' if seeds > 1 else ''}")
    figure.colorbar(image, ax=ax, label="share of the true class")
    return figure
