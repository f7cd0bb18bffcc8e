"""Reads the directories of finished runs."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.runs.directory import read_config
from flax_attn.runs.results import Row, Summary
from flax_attn.runs.stored import ATTENTION, EXAMPLES, MEND, read_arrays, read_json, read_rows
from flax_attn.types import JsonObject


class Record(NamedTuple):
    """The content of the directory of a finished run.

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
        """Returns the rows of the seeds that did not diverge."""
        diverged = self.summary.get("diverged", {})
        return [row for row in self.rows if str(row["seed"]) not in diverged]

    @property
    def measured(self) -> str:
        """Returns the metric that the run is known by, such as `mse`."""
        return self.summary["measured"]

    @property
    def task(self) -> str:
        """Returns the name of its task, such as `signal-classes`."""
        return self.summary["task"]

    @property
    def input(self) -> str:
        """Returns the name of the input of its task, such as `signal`."""
        return self.task.partition("-")[0]

    @property
    def files(self) -> list[str]:
        """Returns the sorted SHA-256 sums of the files of its data."""
        return sorted(self.config.get("derived", {}).get("files", {}).values())

    def mean(self, metric: str) -> float:
        """Returns the mean of a test metric over the seeds; NaN where the run does not have it."""
        measured = self.summary["metrics"].get(f"test/{metric}")
        return float("nan") if measured is None else float(measured["mean"])

    @property
    def attention(self) -> dict[str, np.ndarray]:
        """Returns attention weights of the examples by name; empty for a model without attention.

        They are `(n, q, k)`, with heads or without queries.
        """
        return {
            key.removeprefix(ATTENTION): value
            for key, value in self.examples.items()
            if key.startswith(ATTENTION)
        }


def read(path: Path) -> Record:
    """Reads the directory of a finished run.

    Raises:
        UsageError: it is not a run directory, the run is not finished, or its files are damaged.
    """
    config = read_config(path)
    if not (path / "summary.json").exists():
        raise UsageError(
            f"the run in {path} is not finished; run the command that made it again, and it goes on"
        )
    try:
        summary: Summary = read_json(path / "summary.json", Summary)
        rows = read_rows(path)
        check_rows(summary, rows)
        arrays = read_arrays(path / EXAMPLES)
    except UsageError:
        raise
    except FileNotFoundError as error:
        raise UsageError(
            f"the run in {path} has lost its {Path(error.filename).name}; run the command that "
            f"made it again, and it goes on"
        ) from None
    except ValueError as error:
        raise UsageError(f"the run in {path} is damaged ({one_line(error)}); {MEND}") from error
    return Record(path.resolve().name, path, config, rows, arrays, summary)


def check_rows(summary: Summary, rows: list[Row]) -> None:
    """Raises a ValueError unless there is a row for each epoch and seed, as after a cut file."""
    every = [(epoch, seed) for epoch in range(summary["epochs"] + 1) for seed in summary["seeds"]]
    if [(row.get("epoch"), row.get("seed")) for row in rows] != every:
        raise ValueError("its metrics do not fit its summary")


def curve(rows: list[Row], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps `(epochs,)` and values `(seeds, epochs)` of a metric.

    They are of the epochs that have the metric, and empty where none has.
    """
    rows = [row for row in rows if metric in row]
    seeds = sorted({row["seed"] for row in rows})
    steps = [row["step"] for row in rows if row["seed"] == seeds[0]]
    return np.array(steps), np.array(
        [[row[metric] for row in rows if row["seed"] == seed] for seed in seeds]
    )


def late_median(rows: list[Row], metric: str, epochs: int = 10) -> float:
    """Returns the median of a metric over the last epochs and all seeds.

    One lucky epoch does not make this figure.
    """
    return float(
        np.median(curve([row for row in rows if row["epoch"] > 0], metric)[1][:, -epochs:])
    )
