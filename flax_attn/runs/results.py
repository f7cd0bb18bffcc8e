"""The results of a run: the schemas of its JSON files, and what scores on the device become there.

Scores are an array over seeds for each metric of each split.
"""

import math
from collections.abc import Iterable
from typing import Annotated, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from flax_attn.errors import UsageError
from flax_attn.types import JsonObject, Tree

SPLITS = ("train", "valid", "test")
# arrays (seeds,) by split and metric; to name their type would import JAX
Scores = dict[str, dict[str, Tree]]
Row = dict[str, int | float]  # the epoch, the seed, the step, and every metric
Natural = Annotated[int, Meta(ge=0)]


class Measure(TypedDict):
    """A metric of several seeds, with the deviation of the sample, 0 for one seed."""

    mean: float
    std: float
    values: list[float]


class Interval(TypedDict):
    """A mean over test examples, with the ends of its interval of 95 %."""

    mean: float
    low: float
    high: float


class Beside(TypedDict):
    """What another model reaches, and how much better than it the run is; above 0 is better.

    `about` says what the other model can compute, where it is a twin of the run.
    """

    name: str
    mean: float
    gain: Interval
    about: NotRequired[str]


class Comparison(TypedDict):
    """A metric of a run, the number of its test examples, and other models beside it."""

    metric: str
    examples: Natural
    run: Interval
    beside: list[Beside]


class Summary(TypedDict):
    """The content of `summary.json`.

    Attributes:
        config, task, model: their names.
        parameters: of one seed.
        seeds: those that were trained.
        epochs: the last one.
        stopped: whether every seed stopped before `num_epochs`.
        steps: the most that a seed has trained.
        train_seconds: of all tries together.
        measured: the metric that the run is known by, such as `mse`.
        metrics: by `split/metric`.
        diverged: the epoch of each seed whose numbers became infinite or NaN.
        classes: precision, recall, F1 and number of examples of each class.
        comparisons: the test figures with their intervals, and simple models beside them.
        signatures: the settings of sacrebleu for translations.
        induction_head: of language models the block and the head that does most induction.
        left_out: attention weights that were too large for `examples.npz`.
    """

    config: str
    task: str
    model: str
    parameters: Natural
    seeds: list[Natural]
    epochs: Natural
    stopped: bool
    steps: Natural
    train_seconds: float
    measured: str
    metrics: dict[str, Measure]
    diverged: NotRequired[dict[str, dict[str, Natural]]]
    classes: NotRequired[dict[str, dict[str, float]]]
    comparisons: NotRequired[list[Comparison]]
    signatures: NotRequired[list[str]]
    induction_head: NotRequired[str]
    left_out: NotRequired[list[str]]


class StoredConfig(TypedDict):
    """The content of `config.json`, as far as it is read without the classes that it names.

    `derived` has facts about the data, and the machine that the run began on.
    """

    name: str
    num_epochs: Natural
    model: JsonObject
    data: JsonObject
    derived: NotRequired[JsonObject]


def flat_scores(scores: Scores) -> dict[str, np.ndarray]:
    """Returns scores by `split/metric`, in the order of the splits, which jax does not keep."""
    return {
        f"{split}/{name}": np.asarray(values)
        for split in SPLITS
        if split in scores
        for name, values in scores[split].items()
    }


def metric_rows(epoch: int, counts: dict[str, np.ndarray], scores: Scores) -> list[Row]:
    """Makes one row a seed: the epoch, the seed, the step, and every metric as `split/metric`.

    `counts` has `seed` and `step`, `(seeds,)` each.
    """
    flat = flat_scores(scores)
    return [
        {"epoch": epoch, "seed": int(seed), "step": int(step)}
        | {name: float(values[i]) for name, values in flat.items()}
        for i, (seed, step) in enumerate(zip(counts["seed"], counts["step"]))
    ]


def repeat_last(rows: list[Row], stopped: np.ndarray, before: list[Row]) -> list[Row]:
    """Returns the rows of an epoch, where a seed that has stopped has its last row again."""
    return [
        last | {"epoch": row["epoch"]} if done else row
        for row, last, done in zip(rows, before[-len(rows) :], stopped)
    ]


def finite_seeds(rows: list[Row]) -> np.ndarray:
    """Returns which rows have finite numbers alone, `(seeds,)`."""
    return np.array([all(math.isfinite(value) for value in row.values()) for row in rows])


def check_finite(rows: list[Row]) -> None:
    """Raises a UsageError that names the first metric which is not a finite number."""
    for row in rows:
        for name, value in row.items():
            if not math.isfinite(value):
                raise UsageError(
                    f"expected a finite loss, but {name} is {value} in epoch {row['epoch']} of "
                    f"seed {row['seed']}; "
                    "start another run with a lower learning_rate or smaller numbers in the model "
                    "(checkpoints of earlier epochs are kept)"
                )


def summarize(prefix: str, scores: Scores, seeds: list[int]) -> dict[str, Measure]:
    """Returns the measures over seeds, given their indices, by `prefix + split/metric`."""
    return {
        prefix + name: summarize_values(values[seeds])
        for name, values in flat_scores(scores).items()
    }


def summarize_values(values: Iterable[Tree]) -> Measure:
    """Returns mean, deviation and values of one metric."""
    numbers = [float(value) for value in values]
    std = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return {"mean": float(np.mean(numbers)), "std": std, "values": numbers}
