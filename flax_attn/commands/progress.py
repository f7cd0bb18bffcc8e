"""Progress on a terminal as a live bar, elsewhere as one line an epoch."""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from flax_attn.runs.results import Row
from flax_attn.types import Options

if TYPE_CHECKING:
    from flax_attn.experiment.running import OnEpoch, OnSteps, Steps

SHOWN = ("mse", "mae", "loss", "accuracy", "gate")


class Shown(NamedTuple):
    """Functions that show a training, of the rows of an epoch and on a terminal of its steps."""

    on_epoch: "OnEpoch"
    on_steps: "OnSteps | None"


@contextlib.contextmanager
def shown(num_epochs: int, console: Console) -> Iterator[Shown]:
    """Shows a training while it runs. Its length is `num_epochs`."""
    with contextlib.ExitStack() as stack:
        is_live = console.is_terminal
        yield _bar(num_epochs, console, stack) if is_live else _lines(num_epochs, console)


def _bar(num_epochs: int, console: Console, stack: contextlib.ExitStack) -> Shown:
    """Shows a bar of all epochs with the newest metrics, the steps a second and the time left."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}/{task.total:.0f}"),
        BarColumn(),
        TextColumn("{task.fields[metrics]}{task.fields[speed]}"),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console)
    last = {"time": time.perf_counter(), "step": 0.0}

    def show(epoch: int, done: float, fields: Options) -> None:
        if not bar.tasks:  # the bar comes with the first steps, below what is said before it
            stack.enter_context(bar)
            bar.add_task("epoch", total=num_epochs, epoch=epoch, metrics="", speed="")
        bar.update(bar.tasks[0].id, completed=epoch - 1 + done, epoch=epoch, **fields)

    def on_steps(steps: "Steps") -> None:
        now, step = time.perf_counter(), (steps.epoch - 1) * steps.of + steps.done
        speed = (step - last["step"]) / (now - last["time"])
        # a run that goes on has taken its first steps before
        told = {"speed": f"  {speed:.3g} steps/s"} if last["step"] else {}
        last.update(time=now, step=step)
        metrics = describe({f"train/{name}": value for name, value in steps.metrics.items()})
        show(steps.epoch, steps.done / steps.of, {"metrics": metrics} | told)

    def on_epoch(rows: list[Row]) -> None:
        show(int(rows[0]["epoch"]), 1.0, {"metrics": describe(mean_over_seeds(rows))})

    return Shown(on_epoch, on_steps)


def _lines(num_epochs: int, console: Console) -> Shown:
    """Prints a line for the rows of an epoch."""
    last, width = [time.perf_counter()], len(str(num_epochs))

    def show(rows: list[Row]) -> None:
        now = time.perf_counter()
        seconds, last[0] = now - last[0], now
        metrics, epoch = describe(mean_over_seeds(rows)), f"{rows[0]['epoch']:>{width}}"
        line = f"epoch {epoch}/{num_epochs}  {metrics}  {seconds:.1f} s"
        console.print(line, soft_wrap=True)

    return Shown(show, None)


def mean_over_seeds(rows: list[Row]) -> Row:
    """Returns the mean over seeds of every metric of training and validation, of one epoch.

    The test metrics come once, at the end: watching them in each epoch means choosing by them.
    """
    names = [name for name in rows[0] if name.startswith(("train/", "valid/"))]
    return {name: sum(row[name] for row in rows) / len(rows) for name in names}


def describe(metrics: Row) -> str:
    """Formats the metrics worth a look while training."""
    shown = {name: value for name, value in metrics.items() if name.split("/")[-1] in SHOWN}
    return "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
