"""Every figure of a run directory."""

from pathlib import Path

from flax_attn import tasks
from flax_attn.analysis.drawing import save
from flax_attn.analysis.losses import loss_curves
from flax_attn.runs import reading


def draw_run(directory: Path, only_missing: bool = False) -> list[Path]:
    """Draws the figures of a run, or those that are missing, and returns their paths."""
    run = reading.read(directory)
    figures = {"loss": loss_curves([run])} | tasks.TASKS[run.task].target_class.figures(run)
    paths = {name: directory / "figures" / f"{name}.png" for name in figures}
    wanted = [name for name, path in paths.items() if not (only_missing and path.exists())]
    return [save(figures[name], paths[name]) for name in wanted]
