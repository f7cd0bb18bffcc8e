"""Pictures of images in classes: digits, patches, predictions, and attention laid on the image."""

import math
import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from flax_attn.analysis import drawing
from flax_attn.analysis.classes import drawn_names, verdict
from flax_attn.analysis.drawing import ORANGE, Picture, frame, strength, strength_bar, styled, theme
from flax_attn.analysis.token_weights import are_negative
from flax_attn.runs.reading import Record
from flax_attn.types import Options

SHOWN, CHARACTERS = 32, 16  # images in a grid, and those in a line above each
MOST_PATCHES = 256  # in a picture of their own, which a thousand would take minutes
INK = 0.65  # how much the colours of weights cover the image under them


def draw(run: Record) -> dict[str, Figure]:
    """Draws images of a run, their predictions, and how they are cut into patches."""
    images, targets = as_ink(run), run.examples["targets"]
    classes = drawn_names(run.config["derived"]["classes"])
    shares = run.examples["predictions"]
    labels = [(classes[target], theme().ink) for target in targets]
    verdicts = [verdict(*row) for row in zip(shares, [classes] * len(shares), targets.tolist())]
    shown = min(len(images), SHOWN)
    right = int((shares[:shown].argmax(axis=1) == targets[:shown]).sum())
    title = f"{run.name}: of {shown} test examples {right} are right (green)"
    title += f" and {shown - right} wrong (orange)" if right < shown else ""
    drawn = {
        "data_sample": grid(images, labels, f"{run.name}: test examples and their classes"),
        "predictions": grid(images, verdicts, title),
    }
    patch_size = run.config["model"].get("patch_size")
    if patch_size and math.prod(images[0].shape[:2]) <= MOST_PATCHES * patch_size**2:
        drawn["patches"] = patches(images[0], patch_size)
    return drawn


def draw_attention(run: Record, name: str, weights: np.ndarray) -> dict[str, Figure]:
    """Draws an attention on the first test example."""
    is_pooling = weights[0].ndim == 1 or weights.shape[-2] == 1
    reader = "the model" if is_pooling else "each patch"
    title = f"{run.name}, {name}:\nwhich patches of test example 0 {reader} reads"
    return {name: attention_on_image(as_ink(run)[0], weights[0], title)}


def as_ink(run: Record) -> np.ndarray:
    """Returns images with 1 as black: MNIST as it is, others inverted."""
    images = run.examples["inputs"]
    return images if run.config["data"]["name"] == "mnist" else 1 - images


