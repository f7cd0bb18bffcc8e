"""Every figure of a run directory."""

from pathlib import Path

import matplotlib.pyplot as plt

from flax_attn.analysis import images, series, shapes, texts, translation
from flax_attn.analysis.drawing import save
from flax_attn.analysis.losses import loss_curves
from flax_attn.runs.reading import Record, read

DRAWN_BY = {"signals": shapes, "images": images, "texts": texts, "series": series, "translation": translation}


def draw_run(path: Path) -> list[Path]:
    """Draws every figure of a run directory into its `figures/` and returns their paths."""
    return _draw(read(path), missing=False)


def draw_missing(run: Record) -> list[Path]:
    """Draws those figures of a run that are not there, and returns their paths."""
    return _draw(run, missing=True)


def _draw(run: Record, missing: bool) -> list[Path]:
    drawn = {"loss": loss_curves([run])} | DRAWN_BY[run.pictures].draw(run)
    paths = []
    for name, figure in drawn.items():
        path = run.path / "figures" / f"{name}.png"
        if missing and path.exists():
            plt.close(figure)
        else:
            paths.append(save(figure, path))
    return paths
