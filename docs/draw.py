"""Draws the pictures of the pages in `docs/attention` from the examples that stand in them.

python -m docs.draw [PAGE ...]

It also draws `mesh`, of the page on many devices.

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
from matplotlib.patches import FancyBboxPatch

DOCS = Path(__file__).parent
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
    colors = ("#4477aa", "#4f8a6b", "#a8702a", "#96508a")
    figure, ax = plt.subplots(figsize=(7.4, 3.2), layout="constrained")
    for seed, color in enumerate(colors):
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


def ticks(size: int) -> range:
    return range(0, size, max(1, size // 6))


if __name__ == "__main__":
    for page in sys.argv[1:] or [*PAGES, "mesh"]:
        print(f"wrote {draw_mesh() if page == 'mesh' else draw(page)}")
