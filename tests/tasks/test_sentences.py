"""What a page and the terminal say of a run: what its model does, and how well."""

import re
from pathlib import Path

import numpy as np
import pytest

from flax_attn.runs.reading import Record
from flax_attn.tasks import TASKS
from flax_attn.tasks.comparison import compare
from flax_attn.tasks.replies import pack


def run_of(metrics, data="own", derived=(), task="", **examples):
    measured = {f"test/{name}": {"mean": value, "std": 0.0} for name, value in metrics.items()}
    data = data if isinstance(data, dict) else {"name": data}
    config = {"data": data, "derived": dict(derived)}
    return Record("run", Path("run"), config, [], examples, {"task": task, "metrics": measured})


def units(std):
    return {"inputs": {"mean": 0.0, "std": std}}


CLASSES, TARGETS = {"classes": ["a", "b", "c"]}, np.array([[[0.0], [12.0]]])
HALF = {"exact_match": 0.5}
SIGNALS, SERIES = {"targets": TARGETS}, {"inputs": np.zeros((2, 5, 3)), "targets": TARGETS}
SERIES_DATA = {"name": "input_series", "relevant": 0}
CONFUSED, SPREAD = np.array([[8, 0], [1, 1]]), np.array([1.0, 3.0, 5.0])
SENTENCES = [  # the task, a run, how its task begins, and figures in its sentence
    ("tokens-next", run_of({"loss": np.log(4), "accuracy": 0.28}), "continue a text",
     ("Loss 1.39", "perplexity 4", "accuracy 28 %")),
    ("signal-signal", run_of({"mse": 0.04}, {"task": "by_shape"}, units(10.0), **SIGNALS),
     "level each pair", ("RMSE 2 ", "up to 12")),
    ("signal-signal", run_of({"mse": 0.25}, {"task": "by_location"}, **SIGNALS),
     "level the two shapes on each side", ("RMSE 0.5", "12")),
    ("signal-signal", run_of({"mse": 0.04}, SERIES_DATA, **SERIES),
     "predict one series from 3", ("deviations 0.2",)),
    ("signal-classes", run_of({"accuracy": 0.5}, derived=CLASSES),
     "tell 3 classes of signals apart", ("Accuracy 50 %",)),
    ("image-classes", run_of({"accuracy": 0.9876}, derived=CLASSES, confusion=CONFUSED),
     "tell 3 classes of images apart", ("98.8 %", "most frequent class 80 %")),
    ("text-classes", run_of({"accuracy": 0.5}, derived=CLASSES),
     "tell 3 classes of texts apart", ("50 %",)),
    ("signal-number", run_of({"mae": 0.123}), "predict a number from a signal", ("error 0.12",)),
    ("image-number", run_of({"mae": 2.0}), "predict a number from an image", ("2",)),
    ("text-number", run_of({"mae": 2.0}, targets=SPREAD), "predict a number from a text",
     ("error 2", "median 1.3")),
    ("text-text", run_of({"bleu": 31.234} | HALF), "translate", ("BLEU 31.2",)),
    ("text-text", run_of({"exact_match": 0.985}, "dates"), "write dates in digits", ("98.5 %",)),
    ("text-text", run_of(HALF, "reverse"), "write words in reverse", ("50 %",)),
    ("text-text", run_of(HALF), "write answers", ("50 %",)),
]  # fmt: skip


def test_every_task_has_a_sentence():
    assert {name for name, *_ in SENTENCES} == set(TASKS)


@pytest.mark.parametrize(("name", "run", "does", "figures"), SENTENCES)
def test_a_sentence_has_the_figures_of_the_test_in_units_of_the_data(name, run, does, figures):
    run.summary["task"] = name
    assert TASKS[name].target_class.summary(run).startswith(does)
    sentence = TASKS[name].target_class.sentence(run)
    assert all(figure in sentence for figure in figures)
    assert "\n" not in sentence


def test_a_sentence_has_the_interval_and_the_best_other_model_in_the_same_units():
    task, run = TASKS["signal-signal"].target_class, SENTENCES[1][1]
    own, others = np.array([0.03, 0.05, 0.04]), {"near": np.full(3, 0.09), "far": np.ones(3)}
    scores = {name: {"mse": other} for name, other in others.items()}
    run = run._replace(summary=run.summary | {"comparisons": compare({"mse": own}, scores)})
    sentence = task.sentence(run)
    low, high = re.search(r"interval (\S+) to (\S+),", sentence).groups()
    assert float(low) < 2 < float(high)
    assert "near 3" in sentence
    assert "far" not in sentence


@pytest.mark.parametrize(("data", "first"), [("mnist", 0.0), ("own", 1.0)])
def test_an_image_is_shown_as_ink(data, first):
    """MNIST has light ink, which is shown black; of photographs the dark is."""
    images = np.array([[[0.0, 1.0]], [[0.5, 0.5]]], np.float32)
    held = {"inputs": images, "predictions": np.full((2, 3), 1 / 3), "targets": np.array([2, 0])}
    task, run = TASKS["image-classes"], run_of({}, data, **held)
    example = task.input_class.example(run, 0) | task.target_class.example(run, 0)
    assert example["image"] == pack(np.array([[first, 1 - first]]))
    assert (example["target"], example["predictions"]) == (2, [0.33333] * 3)
