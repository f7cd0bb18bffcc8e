"""What a terminal and a log tell of a training while it runs."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from flax_attn.commands import progress
from flax_attn.experiment.running import Steps

ROWS = [
    {"epoch": 2, "seed": 0, "step": 8, "train/loss": 1.0, "valid/accuracy": 0.5, "test/mse": 0.1},
    {"epoch": 2, "seed": 1, "step": 8, "train/loss": 2.0, "valid/accuracy": 0.7, "test/mse": 0.1},
]


def test_metrics_are_means_over_seeds():
    """The number of the epoch, the seed and the step are no metrics; the test comes at the end."""
    means = progress.mean_over_seeds(ROWS)
    assert means == pytest.approx({"train/loss": 1.5, "valid/accuracy": 0.6})


def test_only_what_is_worth_a_look_is_told():
    shown = {"train/mse": 0.123456, "test/mae": 2, "test/f1": 1, "test/gate": 1 / 3, "loss": 5}
    said = progress.describe(shown)
    assert said == "train/mse 0.1235  test/mae 2  test/gate 0.3333  loss 5"


def clock(monkeypatch, *times):
    moments = iter(times)
    own = SimpleNamespace(perf_counter=lambda: next(moments))
    monkeypatch.setattr(progress, "time", own)


def test_a_log_has_a_line_an_epoch(monkeypatch):
    """Its seconds are those since the line before."""
    clock(monkeypatch, 10.0, 12.5, 13.5)
    console = Console(file=io.StringIO(), width=40)
    with progress.shown(100, console) as shown:
        assert shown.on_steps is None
        for _ in range(2):
            shown.on_epoch(ROWS)
    said = "epoch   2/100  train/loss 1.5  valid/accuracy 0.6"
    assert console.file.getvalue().splitlines() == [f"{said}  2.5 s", f"{said}  1.0 s"]


def test_a_bar_tells_the_epoch_that_runs_its_metrics_and_the_speed(monkeypatch):
    clock(monkeypatch, 0.0, 2.0, 4.0)
    bars = []

    class Bar(progress.Progress):
        def __init__(self, *columns, **options):
            super().__init__(*columns, **options, auto_refresh=False)
            bars.append(self)

    monkeypatch.setattr(progress, "Progress", Bar)
    console = Console(file=io.StringIO(), width=150, force_terminal=True)
    with progress.shown(4, console) as shown:
        (bar,) = bars
        assert not bar.tasks  # it comes with the first steps
        shown.on_steps(Steps(1, 5, 20, {"loss": 3.0, "confusion": 1.0}))
        (task,) = bar.tasks
        assert (task.total, task.completed, task.fields["epoch"]) == (4, 0.25, 1)
        # a run that goes on has taken its first steps before
        assert (task.fields["metrics"], task.fields["speed"]) == ("train/loss 3", "")
        shown.on_steps(Steps(2, 10, 20, {"loss": 2.0}))
        assert (task.completed, task.fields["epoch"]) == (1.5, 2)
        assert task.fields["speed"] == "  12.5 steps/s"
        shown.on_epoch(ROWS)
        assert (task.completed, task.fields["epoch"]) == (2, 2)
        assert task.fields["metrics"] == "train/loss 1.5  valid/accuracy 0.6"
