"""Reports of runs that are trained: every kind of task, from configs and from one's own data."""

import json
import re

import numpy as np
import pytest

import flax_attn
from flax_attn.explore.showing import page_of
from flax_attn.page.data import weights_of
from flax_attn.runs.reading import read
from tests import tiny
from tests.page.exploring import axe_finds


def signals():
    inputs = np.random.default_rng(0).normal(size=(40, 20)).astype(np.float32)
    return inputs, np.cumsum(inputs, axis=1)


def series():
    inputs = np.random.default_rng(0).normal(size=(40, 12, 5)).astype(np.float32)
    return inputs, ["falls", "rises"] * 20


def images():
    drawn = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8)
    return drawn, ["dark", "light"] * 20


def texts():
    return [f"a {word} film" for word in ("fine", "poor") * 20], ["good", "bad"] * 20


LANGUAGE = tiny.STEPS | {"model.features": 8, "model.num_blocks": 1, "data.num_lines": 200}
SERIES = tiny.STEPS | {"model.features": 8, "data.num_train": 64, "data.num_test": 8}
TRANSFORMER = tiny.STEPS | {"model.features": 8, "model.hidden_features": 8, "model.num_blocks": 1}
RUNS = {  # config, overrides, data of one's own
    "shapes": ("shapes_attention:quick", tiny.ATTENTION | tiny.SHAPES, None),
    "lstm": ("shapes_lstm:quick", tiny.STEPS | tiny.SHAPES | {"model.features": 8}, None),
    "own_signals": ("shapes_attention:quick", tiny.ATTENTION, signals),
    "own_images": ("mnist_transformer:quick", TRANSFORMER, images),
    "own_texts": ("text_csv", tiny.TEXTS, texts),
    "reverse": ("reverse_bahdanau:quick", tiny.PAIRS | {"data.num_train": 64}, None),
    "series": ("series_input_attention:quick", SERIES, None),
    "classes_of_series": ("series_classes:quick", tiny.STEPS | {"model.features": 8}, series),
    "numbers_of_images": (
        "images_numbers:quick",
        TRANSFORMER,
        lambda: (images()[0], np.arange(40.0)),
    ),
    "names": ("names:quick", LANGUAGE, None),
    "numbers": ("numbers_words:quick", tiny.NUMBERS, None),
    "numbers_of_signals": ("numbers_shapes:quick", tiny.ATTENTION | tiny.SHAPES, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_trained_run_is_drawn_with_its_model_or_a_line(name, tmp_path, visit, no_pictures):
    config, overrides, make = RUNS[name]
    data = dict.fromkeys(("train", "test"), make()) if make else None
    run = flax_attn.train(
        config, data=data, num_epochs=1, workdir=tmp_path / "run", overrides=overrides
    )
    shown = flax_attn.show(run)
    assert shown._repr_html_().startswith('<iframe sandbox="allow-scripts"')
    path = tmp_path / "page.html"
    path.write_text(shown.html, encoding="utf-8")
    (held,) = json.loads(re.search(r'id="data">(.*?)</script>', shown.html, re.DOTALL)[1])["runs"]
    assert (held["live"] is None) == bool(held["note"])
    opened = visit(path, viewport={"width": 360, "height": 740})
    assert opened.overflows() <= 0
    assert opened.page.locator("figure.try-figure").count() == bool(held["live"])
    record = read(run.path)
    heads = sum(len(weights) for weights in weights_of(record, 0).values())
    assert opened.page.locator(".overview button").count() == heads
    if held["live"]:
        assert not (violations := axe_finds(opened.page)), violations
        assert page_of([record]) == shown.html
    bare = page_of([record], model=False)
    assert len(bare) < len(shown.html) or not held["live"]
    assert '"live":null' in bare
