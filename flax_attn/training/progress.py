"""Progress on a terminal as a live bar, elsewhere as one line an epoch."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Row = dict[str, Any]


def mean_over_seeds(rows: list[Row]) -> Row:
    """The mean over seeds of every metric in rows that share an epoch, `split/metric` keys alone."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0] if "/" in name}


SHOWN = ("mse", "loss", "accuracy", "gate")


def describe(metrics: Row) -> str:
    """The metrics worth a look while training."""
    metrics = {name: value for name, value in metrics.items() if name.split("/")[-1] in SHOWN}
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def report_epochs(epochs: Iterable[list[Row]], *, start: int, num_epochs: int, console: Console) -> Iterator[list[Row]]:
    """Passes on the rows of each epoch and shows them as they come: a bar with losses, or a line an epoch."""
    if console.is_terminal:
        columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[losses]}"))
        with Progress(*columns, TextColumn("eta"), TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task("epoch", completed=start, total=num_epochs, losses="")
            for rows in epochs:
                bar.update(task, completed=rows[0]["epoch"], losses=describe(mean_over_seeds(rows)))
                yield rows
        return
    began = time.perf_counter()
    width = len(str(num_epochs))
    for rows in epochs:
        seconds, began = time.perf_counter() - began, time.perf_counter()
        console.print(f"epoch {rows[0]['epoch']:>{width}}/{num_epochs}  {describe(mean_over_seeds(rows))}  {seconds:.1f} s", soft_wrap=True)
        yield rows