@styled
def patches(image: np.ndarray, size: int) -> Figure:
    """Draws one image cut into its patches, numbered row by row."""
    rows, columns = image.shape[0] // size, image.shape[1] // size
    size_of_figure = min(0.9 * columns + 0.6, 8.3), 1.05 * rows + 0.6
    figure = Picture(figsize=size_of_figure, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for number, ax in enumerate(axes.flat):
        row, column = divmod(number, columns)
        top, left = row * size, column * size
        show(ax, image[top : top + size, left : left + size], str(number))
        ax.axis("on")
        ax.set(xticks=[], yticks=[])
        frame(ax)  # or white patches would not be seen
    figure.suptitle(f"The model reads {rows * columns} patches of {size} x {size} pixels")
    return figure


@styled
def grid(images: np.ndarray, verdicts: list[tuple[str, str]], title: str) -> Figure:
    """Draws a grid of images, with a text in its colour above each."""
    shown = min(len(images), SHOWN)
    columns = min(6, shown)
    rows = -(-shown // columns)
    # a longer line would reach into the text of a neighbour
    lines = [textwrap.wrap(text, CHARACTERS) or [""] for text, _ in verdicts[:shown]]
    height = 1.3 + 0.15 * max(map(len, lines))  # inches of a row
    figure = Picture(figsize=(1.3 * columns + 0.4, height * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[shown:]:
        ax.axis("off")
    for ax, image, text, (_, colour) in zip(axes.flat, images, lines, verdicts):
        show(ax, image, "\n".join(text), colour)
    figure.suptitle(title)
    return figure


@styled
def attention_on_image(image: np.ndarray, weights: np.ndarray, title: str) -> Figure:
    """Draws `(heads, q, k)`, `(q, k)` or `(k,)` on the image: the mean, and that of 4 queries."""
    weights = np.atleast_2d(weights)  # (q, k) or (heads, q, k)
    heads = weights.reshape(-1, *weights.shape[-2:])  # (heads, q, k)
    size = round(math.sqrt(math.prod(image.shape[:2]) / heads.shape[-1]))  # of a patch
    queries = [] if heads.shape[1] == 1 else ink(image, size)
    across, scale = 1 + len(queries), drawing.scale_of(heads) if are_negative(heads) else None
    cell = 1.4 if queries or len(heads) > 1 else 2.6  # inches; an image alone is larger
    size_of_figure = cell * across + 1.2, cell * len(heads) + 0.9
    figure = Picture(figsize=size_of_figure, layout="compressed")
    axes = figure.subplots(len(heads), across, squeeze=False)
    for head, row in zip(heads, axes):
        draw_patches(row[0], image, head.mean(axis=0), size, scale)
        for ax, query in zip(row[1:], queries):
            draw_patches(ax, image, head[query], size, scale)
            y, x = divmod(query, image.shape[1] // size)
            corner = x * size - 0.5, y * size - 0.5
            ax.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=ORANGE, lw=2))
    axes[0, 0].set_title("mean over queries" if queries else "pooling")
    for ax, query in zip(axes[0, 1:], queries):
        ax.set_title(f"from patch {query}")
    if len(heads) > 1:
        for number, row in enumerate(axes):
            row[0].set_ylabel(f"head {number}")
    figure.suptitle(title)
    place: Options = {"ax": axes, "shrink": 0.8, "alpha": INK}
    if scale:
        drawing.colour_bar(figure, **scale, **place, label="weight")
        return figure
    bar = strength_bar(figure, heads.shape[-1], **place)
    if len(heads) == 1:
        bar.set_label("weight, from 1/n on")  # there is no room for more
    return figure


def draw_patches(
    ax: Axes, image: np.ndarray, weights: np.ndarray, size: int, scale: Options | None = None
) -> None:
    """Draws weights `(k,)` of patches of `size x size` pixels over their image.

    Colours are those of a scale of both signs, or of the strengths where there is none.
    """
    paint(ax, image, alpha=0.5)
    rows, heat = strength(weights, weights.size), {"cmap": theme().heat, "vmin": 0, "vmax": 1}
    if scale:
        rows, (heat, _) = weights, drawing.heat_up_to(**scale)
    rows = rows.reshape(image.shape[0] // size, image.shape[1] // size)  # (patch rows, columns)
    heat["interpolation"] = "nearest"
    ax.imshow(np.kron(rows, np.ones((size, size))), **heat, alpha=INK)
    ax.set(xticks=[], yticks=[])
    frame(ax)


def ink(image: np.ndarray, size: int) -> list[int]:
    """Returns four patches that are not empty, spread over the image."""
    rows, columns = image.shape[0] // size, image.shape[1] // size
    dark = image.reshape(rows, size, columns, size, -1).sum(axis=(1, 3, 4)).ravel()  # (patches,)
    used = np.flatnonzero(dark > dark.max() / 4)
    return [int(used[i]) for i in np.unique(np.linspace(0, len(used) - 1, 4).astype(int))]


def show(ax: Axes, image: np.ndarray, title: str, colour: str | None = None) -> None:
    paint(ax, image)
    ax.set_title(title, color=colour or theme().ink, fontsize=9, pad=2)
    ax.axis("off")


def paint(ax: Axes, image: np.ndarray, alpha: float = 1.0) -> None:
    """Draws an image of ink, 1 for black; with three channels, 1 takes all of a colour away."""
    if image.ndim == 3:
        image = 1 - image if image.shape[-1] == 3 else image.mean(axis=-1)
    ax.imshow(image, cmap="gray_r", vmin=0, vmax=1, alpha=alpha)
