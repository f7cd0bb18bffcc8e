"""Reading run directories."""

import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flax_attn.errors import UsageError
from flax_attn.run_directory import RunDirectory, read_config


class Run(NamedTuple):
    """What a run directory holds: config and summary as JSON, one row per epoch and seed, and the kept test examples."""

    path: Path
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    examples: dict[str, np.ndarray]
    summary: dict[str, Any] | None

    @property
    def name(self) -> str:
        return self.config["name"]

    @property
    def attention(self) -> dict[str, np.ndarray]:
        """Attention weights `(n, q, k)` of the examples, by name; empty for a model that does not attend."""
        return {key.removeprefix("attention/"): value for key, value in self.examples.items() if key.startswith("attention/")}


def read(path: Path) -> Run:
    """Reads a run directory whose training is done.

    Raises:
        UsageError: it is not a run directory, the run is not finished, or its files are damaged.
    """
    config = read_config(path)
    if not (path / "examples.npz").exists():
        raise UsageError(f"the run in {path} is not finished; run train.py with --workdir={path} again, and it resumes")
    try:
        with open(path / "metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        with np.load(path / "examples.npz") as archive:
            examples = dict(archive)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"cannot read the run in {path} ({error}); remove its summary.json and run train.py again to mend it") from error
    return Run(path, config, rows, examples, RunDirectory(path).summary())


def curve(rows: list[dict[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps `(epochs,)` and values `(seeds, epochs)` of a metric, over the epochs that have it; empty where none has."""
    rows = [row for row in rows if metric in row]
    seeds = sorted({row["seed"] for row in rows})
    steps = np.array([row["step"] for row in rows if row["seed"] == seeds[0]]) if seeds else np.array([])
    return steps, np.array([[row[metric] for row in rows if row["seed"] == seed] for seed in seeds])


def late_median(rows: list[dict[str, Any]], metric: str, epochs: int = 10) -> float:
    """The median of a metric over the last epochs and all seeds: a figure that one lucky epoch does not make."""
    return float(np.median(curve(rows, metric)[1][:, -epochs:]))
