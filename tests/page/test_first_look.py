"""What a page shows before a reader or its model does anything."""

import shutil
import threading

import numpy as np
import pytest

import flax_attn
from flax_attn.explore.showing import page_of
from flax_attn.page.report import report
from flax_attn.tasks import read
from tests import tiny
from tests.page.answering import KINDS, Answering, record_of
from tests.page.exploring import Visit, serving, visiting
from tests.written_runs import write_run

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
ANSWER = {  # of each kind: what stands in the picture of an answer
    "signals": "path.try-answer-0[d^=M]",
    "images": ".try .bars li",
    "texts": ".try .bars li",
    "series": "polyline.try-answer-0",
    "translation": ".try .try-link",
    "language": ".try .word",
    "numbers": ".try .bars li",
}
LOOKS_AT_ITSELF = np.eye(6, dtype=np.float32)
LOOKS_BACK = np.eye(6, k=-2, dtype=np.float32)
LOOKS_BACK[:2, 0] = 1


class Waiting(Answering):
    """Answers only when it is told to."""

    def __init__(self, kind, **options):
        super().__init__(kind, **options)
        self.told = threading.Event()

    def __call__(self, request):
        assert self.told.wait(60)
        return super().__call__(request)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_kept_stands_there_until_the_model_answers(kind, tmp_path, browser):
    record, answers = record_of(tmp_path / kind, kind), Waiting(kind)
    with serving([record], [answers]) as url:
        opened = Visit(browser, url)
        try:
            opened.page.locator(ANSWER[kind]).first.wait_for(state="attached", timeout=10_000)
            assert opened.page.locator(".try-figure").get_attribute("aria-busy") == "true"
            assert opened.sentence() not in ("", "The model is asked …")
            answers.told.set()
            opened.wait()
        finally:
            answers.told.set()
        assert opened.said == []
        opened.context.close()


def language_run(folder):
    weights = {
        "attention/block1": np.stack([LOOKS_AT_ITSELF] * 2),
        "attention/block2": np.stack([LOOKS_AT_ITSELF, LOOKS_BACK]),
    }
    return record_of(folder, "language", examples=weights)


@pytest.mark.full
def test_a_language_page_begins_with_a_head_that_does_not_look_at_itself(tmp_path, visit, browser):
    record = language_run(tmp_path / "run")
    path = tmp_path / "page.html"
    path.write_text(report([record]), encoding="utf-8")
    opened = visit(path)
    pressed = opened.page.locator(".overview [aria-pressed=true]")
    assert pressed.text_content() == "block2, head 1"
    assert "100\N{NO-BREAK SPACE}% of its weight on" in opened.sentence()
    assert "2 back" in opened.sentence()
    with serving([record], [Answering("language")]) as url, visiting(browser, url) as explored:
        head = explored.page.locator(".try .numbered [aria-pressed=true]").last
        assert head.text_content() == "1"


@pytest.mark.full
def test_a_page_of_images_begins_with_an_inked_patch(tmp_path, visit, browser):
    images = np.zeros((3, 28, 28), np.float32)
    images[:, 8:12, 15:20] = 1  # in row 2, column 3 of 4 x 4 patches
    record = record_of(tmp_path / "run", "images", examples={"inputs": images})
    path = tmp_path / "page.html"
    path.write_text(report([record]), encoding="utf-8")
    assert visit(path).sentence().startswith("Patch 6 puts ")
    with serving([record], [Answering("images")]) as url, visiting(browser, url) as opened:
        opened.page.locator(".try .numbered button").first.wait_for()
        chosen = "[...document.querySelectorAll('.try-patches button')].findIndex("
        opened.page.locator("select").first.select_option(label="block3")
        assert opened.page.evaluate(f"{chosen}(own) => own.matches('.query'))") == 6


@pytest.mark.full
def test_what_is_never_written_is_not_among_the_next_tokens(tmp_path, browser):
    names = ["<UNK>", "a", "<PAD>", "b"]
    answers = Answering("language", names=names)
    record = record_of(tmp_path / "run", "language")
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        shown = opened.page.locator(".try .bars .class-name").all_text_contents()
        assert sorted(shown) == ["a", "b"]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["texts", "translation"])
def test_an_unknown_word_has_one_kind_of_brackets_and_is_typed_without(kind, tmp_path, browser):
    name = "words" if kind == "texts" else "source_words"
    width = 10 if kind == "texts" else 4
    words = np.array([["old", "(wacky)", *["film"] * (width - 2)]] * (3 if kind == "texts" else 2))
    record = record_of(tmp_path / "run", kind, examples={name: words})
    answers = Waiting(kind)
    with serving([record], [answers]) as url:
        opened = Visit(browser, url)
        try:
            word = opened.page.locator(".try .word.unknown")
            assert word.text_content() == "(wacky)"
            typed = opened.page.locator("textarea").input_value()
            assert typed.startswith("old wacky film")
        finally:
            answers.told.set()
        opened.wait()
        opened.context.close()


@pytest.mark.full
def test_a_series_is_as_thick_as_its_weight(tmp_path, browser):
    record = record_of(tmp_path / "run", "series")
    width = "own => parseFloat(getComputedStyle(own).strokeWidth)"
    with serving([record], [Answering("series")]) as url, visiting(browser, url) as opened:
        widths = [own.evaluate(width) for own in opened.page.locator(".try-piece").all()]
        assert max(widths) > 4 > 2 > min(widths)


