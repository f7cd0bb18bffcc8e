"""Every figure of a run directory."""

from pathlib import Path

from flax_attn import tasks
from flax_attn.analysis.drawing import save
from flax_attn.analysis.losses import loss_curves
from flax_attn.runs import reading
from flax_attn.runs.reading import Record


def draw_run(path: Path) -> list[Path]:
    """Draws every figure of a run directory into its `figures/` and returns their paths."""
    return _draw(reading.read(path), missing=False)


def draw_missing(run: Record) -> list[Path]:
    """Draws those figures of a run that are not there, and returns their paths."""
    return _draw(run, missing=True)


def _draw(run: Record, missing: bool) -> list[Path]:
    figures = {"loss": loss_curves([run])} | tasks.TASKS[run.task].target_class.figures(run)
    paths = {name: run.path / "figures" / f"{name}.png" for name in figures}
    wanted = [name for name, path in paths.items() if not (missing and path.exists())]
    return [save(figures[name], paths[name]) for name in wanted]
