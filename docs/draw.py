"""Draws the pictures of the pages in `docs/attention` from the examples that stand in them.

python -m docs.draw [PAGE ...]

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


def ticks(size: int) -> range:
    return range(0, size, max(1, size // 6))


if __name__ == "__main__":
    for page in sys.argv[1:] or PAGES:
        print(f"wrote {draw(page)}")
