"""Reading run directories."""

import json
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flax_attn.errors import UsageError, one_line
from flax_attn.files import sha256
from flax_attn.runs import sums
from flax_attn.runs.directory import read_config
from flax_attn.runs.results import Row, Summary
from flax_attn.runs.sums import MEND
from flax_attn.types import JsonObject

DAMAGED = "the run in {} is damaged"
# of runs that do not record it
PICTURES = {"shapes": "signals", "mnist": "images", "input_series": "series"}
PICTURES |= dict.fromkeys(("ag_news", "sst", "text_csv"), "texts")
PICTURES |= dict.fromkeys(("reverse", "dates", "multi30k", "pairs"), "translation")


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
        return measured_by(self.config, self.summary)

    @property
    def pictures(self) -> str:
        """The kind under which its pictures are drawn. Older runs do not record it."""
        return self.summary.get("pictures") or PICTURES[self.config["data"]["name"]]

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


def read(path: Path) -> Record:
    """Reads the directory of a finished run.

    Raises:
        UsageError: it is not a run directory, the run is not finished, or its files are damaged.
    """
    config, listed = read_config(path), sums.read(path)
    if listed and "summary.json" not in listed:
        raise UsageError(
            f"the run in {path} is not finished; run the command that made it again, and it goes on"
        )
    try:
        summary = json.loads((path / "summary.json").read_text())
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        sums.check(path)
        with np.load(path / "examples.npz") as archive:
            examples = dict(archive)
    except FileNotFoundError as error:
        what = (
            "is not finished"
            if "summary" in str(error.filename)
            else f"has lost its {Path(error.filename).name}"
        )
        raise UsageError(
            f"the run in {path} {what}; run the command that made it again, and it goes on"
        ) from None
    except UsageError:
        raise
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{DAMAGED.format(path)} ({one_line(error)}); {MEND}") from error
    try:
        if not _is_whole(config, summary, rows, examples) or not _has_files(path, summary):
            raise UsageError(
                f"{DAMAGED.format(path)} (what it holds does not fit together); {MEND}"
            )
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{DAMAGED.format(path)} ({one_line(error)} is missing or of another kind); {MEND}"
        ) from error
    return Record(path.resolve().name, path, config, rows, examples, summary)


def measured_by(config: JsonObject, summary: Summary) -> str:
    """The metric that a run is known by. Older runs do not record it."""
    older = "mse" if config["task"] == "regression" else "accuracy"
    return summary.get("measured", older)


def _has_files(path: Path, summary: Summary) -> bool:
    """Whether the files that the summary knows are there as they were written."""
    files = summary.get("files", {}).items()  # of runs without a list of sums
    return all((path / name).is_file() and sha256(path / name) == known for name, known in files)


def _is_whole(
    config: JsonObject,
    summary: Summary,
    rows: list[Row],
    examples: dict[str, np.ndarray],
) -> bool:
    """Whether the summary is of the config's epochs, with every row and every figure shown."""
    every = [(epoch, seed) for epoch in range(summary["epochs"] + 1) for seed in summary["seeds"]]
    measured = f"test/{measured_by(config, summary)}"
    num_sound = len(summary["seeds"]) - len(summary.get("diverged", {}))
    known = {
        "config": str,
        "model": str,
        "parameters": int,
        "steps": int,
        "train_seconds": (int, float),
    }
    return (
        (
            summary["epochs"] == config["num_epochs"]
            or (summary["stopped"] is True and summary["epochs"] < config["num_epochs"])
        )
        and all(isinstance(summary[key], kind) for key, kind in known.items())
        and [(row["epoch"], row["seed"]) for row in rows] == every
        and all(measured in row and "step" in row for row in rows)
        and all(
            len(metric["values"]) == (1 if name.startswith("ensemble/") else num_sound)
            and {"mean", "std"} <= set(metric)
            for name, metric in summary["metrics"].items()
        )
        and measured in summary["metrics"]
        and len(examples["inputs"]) == len(examples["predictions"]) == len(examples["targets"])
    )


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
