"""What a page and the terminal say of a run: what its model does, and how well."""

from pathlib import Path

import numpy as np
import pytest

from flax_attn.runs.reading import Record
from flax_attn.tasks import TASKS
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
SENTENCES = [  # the task, a run, how its sentence begins, and figures in it
    ("tokens-next", run_of({"loss": np.log(4)}), "continues a text", ("25 %", "1.39")),
    ("signal-signal", run_of({"mse": 0.04}, {"task": "by_shape"}, units(10.0), **SIGNALS),
     "sets both shapes of a kind", (" 2 ", "12")),
    ("signal-signal", run_of({"mse": 0.25}, {"task": "by_location"}, **SIGNALS),
     "sets the two shapes on each side", ("0.5", "12")),
    ("signal-signal", run_of({"mse": 0.04}, SERIES_DATA, **SERIES),
     "predicts one series from 3", ("0.2",)),
    ("signal-classes", run_of({"accuracy": 0.5}, derived=CLASSES),
     "tells 3 classes of signals apart", ("50 %", "3 classes")),
    ("image-classes", run_of({"accuracy": 0.9876}, derived=CLASSES),
     "tells 3 classes of images apart", ("98.8 %", "test images")),
    ("text-classes", run_of({"accuracy": 0.5}, derived=CLASSES),
     "tells 3 classes of texts apart", ("50 %", "test texts")),
    ("signal-number", run_of({"mae": 0.123}), "predicts a number from a signal", ("0.12",)),
    ("image-number", run_of({"mae": 2.0}), "predicts a number from an image", ("2",)),
    ("text-number", run_of({"mae": 2.0}), "predicts a number from a text", ("2",)),
    ("text-text", run_of({"bleu": 31.234} | HALF), "translates", ("BLEU of 31.2",)),
    ("text-text", run_of({"exact_match": 0.985}, "dates"), "writes dates in digits", ("98.5 %",)),
    ("text-text", run_of(HALF, "reverse"), "writes words in reverse", ("50 %",)),
    ("text-text", run_of(HALF), "writes answers", ("50 %",)),
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


@pytest.mark.parametrize(("data", "first"), [("mnist", 0.0), ("own", 1.0)])
def test_an_image_is_shown_as_ink(data, first):
    """MNIST has light ink, which is shown black; of photographs the dark is."""
    images = np.array([[[0.0, 1.0]], [[0.5, 0.5]]], np.float32)
    held = {"inputs": images, "predictions": np.full((2, 3), 1 / 3), "targets": np.array([2, 0])}
    task, run = TASKS["image-classes"], run_of({}, data, **held)
    example = task.input_class.example(run, 0) | task.target_class.example(run, 0)
    assert example["image"] == pack(np.array([[first, 1 - first]]))
    assert (example["target"], example["predictions"]) == (2, [0.33333] * 3)
