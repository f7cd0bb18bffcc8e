"""How the pictures of the pages are laid out, and saved on a light and on a dark ground.

All are 8.3 inches wide, at most 830 pixels of a screen, with letters of at least 9 points.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from flax_attn.analysis.drawing import BLUE, DARK, LIGHT, Picture, colour_bar, on, styled, theme
from flax_attn.analysis.matrices import draw_matrix

DOCS = Path(__file__).parent
WIDTH = 8.3  # inches
THEMES = {"": LIGHT, "_dark": DARK}
LETTER, NARROW = 0.078, 0.066  # inches of a letter of 9 points: with room around it, and without
LARGEST_CELL, HIGHEST = 0.46, 3.8
GAP, BAR, TITLE_LINE = 0.18, 0.85, 0.22


class Matrix(NamedTuple):
    """Weights `(q, k)` with names of queries and keys, and what the axes count."""

    weights: Any
    title: str = ""
    rows: Sequence[object] | None = None
    columns: Sequence[object] | None = None
    mask: Any = None
    queries: str = "query"
    keys: str = "key"


def save(name: str, draw: Callable[[], Figure]) -> list[Path]:
    """Writes `docs/images/NAME.png` and `NAME_dark.png`, with at most 256 colours."""
    paths = []
    for end, of_ground in THEMES.items():
        with on(of_ground):
            figure, png = styled(draw)(), io.BytesIO()
            figure.savefig(png, format="png", dpi=200)
        picture = Image.open(png).convert("RGB")
        picture = picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        paths.append(DOCS / "images" / f"{name}{end}.png")
        picture.save(paths[-1], optimize=True)
    return paths


def head(figure: Figure, title: str) -> float:
    """Writes the message of a picture at its top left, and returns the inches that it takes."""
    lines = textwrap.wrap(title, 88)
    height = figure.get_figheight()
    place = {"ha": "left", "va": "top", "weight": "bold", "fontsize": 11}
    figure.text(0.1 / WIDTH, 1 - 0.08 / height, "\n".join(lines), **place)
    return 0.12 + TITLE_LINE * len(lines)


class Curves(NamedTuple):
    """Values by name over `x`, and what `x` counts. Few values are drawn as points."""

    title: str
    x: Any
    values: Mapping[str, Any]
    across: str
    scale: str = ""  # the axes with a logarithmic scale: x or xy


def curves(title: str, panels: Sequence[Curves], columns: int = 3) -> Figure:
    """Panels of curves in rows, each with a legend of its own."""
    rows = -(-len(panels) // columns)
    width, height, start = WIDTH / columns, 2.35, 0.12 + TITLE_LINE + 0.1
    figure = new(start + rows * height)
    head(figure, title)
    for i, (name, x, values, across, scale) in enumerate(panels):
        row, column = divmod(i, columns)
        left, top = column * width + 0.42, start + row * height + 0.28
        ax = place(figure, left, top, width - 0.6, height - 0.85)
        few = {"marker": "o", "markersize": 4} if len(x) < 12 else {}
        for (label, own), style in zip(values.items(), ("-", "--", ":", "-.", (0, (5, 1, 1, 1)))):
            ax.plot(np.asarray(x), np.asarray(own), linestyle=style, label=label, **few)
        for axis in scale:
            ax.set(**{f"{axis}scale": "log"})
            ax.yaxis.set_major_formatter("{x:g}")
            ax.set_xticks(x[::2], [f"{number:,}" for number in x[::2]])
            ax.minorticks_off()
        (low, high), room = ax.get_ylim(), 0.13 * len(values)  # for the legend
        ax.set_ylim(
            low, high * (high / low) ** room if "y" in scale else high + room * (high - low)
        )
        ax.set_title(name, fontsize=9.5, loc="left", pad=4)
        ax.set_xlabel(across, fontsize=9, loc="left")
        ax.tick_params(labelsize=9, length=2)
        ax.legend(fontsize=9, frameon=False, handlelength=1.6, borderpad=0.1, labelspacing=0.2)
    return figure


def new(height: float) -> Figure:
    return Picture(figsize=(WIDTH, height))


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the top left."""
    whole = figure.get_figheight()
    return figure.add_axes(
        (left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole)
    )