SENTENCE = [*"the 24th of december 1999, a day"]


@pytest.mark.full
def test_a_sentence_of_a_translation_is_no_wider_than_a_phone(tmp_path, browser, visit):
    answers = Answering("translation", names=SENTENCE)
    record = record_of(tmp_path / "run", "translation")
    with serving([record], [answers]) as url, visiting(browser, url, **PHONE) as opened:
        opened.page.locator(".try-link").first.wait_for(state="attached")
        boxes = [own.bounding_box() for own in opened.page.locator(".try-aligned .word").all()]
        assert len(boxes) == 2 * len(SENTENCE)
        assert max(box["x"] + box["width"] for box in boxes) <= 360
        assert len({round(box["y"]) for box in boxes}) <= 8
        assert min(box["width"] for box in boxes) >= 24
        cut = "document.querySelector('.try-aligned')"
        assert opened.page.evaluate(f"{cut}.scrollWidth - {cut}.clientWidth") <= 0


@pytest.mark.full
def test_of_a_long_text_the_lines_of_one_part_are_drawn(tmp_path, browser):
    record = record_of(tmp_path / "run", "translation")
    for names, is_long in ((SENTENCE, False), (SENTENCE * 2, True)):
        answers = Answering("translation", names=names)
        with serving([record], [answers]) as url, visiting(browser, url) as opened:
            page = opened.page
            page.locator(".try-link").first.wait_for(state="attached")
            part = page.locator(".try-aligned .words").last.locator("button").nth(7)
            assert page.get_by_text("the lines of one part of the answer").count() == is_long
            for chosen in ([], [7]):
                if chosen:
                    part.hover()
                lines = page.locator(".try-link").all()
                rows = {own.get_attribute("data-q") for own in lines if own.is_visible()}
                assert (len(rows) == 1) == is_long
                assert "7" in rows or not chosen


@pytest.mark.full
def test_what_scrolls_on_a_phone_says_so(tmp_path, visit):
    words = np.array([SENTENCE] * 2)
    count = len(SENTENCE)
    examples = {"source_words": words, "source_lengths": np.array([count, count])}
    examples["inputs"] = np.ones((2, count), int)
    examples["attention/alignment"] = np.full((2, 4, count), 1 / count, np.float32)
    record = record_of(tmp_path / "run", "translation", examples=examples)
    path = tmp_path / "page.html"
    path.write_text(report([record]), encoding="utf-8")
    content = "own => getComputedStyle(own, '::before').content"
    lines = visit(path, **PHONE).page.locator(".scroll:has(.lines)")
    assert "scroll sideways" in lines.evaluate(content)
    lines = visit(path).page.locator(".scroll:has(.lines)")
    assert lines.evaluate(content) == "none"


@pytest.mark.full
def test_a_page_has_its_icon_and_asks_for_none(tmp_path, browser, written):
    _, path = written("signals")
    assert 'rel="icon" href="data:image/svg+xml,' in path.read_text(encoding="utf-8")
    record = record_of(tmp_path / "run", "texts")
    with serving([record], [Answering("texts")]) as url:
        opened, asked = Visit(browser, "about:blank"), []
        opened.page.on("request", lambda request: asked.append(request.url))
        opened.page.goto(url)
        opened.wait()
        assert not [own for own in asked if "favicon" in own]
        assert opened.page.evaluate("document.querySelector('link[rel=icon]') !== null")
        opened.context.close()


@pytest.mark.full
def test_the_best_of_runs_says_what_it_does_and_that_others_trained_for_less(tmp_path, visit):
    paths = [
        write_run(tmp_path / "long", "plain", epochs=5, config={"name": "shapes_cnn"}),
        write_run(tmp_path / "short", "plain", epochs=1, config={"name": "shapes_cnn:quick"}),
    ]
    path = tmp_path / "page.html"
    path.write_text(report([read(own) for own in paths]), encoding="utf-8")
    page = visit(path).page
    assert page.locator("h1 .name").text_content() == "long, the best of 2 runs"
    assert "Sets both shapes of a kind to their mean height" in page.locator("h1").text_content()
    told = page.locator("h1 + p").text_content()
    assert "trained for different numbers of steps: long 500, short 100 (:quick)." in told
    assert "Sets both shapes" in page.title().replace("sets", "Sets")


@pytest.mark.full
def test_what_can_be_tried_is_on_the_first_screen_of_a_report(tmp_path, visit):
    with tiny.no_pictures():
        overrides = tiny.ATTENTION | tiny.SHAPES
        workdir = tmp_path / "one"
        flax_attn.train("shapes_attention", workdir=workdir, overrides=overrides, num_epochs=1)
    shutil.copytree(workdir, tmp_path / "two")
    for names in (["one"], ["one", "two"]):
        path = tmp_path / f"{'-'.join(names)}.html"
        path.write_text(page_of([read(tmp_path / name) for name in names]), encoding="utf-8")
        page = visit(path, viewport={"width": 1280, "height": 800}).page
        assert page.locator(".try-figure .try-plot").first.bounding_box()["y"] < 600
        assert page.locator(".try-figure").count() == len(names)
        page.emulate_media(media="print")
        assert not page.get_by_text("Try it").or_(page.get_by_text("Try one")).first.is_visible()
        page = visit(path, **PHONE).page
        assert page.locator(".try-figure").first.bounding_box()["y"] < 740
