"""Texts whose tokens stand on the colours of their weights."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle

from flax_attn.analysis import drawing
from flax_attn.analysis.drawing import ORANGE, Picture, of_strength, quietly, strength_bar
from flax_attn.analysis.token_weights import printable
from flax_attn.types import Options

FONT: Options = {"family": "monospace", "size": 10}
# All lengths are in points.
ROOM = 560.0  # for a line of tokens
PAD, GAP = 3.0, 3.0  # between a token and the edge of its box, and between boxes
BOX, LINE, HEADING, BETWEEN_TEXTS = 17.0, 20.5, 18.0, 12.0
MARGIN, TITLE, TITLE_LINE = 8.0, 26.0, 14.0
BAR_WIDTH, BAR_HEIGHT, BELOW_BAR = 280.0, 9.0, 30.0


class Box(NamedTuple):
    """A token with its weight among `count`, and its place: left edge, top edge and width."""

    token: str
    weight: float
    count: int
    left: float
    top: float
    width: float


def draw_texts(
    texts: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]],
    headings: Sequence[tuple[str, str]],
    title: str,
) -> Figure:
    """Draws texts under their headings, words and a colour, if any, with a colour bar.

    A token whose weight is NaN has an orange frame. Where any is negative, colours have both signs,
    and tokens below 0 are underlined.
    """
    scale = drawing.scale_of(np.array([weight for row in weights for weight in row]))
    boxes, lines, height = lay_out(texts, weights, headings)
    counts = {box.count for box in boxes}
    widest = max((box.left + box.width for box in boxes), default=0.0)
    of_title = [part for line in title.split("\n") for part in wrapped(line)]
    width = max(widest, BAR_WIDTH + 130, max(width_of(of_title, size=11)))
    above = TITLE + TITLE_LINE * (len(of_title) - 1) if title else 0.0
    of_bar = BAR_HEIGHT + BELOW_BAR + MARGIN
    size = width + 2 * MARGIN, height + above + of_bar + 3 * MARGIN
    figure = Picture(figsize=(size[0] / 72, size[1] / 72))
    ax = add_axes(figure, MARGIN, 2 * MARGIN + of_bar, width, height)
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.axis("off")
    for box in boxes:
        draw_box(ax, box, scale if scale["signed"] else None)
    for words, colour, line in lines:
        ax.text(0, line + HEADING / 2, words, color=colour, va="center", weight="bold", size=10)
    if title:
        ax.set_title("\n".join(of_title), loc="left", pad=8)
    below = add_axes(figure, MARGIN + PAD, MARGIN + BELOW_BAR, BAR_WIDTH, BAR_HEIGHT)
    count = counts.pop() if len(counts) == 1 else None
    place: Options = {"cax": below, "orientation": "horizontal"}
    if scale["signed"]:
        bar, label = drawing.colour_bar(figure, **scale, **place), "weight: underlined below 0"
    else:
        bar = strength_bar(figure, count, **place)
        bar.ax.get_xticklabels()[0].set(ha="left")  # centred, 1/n would begin outside the figure
        who = "n tokens" if count is None else f"{count} tokens"
        label = f"weight among {who}: no colour up to 1/n, the uniform weight"
    bar.ax.tick_params(labelsize=9)
    bar.set_label(label, size=9, loc="left")
    if any(np.isnan(box.weight) for box in boxes):
        note = {"color": ORANGE, "size": 9, "va": "center", "transform": below.transAxes}
        below.text(1.06, 0.5, "framed: not a number", **note)
    return figure


def wrapped(line: str) -> list[str]:
    """Breaks a line of a title wider than `ROOM`; matplotlib would parse what it wraps as math."""
    (width,) = width_of([line], size=11)
    return textwrap.wrap(line, int(len(line) * ROOM / max(width, ROOM)) or 1) or [""]


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Adds axes at a fixed position of a figure, in points."""
    across, down = figure.get_size_inches() * 72  # 72 points an inch
    return figure.add_axes((left / across, bottom / down, width / across, height / down))


def lay_out(
    texts: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]],
    headings: Sequence[tuple[str, str]],
) -> tuple[list[Box], list[tuple[str, str, float]], float]:
    """Returns tokens, headings with their colour and top edge, and the height of all."""
    boxes: list[Box] = []
    lines: list[tuple[str, str, float]] = []
    y = 0.0
    for number, (tokens, of_tokens) in enumerate(zip(texts, weights)):
        y += BETWEEN_TEXTS if number else 0.0
        if headings:
            lines.append((*headings[number], y))
            y += HEADING
        x = 0.0
        written = [printable(token) for token in tokens]
        for token, weight, width in zip(written, of_tokens, width_of(written, **FONT)):
            width += 2 * PAD
            if x > 0 and x + width > ROOM:
                x, y = 0.0, y + LINE
            boxes.append(Box(token, float(weight), len(tokens), x, y, width))
            x += width + GAP
        y += LINE
    return boxes, lines, max(y, LINE)


def width_of(words: Sequence[str], **font: Any) -> list[float]:
    """Returns the widths of words in points, measured in the font that draws them."""
    pixels = 10  # a point, so that no width is rounded to a whole pixel of a screen
    figure = Picture(dpi=72 * pixels)
    renderer = figure.canvas.get_renderer()  # pyright: ignore[reportAttributeAccessIssue]
    properties = FontProperties(**font)
    with quietly():
        sizes = [renderer.get_text_width_height_descent(word, properties, False) for word in words]
    return [width / pixels for width, _, _ in sizes]


def draw_box(ax: Axes, box: Box, scale: Options | None) -> None:
    """Draws a token on the colour of its weight, on a scale of both signs or by its strength."""
    if np.isnan(box.weight):
        front = ORANGE
        ground: Options = {"facecolor": "none", "edgecolor": ORANGE, "linestyle": "--"}
    else:
        back, front = (
            drawing.of_weight(box.weight, **scale) if scale else of_strength(box.weight, box.count)
        )
        ground = {"facecolor": back, "edgecolor": "none"}
    if scale and box.weight < 0:
        line = box.left + PAD, box.left + box.width - PAD
        ax.plot(line, [box.top + BOX - 2.5] * 2, color=front, lw=0.8)
    ax.add_patch(Rectangle((box.left, box.top), box.width, BOX, **ground))
    middle = box.left + box.width / 2, box.top + BOX / 2
    ax.text(*middle, box.token, ha="center", va="center_baseline", color=front, **FONT)
