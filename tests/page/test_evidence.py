"""A report sets evidence beside the weights of its examples: what hiding a part of one does."""

import re

import numpy as np
import pytest
from scipy.stats import kendalltau

import flax_attn
from flax_attn.explore.answers import Answers
from flax_attn.explore.showing import page_of
from flax_attn.page.data import weights_of
from flax_attn.runs.reading import read
from flax_attn.tasks.replies import numbers_of
from tests import tiny
from tests.page.exploring import choose_example

pytestmark = pytest.mark.slow

MINUS = "\N{MINUS SIGN}"
LONGER = {"steps_per_epoch": 40, "learning_rate": 0.01}
SIGNALS = tiny.ATTENTION | tiny.SHAPES | LONGER
SERIES = tiny.STEPS | {"model.features": 8, "data.num_train": 64, "data.num_test": 8} | LONGER
LANGUAGE = tiny.STEPS | {"model.features": 16, "model.num_heads": 2, "data.num_lines": 200} | LONGER


def digits():
    images = np.zeros((40, 28, 28), np.float32)
    for i, image in enumerate(images):
        image[4:24, 4 + 10 * (i % 2) : 10 + 10 * (i % 2)] = 1
    rows = 1 - images, [str(i % 2) for i in range(40)]
    return {"train": rows, "test": rows}


RUNS = {  # config, overrides, data
    "signals": ("shapes_attention", SIGNALS, None),
    "series": ("series_input_attention", SERIES, None),
    "images": ("mnist_attention", tiny.STEPS, digits),
    "language": ("names", LANGUAGE, None),
}


def numbers(array, hidden):
    own = {"shape": list(array.shape), "data": [float(x) for x in array.ravel()]}
    return {"inputs": {"input": own}, "settings": {"hidden": hidden}}


def parts_of(kind, record, number):
    """The request of an example by hidden keys, the keys of its parts, and their weights."""
    examples, weights = record.examples, next(iter(weights_of(record, number).values()))[0]
    if kind == "language":
        text = "".join(examples["tokens"].tolist())
        ask = lambda hidden: {"inputs": {"text": text}, "settings": {"hidden": hidden}}
        return ask, [[k] for k in range(len(weights))], weights[-1]
    inputs = examples["inputs"][number]
    ask = lambda hidden: numbers(np.asarray(inputs), hidden)
    if kind != "signals":
        return ask, [[k] for k in range(weights.shape[-1])], weights.mean(axis=0)
    marks = zip(examples["centers"][number], examples["widths"][number])
    shapes = [[t for t in range(100) if abs(t - center) <= width / 2] for center, width in marks]
    every = sorted({t for shape in shapes for t in shape})
    return ask, shapes, [weights[every][:, shape].sum(axis=1).mean() for shape in shapes]


def changes_of(answers, ask, parts):
    """What hiding each part does, what it costs, and the least cost that is not noise."""
    first = answers(ask([]))
    replies = [answers(ask(keys)) for keys in parts]
    if first["classes"]:
        best = first["classes"][0][0]
        share = lambda reply: dict(reply["classes"]).get(best, 0)
        changes = [share(reply) - share(first) for reply in replies]
        return 100 * np.array(changes), -np.array(changes), 1e-3
    outputs = numbers_of(first["outputs"])
    moved = [np.abs(numbers_of(reply["outputs"]) - outputs).mean() for reply in replies]
    return np.array(moved), np.array(moved), 1e-3 * abs(outputs).max()


def shown_in(figure, page):
    """The numbers of the evidence, and the tau; once it is there."""
    figure.locator(".effects-part[aria-busy=false] .try-change").first.wait_for()
    page.wait_for_timeout(200)
    texts = figure.locator(".try-change small").all_text_contents()
    said = figure.locator(".effects-part .sentence").text_content()
    tau = re.search(r"tau (-?[\d.]+\d)", said.replace("\N{MINUS SIGN}", "-"))
    numbers = [float(text.replace(MINUS, "-").replace("<", "")) for text in texts]
    return numbers, tau and float(tau[1]), said


@pytest.mark.parametrize("kind", RUNS)
def test_what_hiding_a_part_of_an_example_does_is_what_the_model_says(kind, tmp_path, visit):
    config, overrides, data = RUNS[kind]
    with tiny.no_pictures():
        run = flax_attn.train(
            config,
            data=data and data(),
            workdir=tmp_path / "run",
            overrides=overrides,
            num_epochs=1,
        )
    record, answers = read(run.path), Answers(run)
    path = tmp_path / "page.html"
    path.write_text(page_of([record]), encoding="utf-8")
    opened = visit(path)
    figure = opened.page.locator("figure.stored").first
    for number in (0,) if kind == "language" else (0, 1):
        if number:
            choose_example(figure, number)
            figure.locator(".effects-part[aria-busy=true]").wait_for()
        shown, tau, said = shown_in(figure, opened.page)
        ask, parts, weights = parts_of(kind, record, number)
        changes, costs, least = changes_of(answers, ask, parts)
        np.testing.assert_allclose(shown, changes, rtol=0.06, atol=2e-3)  # two digits or more
        assert np.ptp(changes) > 0
        about = figure.locator(".effects-part .hint").text_content()
        assert "is masked in turn." in about
        if kind in ("images", "language") and abs(changes).max() < 0.1:
            assert tau is None
            assert "changes next to nothing" in said
            continue
        counts = abs(costs) > least
        assert (tau is None) == (counts.sum() < 8)  # few effects are not ranked
        if len(parts) < 12 and tau is not None:
            expected = kendalltau(np.array(weights)[counts], costs[counts]).statistic
            assert tau == pytest.approx(expected, abs=0.006)
        if kind in ("signals", "series"):
            written = figure.locator(".try-weight").all_text_contents()
            percents = [float(own.rstrip("%\N{NO-BREAK SPACE}")) for own in written]
            np.testing.assert_allclose(percents, 100 * np.array(weights), atol=1)
