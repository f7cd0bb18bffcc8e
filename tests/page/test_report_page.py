"""What a report shows, and what one points at, in Chromium."""

import numpy as np
import pytest

from flax_attn.page.data import weights_of
from tests.written_runs import KINDS

SVG = "http://www.w3.org/2000/svg"
SPACE = "\N{NO-BREAK SPACE}"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}


def percent(weight):
    """As the page writes a share, of a weight that was kept as the byte of its root."""
    hundredths = 100 * (np.round(255 * np.sqrt(weight)) / 255) ** 2
    is_small = 0.05 <= hundredths < 9.95
    return f"{hundredths:.1f}{SPACE}%" if is_small else f"{int(hundredths + 0.5)}{SPACE}%"


def cell(page, row, column, shape, selector=".heat canvas"):
    """Points at a cell of a map with the mouse."""
    canvas = page.locator(selector).first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x = box["x"] + (column + 0.5) * box["width"] / shape[1]
    page.mouse.move(x, box["y"] + (row + 0.5) * box["height"] / shape[0])


SMOKE = "signals"
EVERY = [pytest.param(kind, marks=[] if kind == SMOKE else pytest.mark.full) for kind in KINDS]


@pytest.mark.parametrize("kind", EVERY)
def test_a_page_needs_nothing_else_and_fits_a_phone(kind, written, visit):
    run, path = written(kind)
    text = path.read_text(encoding="utf-8")
    assert "://" not in text.replace(SVG, "")
    assert path.stat().st_size < 150_000
    opened = visit(path, **PHONE)
    assert opened.requests == [path.as_uri()]
    assert opened.overflows() <= 0
    heading = opened.page.locator("h1").text_content()
    assert run.name in heading
    assert any(letter.isdigit() for letter in heading)
    assert len(opened.sentence()) > 10  # the picture shows something before anyone points


PLACES = [(0, 1), (3, 2), (5, 0)]


@pytest.mark.full
def test_mouse_finger_and_keys_read_a_signals_map_as_the_model_made_it(written, visit):
    run, path = written("signals")
    (weights,) = weights_of(run, 0)["attention"]
    opened = visit(path, has_touch=True)
    said = lambda q, k: f"puts {percent(weights[q, k])} of its weight on position {k}"
    for q, k in PLACES:
        cell(opened.page, q, k, weights.shape)
        assert said(q, k) in opened.sentence()
    canvas = opened.page.locator(".heat canvas").first
    canvas.press("ArrowDown")
    canvas.press("Shift+ArrowRight")
    assert said(6, 10) in opened.sentence()
    box = canvas.bounding_box()
    size = box["width"] / 50
    opened.page.touchscreen.tap(box["x"] + 30.5 * size, box["y"] + 20.5 * size)
    assert said(20, 30) in opened.sentence()
    assert "of 50 positions" in opened.page.locator("svg.signal").get_attribute("aria-label")
    opened.page.locator("svg.signal").press("End")
    best = int(weights[49].argmax())
    assert said(49, best) in opened.sentence()
    opened.page.get_by_text("Numbers: the signal by position").click()
    row = opened.page.locator("details table tr").nth(8).locator("td")
    row.first.wait_for()  # the table is made when it is opened
    cells = row.all_text_contents()
    assert cells[0] == f"{run.examples['inputs'][0, 7, 0]:.3g}"
    assert cells[-1] == percent(weights[49, 7])


@pytest.mark.full
def test_words_and_their_means_are_the_models(written, visit):
    run, path = written("texts")
    (weights,) = weights_of(run, 1)["attention"]
    opened = visit(path)
    assert opened.page.locator(".word.unknown").all_text_contents() == ["(good)"]
    opened.page.get_by_role("button", name="Test example 1").click()
    words = opened.page.locator(".word")
    assert words.count() == weights.shape[0] == 7  # no padding
    kept = (np.round(255 * np.sqrt(weights)) / 255) ** 2
    words.nth(3).hover()
    mean = kept.mean(axis=0)[3]
    assert f"mean over all words puts {percent(mean)} of its weight on “film”" in opened.sentence()
    words.nth(2).click()
    assert words.nth(2).get_attribute("aria-pressed") == "true"
    for k in (0, 4, 6):
        words.nth(k).focus()
        word = run.examples["words"][1, k]
        assert opened.sentence() == (
            f"“old” puts {percent(weights[2, k])} of its weight on “{word}”."
        )
        assert words.nth(k).get_attribute("aria-label") == f"{word}: {percent(weights[2, k])}"
    words.nth(6).press("Home")
    assert percent(weights[2, 0]) in opened.sentence()


