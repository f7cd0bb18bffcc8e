"""The confusion matrix of a classifier."""

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import Picture, frame, literal, on_colour, theme
from flax_attn.errors import escaped
from flax_attn.runs.reading import Record


@literal
def confusion_matrix(run: Record) -> Figure:
    """How often each true class, downwards, was taken for each class, across.

    Colours are shares of the true class over all seeds, numbers are counts.
    """
    counts = run.examples["confusion"]
    names = [escaped(name) for name in run.config["derived"]["classes"]]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = max(4.5, 0.62 * len(names) + 2)
    figure = Picture(figsize=(size + 1, size), layout="constrained")
    ax = figure.subplots()
    image = ax.imshow(shares, cmap=theme().heat, vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            ink = on_colour(image.cmap(shares[i, j]))
            ax.text(j, i, f"{count:,}", ha="center", va="center", fontsize=9, color=ink)
    is_wide = len("".join(names)) > 30
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if is_wide else {}
    ax.set_xticks(range(len(names)), names, **turned)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="predicted class", ylabel="true class")
    frame(ax)
    figure.suptitle(f"{run.name}: {message(counts, names)}")
    figure.colorbar(image, ax=ax, label="share of the true class", shrink=0.8)
    return figure


def message(counts: np.ndarray, names: list[str]) -> str:
    """How many examples are right, and which class is taken for another one most often."""
    right = np.trace(counts) / max(counts.sum(), 1)
    wrong = counts - np.diag(np.diag(counts))
    said = f"{right:.1%} of test predictions are right"
    if not wrong.any():
        return said
    true, predicted = np.unravel_index(np.argmax(wrong), wrong.shape)
    return f"{said};\n{names[true]} is most often taken for {names[predicted]}"
