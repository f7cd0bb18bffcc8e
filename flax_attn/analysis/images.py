"""Pictures of images in classes: digits, patches, predictions, and attention laid on the image."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flax_attn.analysis.classes import confusion_matrix
from flax_attn.analysis.drawing import GREEN, ORANGE, literal
from flax_attn.runs.reading import Record

SHOWN = 32
RIGHT, WRONG = GREEN, ORANGE  # a green and a red that the colour-blind can tell apart


def draw(run: Record) -> dict[str, Figure]:
    """All pictures of a run on images, by name."""
    images, classes = run.examples["inputs"], run.config["derived"]["classes"]
    drawn = {"data_sample": digits(images, run.examples["targets"], classes), "confusion": confusion_matrix(run)}
    drawn["predictions"] = predictions(images, run.examples["predictions"], run.examples["targets"], classes, run.name)
    patch_size = run.config["model"].get("patch_size")
    if patch_size:
        drawn["patches"] = patches(images[0], patch_size)
    for name, weights in run.attention.items():
        drawn[name] = attention_on_image(images[0], weights[0], f"{run.name}: {name}, test example 0")
    return drawn


@literal
def digits(images: np.ndarray, labels: np.ndarray, classes: list[str]) -> Figure:
    """A grid of images with their classes."""
    figure, axes = plt.subplots(4, 8, figsize=(9, 5.2), layout="constrained")
    for ax, image, label in zip(axes.flat, images, labels):
        show(ax, image, classes[label])
    return figure


@literal
def patches(image: np.ndarray, size: int) -> Figure:
    """One image cut into its patches, numbered row by row."""
    rows, columns = image.shape[0] // size, image.shape[1] // size
    figure, axes = plt.subplots(rows, columns, figsize=(0.9 * columns + 0.6, 1.05 * rows + 0.6), squeeze=False, layout="constrained")
    for number, ax in enumerate(axes.flat):
        row, column = divmod(number, columns)
        show(ax, image[row * size : (row + 1) * size, column * size : (column + 1) * size], str(number))
    figure.suptitle(f"{rows * columns} patches of {size} x {size} pixels")
    return figure


@literal
def predictions(images: np.ndarray, probabilities: np.ndarray, labels: np.ndarray | None, classes: list[str], title: str) -> Figure:
    """A grid of images with the class that is predicted for each; a wrong one says the right one too."""
    shown = min(len(images), SHOWN)
    columns = min(8, shown)
    rows = -(-shown // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.25 * columns + 0.5, 1.5 * rows + 0.6), squeeze=False, layout="constrained")
    for i, ax in enumerate(axes.flat):
        ax.axis("off")
        if i >= shown:
            continue
        best = int(np.argmax(probabilities[i]))
        said = f"{classes[best]} ({probabilities[i, best]:.0%})"
        if labels is not None and best != labels[i]:
            said += f", not {classes[labels[i]]}"
        show(ax, images[i], said, "black" if labels is None else RIGHT if best == labels[i] else WRONG)
    figure.suptitle(title if labels is None else f"{title}: test examples, green right, orange wrong")
    return figure


@literal
def attention_on_image(image: np.ndarray, weights: np.ndarray, title: str) -> Figure:
    """Attention laid on the image: the mean over queries, and four queries, of `(heads, q, k)` or `(q, k)`; or `(k,)` as it is."""
    weights = np.atleast_2d(weights)
    heads = weights.reshape(-1, *weights.shape[-2:])
    side = int(np.sqrt(heads.shape[-1]))
    size = image.shape[0] // side
    queries = [] if heads.shape[1] == 1 else ink(image, side)
    figure, axes = plt.subplots(
        len(heads), 1 + len(queries), figsize=(2.2 * (1 + len(queries)) + 1.2, 2.3 * len(heads) + 0.7), squeeze=False
    )
    top = float(np.quantile(heads, 0.999)) or 1.0
    for head, row in zip(heads, axes):
        for ax, query in zip(row, [None, *queries]):
            chosen = head.mean(axis=0) if query is None else head[query]
            ax.imshow(image, cmap="gray_r", vmin=0, vmax=1, alpha=0.5)
            layer = ax.imshow(np.kron(chosen.reshape(side, side), np.ones((size, size))), cmap="viridis", vmin=0, vmax=top, alpha=0.65)
            ax.set_xticks([])
            ax.set_yticks([])
            if query is not None:
                y, x = divmod(query, side)
                ax.add_patch(plt.Rectangle((x * size - 0.5, y * size - 0.5), size, size, fill=False, edgecolor=ORANGE, lw=2))
    for ax, query in zip(axes[0], [None, *queries]):
        ax.set_title(("mean over queries" if queries else "pooling") if query is None else f"from patch {query}")
    for number, row in enumerate(axes):
        row[0].set_ylabel(f"head {number}" if len(heads) > 1 else "")
    figure.suptitle(title)
    figure.colorbar(layer, ax=axes, label="attention weight", shrink=0.8)
    return figure


def ink(image: np.ndarray, side: int) -> list[int]:
    """Four patches that have something on them, spread over the image."""
    size = image.shape[0] // side
    dark = image.reshape(side, size, side, size).sum(axis=(1, 3)).ravel()
    used = np.flatnonzero(dark > dark.max() / 4)
    return [int(used[i]) for i in np.unique(np.linspace(0, len(used) - 1, 4).astype(int))]


def show(ax: Axes, image: np.ndarray, title: str, colour: str = "black") -> None:
    ax.imshow(image, cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(title, color=colour, fontsize=9, pad=2)
    ax.axis("off")
