"""Progress on a terminal as a live bar, elsewhere as one line an epoch."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flax_attn.runs.results import Row

SHOWN = ("mse", "loss", "accuracy", "gate")


@contextlib.contextmanager
def shown(num_epochs: int, console: Console) -> Iterator[Callable[[list[Row]], None]]:
    """Gives a function that takes the rows of each epoch as it ends, and shows them."""
    if not console.is_terminal:
        yield _lines(num_epochs, console)
        return
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.fields[losses]}"),
    )
    bar = Progress(*columns, TextColumn("eta"), TimeRemainingColumn(), console=console)
    with contextlib.ExitStack() as stack:
        task = None

        def show(rows: list[Row]) -> None:
            nonlocal task
            epoch = rows[0]["epoch"]
            if task is None:  # the bar comes with the first epoch, below what is said before it
                stack.enter_context(bar)
                task = bar.add_task("epoch", completed=int(epoch) - 1, total=num_epochs, losses="")
            bar.update(task, completed=epoch, losses=describe(mean_over_seeds(rows)))

        yield show


def _lines(num_epochs: int, console: Console) -> Callable[[list[Row]], None]:
    """A function that prints a line for the rows of an epoch."""
    last, width = [time.perf_counter()], len(str(num_epochs))

    def show(rows: list[Row]) -> None:
        now = time.perf_counter()
        seconds, last[0] = now - last[0], now
        metrics = describe(mean_over_seeds(rows))
        epoch = rows[0]["epoch"]
        console.print(
            f"epoch {epoch:>{width}}/{num_epochs}  {metrics}  {seconds:.1f} s", soft_wrap=True
        )

    return show


def mean_over_seeds(rows: list[Row]) -> Row:
    """The mean over seeds of every metric `split/metric`, in rows of one epoch."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0] if "/" in name}


def describe(metrics: Row) -> str:
    """The metrics worth a look while training."""
    shown = {name: value for name, value in metrics.items() if name.split("/")[-1] in SHOWN}
    return "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
