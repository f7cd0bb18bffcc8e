"""A matrix of attention weights on the axes of a figure: queries downwards, keys across."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from flax_attn.analysis.drawing import ORANGE, frame, heat_up_to, on_colour, theme
from flax_attn.errors import escaped
from flax_attn.types import Options

NOT_A_NUMBER: Options = {"facecolor": ORANGE}
CELL = 0.27  # inches, room for a word in 9 points
LEAST_STEP, LEAST_STEP_OF_LETTERS = 0.16, 0.12  # inches from one word or letter to the next
SMALLEST, LARGEST, LARGEST_WITHOUT_NAMES = 2.4, 16.0, 5.0  # inches
LONGEST_LABEL = 24  # characters
MOST_SIGNS = 24  # rows or columns of a matrix whose negative weights have a sign
QUERY, KEY = "query: the position that attends", "key: the position that is attended to"


def draw_matrix(
    ax: Axes, weights: np.ndarray, *, mask: np.ndarray | None = None, top: float = 1.0, **look: Any
) -> None:
    """Draws weights `(q, k)` on colours that end at `top`, of a scale and a cmap in `look`.

    A cell where `mask` `(q, k)` is False is hatched, and a visible NaN is orange. A weight below 0
    has a line at its foot, for those who do not see or print colours, unless there are too many.
    """
    visible = np.ones(weights.shape, bool) if mask is None else mask
    broken = visible & np.isnan(weights)
    heat, _ = heat_up_to(top, **look)
    ax.imshow(np.ma.masked_where(~visible | broken, weights), **heat, aspect="auto")
    if look.get("signed") and max(weights.shape) <= MOST_SIGNS:
        q, k = np.nonzero(visible & (weights < 0))
        inks = [on_colour(tuple(own)) for own in ax.images[-1].to_rgba(weights[q, k])]
        ax.scatter(k, q + 0.3, s=16, marker="_", linewidths=0.8, c=inks)
    if not visible.all():
        ax.patch.set(**theme().masked)  # masked cells have no colour: the ground shows through
    if broken.any():
        marked = np.ma.masked_where(~broken, np.zeros(weights.shape))
        orange = ListedColormap([NOT_A_NUMBER["facecolor"]])
        ax.imshow(marked, cmap=orange, origin="upper", interpolation="nearest", aspect="auto")
    frame(ax)


def name_cells(axis: Axis, names: list[str] | None, length: float) -> None:
    """Writes names, as many as fit, or numbers without names along an axis of `length` inches."""
    if names is None:
        room = 0.3 if isinstance(axis, XAxis) else 0.17  # inches of a number
        bins = min(max(int(length / room), 2), 6)
        axis.set_major_locator(MaxNLocator(nbins=bins, integer=True, min_n_ticks=1))
        return
    least = LEAST_STEP if any(len(name) > 1 for name in names) else LEAST_STEP_OF_LETTERS
    step = max(1, int(np.ceil(len(names) * least * small() / 9 / length)))
    written = range(0, len(names), step)
    labels = [shorten(names[i]) for i in written]
    axis.set_ticks(written, labels, fontsize=small(), parse_math=False)
    if isinstance(axis, XAxis) and max(map(len, labels)) > 2:
        for label in axis.get_ticklabels():
            label.set(rotation=60, ha="right", rotation_mode="anchor")


def small() -> float:
    """Returns the points of a letter that is smaller than the others: 9 beside 10."""
    return 0.9 * matplotlib.rcParams["font.size"]


def label_sides(
    ax: Axes, panel: tuple[float, float], is_left: bool, is_lowest: bool, labels: Sequence[str]
) -> None:
    """Labels the axes of a panel, width and height in inches, that stands on an edge of a grid."""
    width, height = panel
    down, across, *_ = labels
    if is_left:
        ax.set_ylabel(down if height >= SMALLEST else down.split(":")[0])
    if is_lowest:
        ax.set_xlabel(across if width >= SMALLEST else across.split(":")[0])
    ax.tick_params(labelleft=is_left, labelbottom=is_lowest)


def shorten(name: str) -> str:
    """Returns a name short enough for an axis, with unprintable characters escaped."""
    name = escaped(name)
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def panel_size(num_rows: int, num_columns: int, largest: float) -> tuple[float, float]:
    """Returns the inches of a matrix: square cells, unless it is very long or very flat."""
    longest = CELL * max(num_rows, num_columns)
    cell = CELL * min(max(longest, SMALLEST), largest) / longest
    return max(cell * num_columns, 0.4), max(cell * num_rows, 0.4)


def label_room(names: list[str] | None) -> float:
    """Returns the inches that names along an axis take beside it."""
    return 0.6 + 0.08 * max((len(shorten(name)) for name in names or ()), default=2)


def explain_marks(figure: Figure, weights: np.ndarray, mask: np.ndarray | None) -> None:
    """Adds a legend of hatched and orange cells, where there are any."""
    visible = np.ones(weights.shape, bool) if mask is None else mask
    handles = []
    if not visible.all():
        handles.append(Patch(**theme().masked, label="masked"))
    if np.isnan(weights[visible]).any():
        handles.append(Patch(**NOT_A_NUMBER, label="not a number"))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=small())
