"""What a page says first of a run: what its model does, and how well, in units of the data."""

from pathlib import Path

import numpy as np
import pytest
from flax_attn.tasks.images import ImageClasses
from flax_attn.tasks.series import Series
from flax_attn.tasks.signals import Signals
from flax_attn.tasks.texts import TextClasses

from flax_attn.runs.reading import Record
from flax_attn.tasks.language import LanguageModel
from flax_attn.tasks.translation import PairsOfTexts


def run_of(metrics, data="own", derived=(), **examples):
    measured = {f"test/{name}": {"mean": value, "std": 0.0} for name, value in metrics.items()}
    data = data if isinstance(data, dict) else {"name": data}
    config = {"data": data, "derived": dict(derived)}
    return Record("run", Path("run"), config, [], examples, {"metrics": measured})


CLASSES = {"classes": ["a", "b", "c"]}
SIGNAL = np.array([[[0.0], [12.0]]])
RIGHT = {
    "a probability is e to minus the loss": (
        LanguageModel,
        run_of({"loss": np.log(4)}),
        "gives the right next token a probability of 25 %, a loss of 1.39, on test text",
    ),
    "an error of series is the root of the mean square": (
        Series,
        run_of({"mse": 0.04}, inputs=np.zeros((2, 5, 3))),
        "predicts one series from 3, off by 0.2 of its standard deviation",
    ),
    "an error of signals is in their unit": (
        Signals,
        run_of({"mse": 0.04}, {"task": "by_shape"}, {"std": 10.0}, targets=SIGNAL),
        "sets both shapes of a kind to their mean height, with an error of 2 for heights up to 12",
    ),
    "other shapes are levelled by side": (
        Signals,
        run_of({"mse": 0.25}, {"task": "by_location"}, {"std": 1.0}, targets=SIGNAL),
        "sets the two shapes on each side to their mean height, with an error of 0.5 for heights "
        "up to 12",
    ),
    "own signals have no shapes": (
        Signals,
        run_of({"mse": 0.25}, {"name": "own"}, {"std": 1.0}, targets=SIGNAL),
        "turns signals into others, with an error of 0.5 for heights up to 12",
    ),
    "images": (
        ImageClasses,
        run_of({"accuracy": 0.9876}, derived=CLASSES),
        "names the right one of 3 classes for 98.8 % of the test images",
    ),
    "texts": (
        TextClasses,
        run_of({"accuracy": 0.5}, derived=CLASSES),
        "names the right one of 3 classes for 50 % of the test texts",
    ),
    "a language is measured by BLEU": (
        PairsOfTexts,
        run_of({"bleu": 31.234, "exact_match": 0.1}),
        "translates with a BLEU of 31.2 on test sentences",
    ),
    "dates are measured by what is right as a whole": (
        PairsOfTexts,
        run_of({"exact_match": 0.985, "accuracy": 0.999}, "dates"),
        "writes dates in digits, 98.5 % of the test without a mistake",
    ),
    "letters": (
        PairsOfTexts,
        run_of({"exact_match": 1.0}, "reverse"),
        "writes words in reverse, 100 % of the test without a mistake",
    ),
    "own pairs": (
        PairsOfTexts,
        run_of({"exact_match": 0.5}, "own"),
        "writes answers, 50 % of the test without a mistake",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_sentence_says_how_well_the_model_does(name):
    kind, run, expected = RIGHT[name]
    assert kind.sentence(run) == expected


def test_what_a_model_does_is_said_without_its_score():
    assert LanguageModel.does(run_of({})) == "continues a text"
    assert PairsOfTexts.does(run_of({"bleu": 1.0})) == "translates"
    assert ImageClasses.does(run_of({}, derived=CLASSES)) == "tells 3 classes of images apart"
    assert TextClasses.does(run_of({}, derived=CLASSES)) == "tells 3 classes of texts apart"


@pytest.mark.parametrize(("data", "first"), [("mnist", 0.0), ("own", 1.0)])
def test_an_image_is_shown_as_ink(data, first):
    """MNIST has light ink, which is shown black; of photographs the dark is."""
    images = np.array([[[0.0, 1.0]], [[0.5, 0.5]]], np.float32)
    held = {"inputs": images, "predictions": np.full((2, 3), 1 / 3), "targets": np.array([2, 0])}
    example = ImageClasses.example(run_of({}, data, **held), 0)
    from flax_attn.tasks.replies import pack

    assert example["image"] == pack(np.array([[first, 1 - first]]))
    assert (example["target"], example["predictions"]) == (2, [0.33333] * 3)
