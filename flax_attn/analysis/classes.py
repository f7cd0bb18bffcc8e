"""Classes in pictures: their names, what is said of a prediction, and the confusion matrix."""

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from flax_attn.analysis.drawing import GREEN, ORANGE, Picture, frame, on_colour, styled, theme
from flax_attn.errors import escaped, shortened
from flax_attn.runs.reading import Record

LONGEST = 25  # characters of a name in a picture
MOST_NAMED = 30  # classes whose names and counts have room in a matrix


def drawn_names(classes: Iterable[str]) -> list[str]:
    """Returns the names of classes for pictures, with long ones shortened in the middle."""
    return [shortened(escaped(name), LONGEST) for name in classes]


def verdict(
    probabilities: np.ndarray, classes: list[str], target: int | None = None
) -> tuple[str, str]:
    """Returns the predicted class with its probability, and the target if wrong, with a colour."""
    best = int(np.argmax(probabilities))
    answer = f"{classes[best]} ({probabilities[best]:.0%})"
    if target is None:
        return answer, theme().ink
    return (answer, GREEN) if best == target else (f"{answer}, not {classes[target]}", ORANGE)


@styled
def confusion_matrix(run: Record) -> Figure:
    """Draws how often each true class, downwards, was predicted as each class, across.

    Colours are shares of the true class over all seeds; of many classes, they alone are drawn.
    """
    counts = run.examples["confusion"]
    names = drawn_names(run.config["derived"]["classes"])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # (classes, classes)
    is_named = len(names) <= MOST_NAMED
    size = max(4.5, 0.62 * min(len(names), MOST_NAMED) + 2)
    figure = Picture(figsize=(size + 1, size), layout="constrained")
    ax = figure.subplots()
    image = ax.imshow(shares, cmap=theme().heat, vmin=0, vmax=1)
    for i, row in enumerate(counts if is_named else ()):
        for j, count in enumerate(row):
            ink = on_colour(image.cmap(shares[i, j]))
            ax.text(j, i, f"{count:,}", ha="center", va="center", fontsize=9, color=ink)
    is_wide = len("".join(names)) > 30
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if is_wide else {}
    if is_named:
        ax.set_xticks(range(len(names)), names, **turned)
        ax.set_yticks(range(len(names)), names)
    by = "" if is_named else ", by its index in labels.json"
    ax.set(xlabel=f"predicted class{by}", ylabel=f"true class{by}")
    frame(ax)
    figure.suptitle(f"{run.name}: {message(counts, names)}")
    figure.colorbar(image, ax=ax, label="share of the true class", shrink=0.8)
    return figure


def message(counts: np.ndarray, names: list[str]) -> str:
    """Returns the accuracy and the most frequent confusion, as a title."""
    right = np.trace(counts) / max(counts.sum(), 1)
    wrong = counts - np.diag(np.diag(counts))
    accuracy = f"{right:.1%} of test predictions are right"
    if not wrong.any():
        return accuracy
    true, predicted = np.unravel_index(np.argmax(wrong), wrong.shape)
    return f"{accuracy};\n{names[true]} is most often taken for {names[predicted]}"
