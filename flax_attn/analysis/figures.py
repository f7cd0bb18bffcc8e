"""Every figure of a run directory."""

from pathlib import Path

import matplotlib.pyplot as plt

from flax_attn.analysis import images, series, shapes, texts, translation
from flax_attn.analysis.drawing import save
from flax_attn.analysis.losses import loss_curves
from flax_attn.analysis.runs import Run, read

DRAWN_BY = {"shapes": shapes, "mnist": images, "ag_news": texts, "sst": texts, "text_csv": texts, "input_series": series}
DRAWN_BY |= dict.fromkeys(("reverse", "dates", "multi30k", "pairs"), translation)


def draw_run(path: Path) -> list[Path]:
    """Draws every figure of a run directory into its `figures/` and returns their paths."""
    return _draw(read(path), missing=False)


def draw_missing(run: Run) -> list[Path]:
    """Draws those figures of a run that are not there, and returns their paths."""
    return _draw(run, missing=True)


def _draw(run: Run, missing: bool) -> list[Path]:
    drawn = {"loss": loss_curves([run])} | DRAWN_BY[run.config["data"]["name"]].draw(run)
    paths = []
    for name, figure in drawn.items():
        path = run.path / "figures" / f"{name}.png"
        if missing and path.exists():
            plt.close(figure)
        else:
            paths.append(save(figure, path))
    return paths
