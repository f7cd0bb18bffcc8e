"""The pictures of the page on many devices that show how work is divided."""

from collections.abc import Callable

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from docs.panels import WIDTH, head, new, place
from flax_attn.analysis.drawing import theme
from flax_attn.attention.forms.devices import lay_out

COLORS = ("#4477aa", "#4f8a6b", "#a8702a", "#96508a")


def mesh() -> Figure:
    """Draws four seeds on eight devices, and what these send each other."""
    figure = new(3.3)
    start = head(
        figure, "Seeds train apart: only the devices of one seed send each other gradients"
    )
    ax = place(figure, 0, start, WIDTH, 3.3 - start)
    for seed, color in enumerate(COLORS):
        x = 2.2 * seed
        named = {"ha": "center", "fontsize": 11, "weight": "bold"}
        ax.text(x + 0.9, 2.6, f"seed {seed}", **named)
        for half, y in enumerate((1.45, 0.0)):
            style = {"facecolor": color, "edgecolor": "none"}
            ax.add_patch(FancyBboxPatch((x, y), 1.8, 1.0, "round,pad=0.04", **style))
            device, rows = f"device {2 * seed + half}", f"rows {64 * half} to {64 * half + 63}"
            middle = {"ha": "center", "va": "center", "color": "white", "fontsize": 9}
            ax.text(x + 0.9, y + 0.64, device, **middle, weight="bold")
            ax.text(x + 0.9, y + 0.28, rows, **middle)
        arrow = {"arrowstyle": "<->", "color": theme().quiet, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x + 0.9, 1.42), (x + 0.9, 1.03), arrowprops=arrow)
    ax.text(4.2, -0.4, "axis seed: nothing is sent", ha="center")
    ax.text(-0.25, 1.22, "axis data:\ngradients\nare added", ha="right", va="center")
    ax.set(xlim=(-1.75, 8.6), ylim=(-0.6, 2.9))
    ax.axis("off")
    return figure


def zigzag() -> Figure:
    """Draws which pairs each of four devices has under causality, in order and in zig-zag."""
    length, devices = 16, len(COLORS)
    figure = new(4.9)
    start = head(figure, "In zig-zag order, all devices have the same work under causality")
    visible = np.tri(length, dtype=bool)
    for i, name in enumerate(("in order", "zig-zag")):
        ax = place(figure, 0.4 + 4.15 * i, start + 0.3, 3.65, 3.65)
        indices = lay_out(length, devices, is_zigzag=bool(i)).indices()
        owner = np.empty(length, int)
        for device, own in enumerate(indices):
            owner[own] = device
        colors = np.array([to_rgba(COLORS[device]) for device in owner])[:, None]
        ax.imshow(np.where(visible[..., None], colors, 0.0), aspect="auto")
        pairs = [int(visible[own].sum()) for own in indices]
        handles = [
            Patch(facecolor=color, label=f"device {device}: {pairs[device]} pairs")
            for device, color in enumerate(COLORS)
        ]
        ax.legend(handles=handles, loc="upper right", fontsize=9, borderaxespad=0)
        ax.set_title(name, loc="left", fontsize=10)
        ax.set(xlabel="key", ylabel="query", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {"mesh": mesh, "zigzag": zigzag}
