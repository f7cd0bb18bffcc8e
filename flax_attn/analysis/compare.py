"""Several runs side by side."""

import os
from pathlib import Path

import numpy as np
from rich.console import Console

from flax_attn.analysis import shapes, tables
from flax_attn.analysis.drawing import save
from flax_attn.analysis.losses import loss_curves
from flax_attn.errors import UsageError
from flax_attn.files import check_writable, make_folder
from flax_attn.runs.directory import check_no_file_of_run
from flax_attn.runs.reading import read

DRAWN = ("loss", "predictions")  # the names of the figures


def compare(paths: list[Path], output: Path, console: Console) -> list[Path]:
    """Prints one table of the runs and draws their losses.

    Predictions are drawn where the runs were tested on the same data.

    Returns the paths of the figures, in the directory `output`.

    Raises:
        UsageError: a run that is not finished or is damaged, or an output directory that cannot be
            written.
    """
    once: dict[Path, Path] = {}  # a run that is named twice is one
    for path in paths:
        once.setdefault(Path(os.path.realpath(path)), path)
    runs = [read(path) for path in once.values()]
    tasks = sorted({run.summary["task"] for run in runs})
    if len(tasks) > 1:
        raise UsageError(
            f"expected runs of one task, got {' and '.join(tasks)}; compare them apart"
        )
    names = [run.name for run in runs]
    runs = [run if names.count(run.name) == 1 else run._replace(name=str(run.path)) for run in runs]
    for name in DRAWN:
        check_no_file_of_run(output / f"{name}.png", "--output")
    try:
        make_folder(output)
    except OSError as error:
        raise UsageError(
            f"cannot make the directory --output {output} ({error.strerror}); choose another"
        ) from error
    try:
        for name in DRAWN:
            check_writable(output / f"{name}.png")
    except OSError as error:
        raise UsageError(
            f"cannot write to --output {output} ({error.strerror}); choose another directory"
        ) from error
    tables.print_comparison(runs, console)
    drawn = {"loss": loss_curves(runs)}
    if all(run.pictures == "signals" for run in runs):
        if all(np.array_equal(run.examples["inputs"], runs[0].examples["inputs"]) for run in runs):
            drawn["predictions"] = shapes.predictions(runs)
        else:
            console.print(
                "the runs were tested on different data, so their predictions are not drawn "
                "together"
            )
    return [save(figure, output / f"{name}.png") for name, figure in drawn.items()]
