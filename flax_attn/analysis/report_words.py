"""What a report says of a run in one sentence, with a number."""

import numpy as np

from flax_attn.runs.reading import Record


def sentence(run: Record) -> str:
    """What the model of a run does, and how well it does it on test data."""
    said = SENTENCES[run.pictures](run)
    seeds = len(run.summary["seeds"])
    return f"{said} (mean of {seeds} seeds)" if seeds > 1 else said


def mean_of(run: Record, metric: str) -> float:
    """The mean of a test metric over the seeds; NaN where the run does not have it."""
    measured = run.summary["metrics"].get(f"test/{metric}")
    return float("nan") if measured is None else float(measured["mean"])


def _signals(run: Record) -> str:
    error = float(np.sqrt(mean_of(run, "mse"))) * _unit(run)
    tallest = float(np.max(run.examples["targets"], initial=0))
    does = LEVELLED.get(run.config["data"].get("task"), "turns signals into others")
    return f"{does}, with an error of {error:.2g} for heights up to {tallest:.3g}"


LEVELLED = {
    "by_shape": "sets both shapes of a kind to their mean height",
    "by_location": "sets the two shapes on each side to their mean height",
}


def _unit(run: Record) -> float:
    """What an error of 1 is in the units of the data."""
    unit = run.config.get("derived", {}).get("std", 1.0)
    return float(np.mean(unit))


def _series(run: Record) -> str:
    error = float(np.sqrt(mean_of(run, "mse")))
    count = run.examples["inputs"].shape[-1]
    return f"predicts one series from {count}, off by {error:.2g} of its standard deviation"


def _classes(run: Record, what: str) -> str:
    count = len(run.config["derived"]["classes"])
    right = 100 * mean_of(run, "accuracy")
    return f"names the right one of {count} classes for {right:.3g} % of the test {what}"


def _translation(run: Record) -> str:
    metrics = run.summary["metrics"]
    if "test/bleu" in metrics:
        return f"translates with a BLEU of {mean_of(run, 'bleu'):.3g} on test sentences"
    exact = 100 * mean_of(run, "exact_match")
    return f"writes {exact:.3g} % of the test answers without a mistake"


def _language(run: Record) -> str:
    loss = mean_of(run, "loss")
    share = 100 * float(np.exp(-loss))
    said = f"gives the token that follows a probability of {share:.2g} %"
    return f"{said}, a loss of {loss:.3g}, on test text"


SENTENCES = {
    "signals": _signals,
    "images": lambda run: _classes(run, "images"),
    "texts": lambda run: _classes(run, "texts"),
    "series": _series,
    "language": _language,
    "translation": _translation,
}
