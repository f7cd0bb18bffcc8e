"""Numbers in a page: a point a test example, which chooses it, and a text that is typed."""

import re

import numpy as np
import pytest

import flax_attn
from flax_attn.explore.answers import Answers
from flax_attn.tasks import read
from tests import tiny
from tests.page.exploring import serving, visiting

TEXTS = ["one cat", "two old cats", "three cats and a hat", "four hats", "one hat"] * 12
NUMBERS = [1.5, 2.5, 3.5, 4.5, 1.5] * 12


def points(opened):
    return opened.page.locator("svg.points circle.dot")


@pytest.mark.parametrize("kind", ["numbers", "numbers of signals"])
def test_a_point_says_its_numbers_and_chooses_its_example(kind, written, visit):
    run, path = written(kind)
    opened = visit(path)
    chart = opened.page.locator("svg.points")
    targets, said = (run.examples[name] for name in ("targets", "predictions"))
    assert points(opened).count() == len(targets)
    order = np.argsort(targets, kind="stable").tolist()
    chart.press("Home")
    assert f"Test example {order[0]}:" in chart.get_attribute("aria-label")
    chart.press("ArrowRight")
    label = chart.get_attribute("aria-label")
    assert f"Test example {order[1]}: the model says {said[order[1]]:.3g}, right is" in label
    chart.press("Enter")  # it has no text or signal
    assert opened.page.get_by_role("button", name="Test example 0").get_attribute("aria-pressed")
    for _ in range(order.index(2) - 1):
        chart.press("ArrowRight")
    chart.press("Enter")
    chosen = opened.page.get_by_role("button", name="Test example 2", exact=True)
    assert chosen.get_attribute("aria-pressed") == "true"
    verdict = opened.page.locator(".result").text_content()
    assert verdict == f"The model says {said[2]:.3g}; right is {targets[2]:.3g}."
    orange = opened.page.locator("svg.points circle.colour-1")
    orange.click()  # where it stands, its numbers are said
    label = opened.page.locator("svg.points").get_attribute("aria-label")
    assert f"right is {targets[2]:.3g}," in label
    if kind == "numbers":
        assert opened.page.locator(".word").count() == 4
    else:
        weights = run.attention["attention"][2]
        opened.page.locator("svg.signal").press("End")
        best = int(weights[49].argmax())
        sentence = opened.page.locator(".sentence > span:first-child").first.text_content()
        assert re.search(rf"Position 49, .* of its weight on position {best}, the most", sentence)


@pytest.mark.full
def test_a_typed_text_changes_the_number(tmp_path, browser):
    data = dict.fromkeys(("train", "test"), (TEXTS, NUMBERS))
    with tiny.no_pictures():
        run = flax_attn.train(
            "numbers_words",
            data=data,
            num_epochs=1,
            workdir=tmp_path / "run",
            overrides=tiny.TEXTS | {"steps_per_epoch": 40},
        )
    with serving([read(run.path)], [Answers(run)]) as url, visiting(browser, url) as opened:
        for text in ("four cats", "one old hat"):
            opened.page.locator("textarea").fill(text)
            opened.wait()
            number = float(run.predict(text).outputs[0])
            assert opened.sentence().startswith(f"The answer is {number:.3g}.")
            assert opened.page.locator(".try .bars .share").text_content() == f"{number:.3g}"
