"""Reading run directories."""

import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.run_directory import read_config

DAMAGED = "the run in {} is damaged"
MEND = "run the command that made it again to mend it"


class Run(NamedTuple):
    """What the directory of a finished run holds: config and summary, one row per epoch and seed, and the kept test examples.

    The name is that of the directory.
    """

    name: str
    path: Path
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    examples: dict[str, np.ndarray]
    summary: dict[str, Any]

    @property
    def attention(self) -> dict[str, np.ndarray]:
        """Attention weights of the examples by name, `(n, q, k)`, with heads or without queries; empty for a model without attention."""
        return {key.removeprefix("attention/"): value for key, value in self.examples.items() if key.startswith("attention/")}


def read(path: Path) -> Run:
    """Reads the directory of a finished run.

    Raises:
        UsageError: it is not a run directory, the run is not finished, or its files are damaged.
    """
    config = read_config(path)
    try:
        summary = json.loads((path / "summary.json").read_text())
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        with np.load(path / "examples.npz") as archive:
            examples = dict(archive)
    except FileNotFoundError as error:
        what = "is not finished" if "summary" in str(error.filename) else f"has lost its {Path(error.filename).name}"
        raise UsageError(f"the run in {path} {what}; run the command that made it again, and it goes on") from None
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{DAMAGED.format(path)} ({one_line(error)}); {MEND}") from error
    try:
        if not _is_whole(config, summary, rows, examples) or any(digest(path / name) != sum for name, sum in summary["files"].items()):
            raise UsageError(f"{DAMAGED.format(path)} (what it holds does not fit together); {MEND}")
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(f"{DAMAGED.format(path)} ({one_line(error)} is missing or of another kind); {MEND}") from error
    return Run(path.resolve().name, path, config, rows, examples, summary)


def digest(path: Path) -> str:
    """The SHA-256 of a file, or nothing where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _is_whole(config: dict[str, Any], summary: dict[str, Any], rows: list[dict[str, Any]], examples: dict[str, np.ndarray]) -> bool:
    """Whether the summary is of the config's epochs, with one row an epoch and seed and every figure that is shown."""
    every = [(epoch, seed) for epoch in range(summary["epochs"] + 1) for seed in summary["seeds"]]
    measured = f"test/{score_of(config)}"
    known = {"config": str, "model": str, "parameters": int, "steps": int, "train_seconds": (int, float)}
    return (
        (summary["epochs"] == config["num_epochs"] or (summary["stopped"] is True and summary["epochs"] < config["num_epochs"]))
        and all(isinstance(summary[key], kind) for key, kind in known.items())
        and [(row["epoch"], row["seed"]) for row in rows] == every
        and all(measured in row and "step" in row for row in rows)
        and all(
            len(metric["values"]) == (1 if name.startswith("ensemble/") else len(summary["seeds"])) and {"mean", "std"} <= set(metric)
            for name, metric in summary["metrics"].items()
        )
        and measured in summary["metrics"]
        and len(examples["inputs"]) == len(examples["predictions"]) == len(examples["targets"])
    )


def score_of(config: dict[str, Any]) -> str:
    """The metric that a run is known by: the error of regression, the accuracy of classes, or of the next token in translation."""
    return "mse" if config["task"] == "regression" else "accuracy"


def curve(rows: list[dict[str, Any]], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps `(epochs,)` and values `(seeds, epochs)` of a metric, over the epochs that have it; empty where none has."""
    rows = [row for row in rows if metric in row]
    seeds = sorted({row["seed"] for row in rows})
    steps = np.array([row["step"] for row in rows if row["seed"] == seeds[0]]) if seeds else np.array([])
    return steps, np.array([[row[metric] for row in rows if row["seed"] == seed] for seed in seeds])


def late_median(rows: list[dict[str, Any]], metric: str, epochs: int = 10) -> float:
    """The median of a metric over the last epochs of training and all seeds: a figure that one lucky epoch does not make."""
    return float(np.median(curve([row for row in rows if row["epoch"] > 0], metric)[1][:, -epochs:]))
