"""From scores on the device to the rows and summaries of a run.

Scores are an array over seeds for each metric of each split.
"""

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Array

from flax_attn.errors import UsageError
from flax_attn.types import JsonObject, Tree

SPLITS = ("train", "valid", "test")

Scores = dict[str, dict[str, Array]]  # by split and metric, each (seeds,)
Row = JsonObject


def flat_scores(scores: Scores) -> dict[str, np.ndarray]:
    """Scores by `split/metric`, in the order of the splits, which jax does not keep."""
    return {
        f"{split}/{name}": np.asarray(values)
        for split in SPLITS
        if split in scores
        for name, values in scores[split].items()
    }


def metric_rows(epoch: int, states: Tree, scores: Scores) -> list[Row]:
    """One row a seed: the epoch, the seed, the step, and every metric as `split/metric`."""
    flat = flat_scores(scores)
    return [
        {"epoch": epoch, "seed": int(seed), "step": int(step)}
        | {name: float(values[i]) for name, values in flat.items()}
        for i, (seed, step) in enumerate(zip(np.asarray(states.seed), np.asarray(states.step)))
    ]


def repeat_stopped(rows: list[Row], stopped: np.ndarray, history: list[Row]) -> list[Row]:
    """The rows of an epoch, where a seed that had stopped before has its last row again."""
    last = history[-len(rows) :]
    return [
        before | {"epoch": row["epoch"]} if done else row
        for row, before, done in zip(rows, last, stopped)
    ]


def check_finite(rows: list[Row]) -> None:
    """Raises a UsageError that names the first metric which is not a finite number."""
    for row in rows:
        for name, value in row.items():
            if not math.isfinite(value):
                raise UsageError(
                    f"expected a finite loss, but {name} is {value} in epoch {row['epoch']} of "
                    f"seed {row['seed']}; "
                    "start another run with a lower learning_rate or smaller numbers in the model "
                    "(earlier checkpoints are kept)"
                )


def summarize(prefix: str, scores: Scores) -> JsonObject:
    """Mean, deviation and values over the seeds, by `prefix + split/metric`.

    The deviation is that of the sample, 0 for one seed.
    """
    return {prefix + name: summarize_values(values) for name, values in flat_scores(scores).items()}


def summarize_values(values: Iterable[float | np.floating | Array]) -> JsonObject:
    """Mean, deviation and values of one metric."""
    numbers = [float(value) for value in values]
    std = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return {"mean": float(np.mean(numbers)), "std": std, "values": numbers}
