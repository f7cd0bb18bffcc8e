"""Reading run directories: everything is checked once, before it is used."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.files import open_arrays
from flax_attn.runs import examples, metrics_log, sums, untrusted
from flax_attn.runs.directory import read_whole
from flax_attn.runs.results import Row, Summary
from flax_attn.runs.untrusted import MEND
from flax_attn.types import JsonObject

DAMAGED = "the run in {} is damaged"


class Record(NamedTuple):
    """What the directory of a finished run holds.

    `rows` has one row per epoch and seed, `examples` the kept test examples.

    The name is that of the directory.
    """

    name: str
    path: Path
    config: JsonObject
    rows: list[Row]
    examples: dict[str, np.ndarray]
    summary: Summary

    @property
    def sound_rows(self) -> list[Row]:
        """The rows of the seeds that did not diverge."""
        diverged = self.summary.get("diverged", {})
        return [row for row in self.rows if str(row["seed"]) not in diverged]

    @property
    def measured(self) -> str:
        """The metric that the run is known by, such as `mse`."""
        return self.summary["measured"]

    @property
    def kind(self) -> str:
        """The name of its kind of task, such as `signals`."""
        return self.summary["pictures"]

    @property
    def files(self) -> list[str]:
        """The SHA-256 sums of the files that it was trained and tested on, sorted."""
        return sorted(self.config.get("derived", {}).get("files", {}).values())

    def mean(self, metric: str) -> float:
        """Returns the mean of a test metric over the seeds; NaN where the run does not have it."""
        measured = self.summary["metrics"].get(f"test/{metric}")
        return float("nan") if measured is None else float(measured["mean"])

    @property
    def attention(self) -> dict[str, np.ndarray]:
        """Attention weights of the examples by name; empty for a model without attention.

        They are `(n, q, k)`, with heads or without queries.
        """
        return {
            key.removeprefix("attention/"): value
            for key, value in self.examples.items()
            if key.startswith("attention/")
        }


def read(path: Path, form_of: Callable[[str], examples.Form]) -> Record:
    """Reads the directory of a finished run.

    Args:
        path: the directory.
        form_of: gives the form of the examples of a kind of task, or raises a ValueError.

    Raises:
        UsageError: it is not a run directory, the run is not finished, or its files are damaged.
    """
    config = read_whole(path)
    if "summary.json" not in sums.read(path):
        raise UsageError(
            f"the run in {path} is not finished; run the command that made it again, and it goes on"
        )
    try:
        summary: Summary = untrusted.read_json(path, "summary.json", Summary)
        rows = metrics_log.read(path)
        with (
            untrusted.open_file(path, "examples.npz", 2 * examples.LARGEST) as file,
            open_arrays(path / "examples.npz", file) as stored,
        ):
            arrays = dict(stored)
        check_together(config, summary, rows)
        classes = config.get("derived", {}).get("classes")
        examples.check(form_of(summary["pictures"]), arrays, classes, config["model"])
    except FileNotFoundError as error:
        raise UsageError(
            f"the run in {path} has lost its {Path(error.filename).name}; run the command that "
            f"made it again, and it goes on"
        ) from None
    except (OSError, ValueError) as error:
        reason = one_line(error).partition(";")[0]
        raise UsageError(f"{DAMAGED.format(path)} ({reason}); {MEND}") from error
    return Record(path.resolve().name, path, config, rows, arrays, summary)


def check_together(config: JsonObject, summary: Summary, rows: list[Row]) -> None:
    """Raises a ValueError unless a summary is of its config's epochs, with every row and metric."""
    seeds, epochs, measured = summary["seeds"], summary["epochs"], f"test/{summary['measured']}"
    diverged = summary.get("diverged", {})
    if len(rows) != (epochs + 1) * len(seeds):
        raise ValueError("its metrics do not fit its summary")
    every = [(epoch, seed) for epoch in range(epochs + 1) for seed in seeds]
    if [(row["epoch"], row["seed"]) for row in rows] != every:
        raise ValueError("its metrics do not fit its summary")
    if not all(measured in row for row in rows) or measured not in summary["metrics"]:
        raise ValueError(f"{measured} is missing")
    is_long = epochs == config["num_epochs"]
    if not is_long and not (summary["stopped"] and epochs < config["num_epochs"]):
        raise ValueError("its summary does not fit its config")
    if len(set(seeds)) != len(seeds) or not diverged.keys() < set(map(str, seeds)):
        raise ValueError("its seeds do not fit together")
    num_sound = len(seeds) - len(diverged)
    for name, metric in summary["metrics"].items():
        if len(metric["values"]) != (1 if name.startswith("ensemble/") else num_sound):
            raise ValueError(f"{name} does not fit its seeds")


def curve(rows: list[Row], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps `(epochs,)` and values `(seeds, epochs)` of a metric, over the epochs that have it.

    Both are empty where none has.
    """
    rows = [row for row in rows if metric in row]
    seeds = sorted({row["seed"] for row in rows})
    steps = (
        np.array([row["step"] for row in rows if row["seed"] == seeds[0]])
        if seeds
        else np.array([])
    )
    return steps, np.array([[row[metric] for row in rows if row["seed"] == seed] for seed in seeds])


def late_median(rows: list[Row], metric: str, epochs: int = 10) -> float:
    """The median of a metric over the last epochs and all seeds.

    One lucky epoch does not make this figure.
    """
    return float(
        np.median(curve([row for row in rows if row["epoch"] > 0], metric)[1][:, -epochs:])
    )