def matrices(title: str, panels: Sequence[Matrix], top: float = 1.0) -> Figure:
    """Matrices beside each other, with cells of one size and one colour bar."""
    arrays = [np.asarray(panel.weights) for panel in panels]
    names_of = [list(panel.rows or range(len(a))) for panel, a in zip(panels, arrays)]
    is_named = [i == 0 or names != names_of[0] for i, names in enumerate(names_of)]
    rooms = [
        0.42 + LETTER * longest(panel.rows, len(array)) if named else 0.14
        for named, panel, array in zip(is_named, panels, arrays)
    ]
    free = WIDTH - BAR - sum(rooms) - GAP * len(panels)
    most = max(len(array) for array in arrays)
    cell = min(LARGEST_CELL, free / sum(array.shape[1] for array in arrays), HIGHEST / most)
    rows = cell * most
    turned = any(longest(panel.columns, 0) > 2 for panel in panels)
    below = 0.5 + LETTER * max(longest(p.columns, 0) for p in panels) if turned else 0.5
    hidden = [
        np.broadcast_to(p.mask, a.shape) for p, a in zip(panels, arrays) if p.mask is not None
    ]
    is_masked = any(not mask.all() for mask in hidden)
    names = [wrapped(p.title, cell * a.shape[1]) for p, a in zip(panels, arrays)]
    above = 0.08 + 0.18 * max(1 + name.count("\n") for name in names) if any(names) else 0.08
    height = 0.12 + TITLE_LINE * len(textwrap.wrap(title, 88)) + above
    start = height
    height += max(rows, 1.5) + below + 0.1
    figure = new(height)
    head(figure, title)
    left = 0.0
    for panel, array, room, name, named in zip(panels, arrays, rooms, names, is_named):
        left += room
        size = cell * array.shape[1], cell * array.shape[0]
        ax = place(figure, left, start, *size)
        mask = None if panel.mask is None else np.broadcast_to(panel.mask, array.shape)
        draw_matrix(ax, array, mask=mask, top=top)
        ax.set_title(name, fontsize=9.5, loc="left", pad=4)
        ax.set_xlabel(panel.keys, fontsize=9, loc="left")
        ax.set_ylabel(panel.queries if named else "", fontsize=9, loc="top")
        label(ax.xaxis, panel.columns, array.shape[1], cell, turned)
        label(ax.yaxis, panel.rows, array.shape[0], cell, False)
        ax.tick_params(labelleft=named)
        left += size[0] + GAP
    bar = colour_bar(figure, top, cax=place(figure, left + 0.05, start, 0.13, max(rows, 1.5)))
    bar.set_label("weight" if rows < 2.6 else "attention weight (square-root scale)", size=9)
    bar.ax.tick_params(labelsize=9)
    if is_masked:
        handles = [Patch(**theme().masked, label="masked")]
        corner = ((left + BAR - 0.05) / WIDTH, 0.02 / height)
        figure.legend(handles=handles, loc="lower right", bbox_to_anchor=corner, fontsize=9)
    return figure


def label(axis: Any, names: Sequence[object] | None, size: int, cell: float, turned: bool) -> None:
    """Names of rows or columns, or every second, third ... number where they are narrow."""
    step = 1 if names is not None else next(n for n in (1, 2, 3, 4, 6, 12) if n * cell > 0.2)
    ticks = range(0, size, step)
    written = [str(i if names is None else names[i]) for i in ticks]
    axis.set_ticks(ticks, written, fontsize=9)
    axis.set_tick_params(length=2)
    if turned and names is not None:
        for text in axis.get_ticklabels():
            text.set(rotation=60, ha="right", rotation_mode="anchor")


def bars(title: str, panels: Mapping[str, Any], names: Sequence[str], x: str) -> Figure:
    """Horizontal bars beside each other, with a number at each; the panels share the names."""
    arrays = [np.asarray(values) for values in panels.values()]
    room = 0.3 + LETTER * max(map(len, names))
    width = (WIDTH - room - 0.1) / len(panels) - GAP
    rows = 0.3 * len(names)
    titles = [wrapped(name, width) for name in panels]
    start = 0.12 + TITLE_LINE * len(textwrap.wrap(title, 88))
    start += 0.1 + 0.18 * max(1 + name.count("\n") for name in titles)
    figure = new(start + rows + 0.55)
    head(figure, title)
    for i, (name, values) in enumerate(zip(titles, arrays)):
        ax = place(figure, room + i * (width + GAP), start, width, rows)
        ax.barh(range(len(values)), values, color=BLUE, height=0.7)
        reach = np.abs(values).max()
        for j, value in enumerate(values):
            shift = 0.03 * reach * (1 if value >= 0 else -1)
            where = {"ha": "left" if value >= 0 else "right", "va": "center", "fontsize": 9}
            ax.text(value + shift, j, f"{value:.2f}", **where)
        ax.axvline(0, color=theme().ink, lw=0.8)
        low = -1.6 * reach if values.min() < 0 else 0.0
        ax.set(xlim=(low, 1.55 * reach), ylim=(len(values) - 0.5, -0.5), xticks=[])
        ax.set_title(name, fontsize=9.5, loc="left", pad=4)
        ax.set_yticks(range(len(names)), names if i == 0 else [""] * len(names), fontsize=9)
        ax.set_xlabel(x, fontsize=9, loc="left")
        ax.spines["bottom"].set_visible(False)
        ax.spines["left"].set_visible(False)
        ax.tick_params(length=0)
    return figure


def longest(names: Sequence[object] | None, size: int) -> int:
    """Characters of the longest name; of the largest number where there are no names."""
    return max(len(str(name)) for name in names) if names is not None else len(str(size))


def wrapped(name: str, width: float) -> str:
    return "\n".join(textwrap.wrap(name, max(int(width / NARROW), 8)))
