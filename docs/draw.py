"""Draws the pictures of the pages in `docs/attention` from the examples that stand in them.

python -m docs.draw [PAGE ...]

It also draws `mesh` and `zigzag`, of the page on many devices.

An example leaves a dict `pictures`: a title, and weights `(queries, keys)`, for each panel.
"""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyBboxPatch

from flax_attn.attention.cut import cut

DOCS = Path(__file__).parent
COLORS = ("#4477aa", "#4f8a6b", "#a8702a", "#96508a")
PAGES = sorted(path.stem for path in (DOCS / "attention").glob("*.md"))


def run_example(text: str) -> dict[str, Any]:
    """Runs the Python blocks of a page one after another, as a reader would, and returns the names
    they define.
    """
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    return names


def draw(page: str) -> Path:
    """Draws the weights that the example of a page leaves, a panel each, and returns the path of
    the picture.
    """
    pictures = run_example((DOCS / "attention" / f"{page}.md").read_text())["pictures"]
    figure, axes = plt.subplots(
        1,
        len(pictures),
        figsize=(3.1 * len(pictures) + 0.8, 3.5),
        squeeze=False,
        layout="constrained",
    )
    image = None
    for ax, (title, weights) in zip(axes[0], pictures.items()):
        weights = np.asarray(weights)
        image = ax.imshow(
            weights,
            cmap="viridis",
            vmin=0,
            vmax=1,
            interpolation="nearest",
            aspect="equal" if weights.shape[0] > 2 else "auto",
        )
        ax.set(
            title=title,
            xlabel="key",
            xticks=ticks(weights.shape[1]),
            yticks=ticks(weights.shape[0]),
        )
    axes[0, 0].set_ylabel("query")
    figure.colorbar(image, ax=axes, label="attention weight")
    path = DOCS / "images" / f"{page}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def draw_mesh() -> Path:
    """Draws four seeds on eight devices, and what these send each other."""
    figure, ax = plt.subplots(figsize=(7.4, 3.2), layout="constrained")
    for seed, color in enumerate(COLORS):
        x = 2.2 * seed
        ax.text(x + 0.9, 2.6, f"seed {seed}", ha="center", fontsize=12, color=color, weight="bold")
        for half, y in enumerate((1.45, 0.0)):
            box = FancyBboxPatch(
                (x, y), 1.8, 1.0, "round,pad=0.04", facecolor=color, edgecolor="none"
            )
            ax.add_patch(box)
            device, rows = f"device {2 * seed + half}", f"rows {64 * half} to {64 * half + 63}"
            ax.text(
                x + 0.9, y + 0.62, device, ha="center", va="center", color="white", weight="bold"
            )
            ax.text(x + 0.9, y + 0.28, rows, ha="center", va="center", color="white", fontsize=9)
        arrow = {"arrowstyle": "<->", "color": "#444444", "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x + 0.9, 1.42), (x + 0.9, 1.03), arrowprops=arrow)
    ax.text(4.2, -0.4, "axis seed: nothing is sent", ha="center", color="#444444")
    ax.text(
        -0.25, 1.22, "axis data:\ngradients\nare added", ha="right", va="center", color="#444444"
    )
    title = "Seeds train apart. Only the devices of one seed send each other gradients."
    ax.set(xlim=(-1.75, 8.6), ylim=(-0.6, 2.9), aspect="equal", title=title)
    ax.axis("off")
    path = DOCS / "images" / "mesh.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def draw_zigzag() -> Path:
    """Draws which pairs each of four devices has under causality, in order and in zig-zag."""
    length, devices = 16, len(COLORS)
    figure, axes = plt.subplots(1, 2, figsize=(7.4, 4.2), layout="constrained")
    for ax, is_zigzag, name in zip(axes, (False, True), ("in order", "zig-zag")):
        indices = cut(length, devices, is_zigzag=is_zigzag).indices()
        owner = np.empty(length, int)
        for device, own in enumerate(indices):
            owner[own] = device
        visible = np.tri(length, dtype=bool)
        colors = np.array([to_rgb(COLORS[device]) for device in owner])[:, None]
        ax.imshow(np.where(visible[..., None], colors, 1.0))
        pairs = [int(visible[own].sum()) for own in indices]
        for device, color in enumerate(COLORS):
            text = f"device {device}: {pairs[device]} pairs"
            ax.text(15.3, 0.6 + 1.5 * device, text, ha="right", color=color, weight="bold")
        ax.set(title=name, xlabel="key", ylabel="query", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    figure.suptitle("In zig-zag order, all devices have the same work under causality\n")
    path = DOCS / "images" / "zigzag.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def ticks(size: int) -> range:
    return range(0, size, max(1, size // 6))


if __name__ == "__main__":
    others = {"mesh": draw_mesh, "zigzag": draw_zigzag}
    for page in sys.argv[1:] or [*PAGES, *others]:
        print(f"wrote {others[page]() if page in others else draw(page)}")
