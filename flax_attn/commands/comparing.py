"""Several runs side by side."""

from pathlib import Path

import numpy as np
from rich.console import Console

from flax_attn import tasks
from flax_attn.analysis import shapes, tables
from flax_attn.analysis.drawing import Figure, save
from flax_attn.analysis.losses import loss_curves
from flax_attn.page.report import with_own_names
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.runs.reading import Record
from flax_attn.schema import require
from flax_attn.tasks.user_files import PICTURES

DRAWN = ("loss", "predictions")  # the names of the figures


def compare(paths: list[Path], output: Path, console: Console) -> list[Path]:
    """Prints one table of the runs and draws their losses.

    Predictions are drawn where the runs were tested on the same data. Returns the paths of the
    figures, in the directory `output`.
    """
    runs = tasks.read_runs(paths)
    names = sorted({run.task for run in runs})
    require(len(names) == 1, f"runs of one task, got {' and '.join(names)}; compare them apart")
    runs = with_own_names(runs)
    is_folder = output.suffix not in PICTURES and not output.is_file()
    require(is_folder, f"a folder as --output, got {output}")
    for name in DRAWN:
        check_no_file_of_run(output / f"{name}.png", "--output")
    tables.print_comparison(runs, console)
    if any(run.files != runs[0].files for run in runs):
        note = "the runs are of different data, so their figures cannot be compared"
        console.print(note, soft_wrap=True)
    figures = draw(runs, console)
    return [save(figure, output / f"{name}.png") for name, figure in figures.items()]


def draw(runs: list[Record], console: Console) -> dict[str, Figure]:
    """Draws the figures of the runs, by name."""
    drawn = {"loss": loss_curves(runs)}
    inputs = [run.examples["inputs"] for run in runs]
    if all(np.array_equal(one, inputs[0]) for one in inputs):
        is_drawn = runs[0].task == "signal-signal" and "relevant" not in runs[0].config["data"]
        return drawn | ({"predictions": shapes.predictions(runs)} if is_drawn else {})
    console.print("the runs were tested on different data, so their predictions are drawn apart")
    return drawn