@pytest.mark.full
def test_patches_translations_series_hops_and_tokens_are_the_models(written, visit):
    run, path = written("images")
    opened = visit(path)
    opened.page.get_by_role("button", name="block2, head 3").click()
    (kept,) = (weights_of(run, 0)["block2"][3],)
    field = opened.page.locator(".patches canvas")
    for _ in range(2):
        field.press("ArrowDown")
    opened.page.mouse.move(0, 0)
    cell(opened.page, 0, 0, (4, 4), ".patches canvas")
    opened.page.mouse.down()  # patch 0 as the query, once: a click may be tried again
    opened.page.mouse.up()
    cell(opened.page, 1, 2, (4, 4), ".patches canvas")
    assert opened.sentence() == f"Patch 0 puts {percent(kept[0, 6])} of its weight on patch 6."

    run, path = written("translation")
    (weights,) = weights_of(run, 0)["alignment"]
    opened = visit(path)
    cell(opened.page, 2, 1, weights.shape)
    assert opened.sentence() == f"“a” puts {percent(weights[2, 1])} of its weight on “a”."
    opened.page.locator(".lines [role=button]").nth(1).hover()
    assert percent(weights[1].max()) in opened.sentence()
    lines = opened.page.locator(".lines .chosen")
    assert lines.count() == (weights[1] >= 0.02).sum()

    run, path = written("series")
    (weights,) = weights_of(run, 0)["input"]
    opened = visit(path)
    cell(opened.page, 7, 3, weights.shape)
    assert f"Step 7: {percent(weights[7, 3])} of the weight on series 3" in opened.sentence()

    run, path = written("hops")
    opened = visit(path)
    opened.page.get_by_role("button", name="hop 2").click()
    opened.page.locator(".word").nth(1).hover()
    share = percent(weights_of(run, 0)["hops"][2, 0, 1])
    assert opened.sentence() == f"hop 2 puts {share} of its weight on “good”."

    run, path = written("language")
    opened = visit(path)
    opened.page.get_by_role("button", name="block2, head 1").click()
    weights = weights_of(run, 0)["block2"][1]
    opened.page.locator(".word").nth(4).click()
    opened.page.locator(".word").nth(2).hover()
    assert f"{percent(weights[4, 2])} of its weight on “␣”, 2 back" in opened.sentence()
    opened.page.locator(".word").nth(5).hover()
    assert "cannot see it" in opened.sentence()


@pytest.mark.full
def test_every_head_is_a_small_picture_that_chooses_it(written, visit):
    run, path = written("images")
    opened = visit(path)
    buttons = opened.page.locator(".overview button")
    wanted = [
        f"{name}, head {head}" if len(weights) > 1 else name
        for name, weights in weights_of(run, 0).items()
        for head in range(len(weights))
    ]
    assert buttons.locator("span").all_text_contents() == wanted
    assert len(wanted) == 13
    picture = "document.querySelector('.patches canvas').toDataURL()"
    pictures = {opened.page.evaluate(picture)}
    for i in range(1, 13):
        buttons.nth(i).click()
        pictures.add(opened.page.evaluate(picture))
        assert buttons.nth(i).get_attribute("aria-pressed") == "true"
    assert len(pictures) == 13
    buttons.nth(12).press("ArrowLeft")
    opened.page.keyboard.press("Enter")
    assert buttons.nth(11).get_attribute("aria-pressed") == "true"


@pytest.mark.full
def test_a_masked_cell_is_hatched_and_queries_run_downwards(written, visit):
    _, path = written("language")
    opened = visit(path)
    first_row = """(() => {
        const canvas = document.querySelector('.heat canvas');
        return [...canvas.getContext('2d').getImageData(0, 5, canvas.width, 1).data];
    })()"""
    opacity = np.reshape(opened.page.evaluate(first_row), (-1, 4))[:, 3]
    size = len(opacity) // 6
    assert (opacity[:size] == 255).all()  # the first query sees itself
    assert (opacity[size:] < 255).all()  # and no key after it
    assert opened.page.locator(".legend:has-text('hatched: masked')").first.is_visible()
