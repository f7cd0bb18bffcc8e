"""Every input with every target in Chromium: what a page shows, says and asks."""

import re

import numpy as np
import pytest

from flax_attn.errors import escaped
from flax_attn.page.data import weights_of
from flax_attn.page.report import report
from flax_attn.runs.reading import read
from flax_attn.tasks.replies import array, numbers_of
from tests.page.answering import KINDS as EXPLORED
from tests.page.answering import Answering, record_of
from tests.page.attacks import ATTACKS
from tests.page.cells import KINDS, Replies, cell, page_of
from tests.page.exploring import axe_finds, choose_example, serving, serving_page, settle, visiting
from tests.written_runs import write_run

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
SVG = "http://www.w3.org/2000/svg"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
LOOKS = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": PHONE}
# a zoom of 200 % halves the window as the page measures it
ZOOMED = [{"width": 640, "height": 400}, {"width": 320, "height": 400}]
WIDER = "document.documentElement.scrollWidth - window.innerWidth"
QUICK = ("signals", "classes of series", "numbers of images", "translation")
some = lambda names: [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in names
]


def percent(weight):
    """Writes a share as the page does, of a weight that was kept as the byte of its root."""
    hundredths = 100 * (np.round(255 * np.sqrt(weight)) / 255) ** 2
    is_small = 0.05 <= hundredths < 9.95
    return f"{hundredths:.1f}{SPACE}%" if is_small else f"{int(hundredths + 0.5)}{SPACE}%"


@pytest.fixture(scope="session")
def cells(tmp_path_factory):
    """The data of a cell, and the file of its page."""
    folder, made = tmp_path_factory.mktemp("cells"), {}

    def make(name):
        if name not in made:
            made[name] = cell(name, folder), folder / f"{name}.html"
            made[name][1].write_text(page_of([made[name][0]]), encoding="utf-8")
        return made[name]

    return make


@pytest.mark.parametrize("name", some(KINDS))
def test_a_report_shows_each_input_with_each_target_and_needs_nothing_else(name, cells, visit):
    data, path = cells(name)
    assert "://" not in path.read_text(encoding="utf-8").replace(SVG, "")
    assert path.stat().st_size < 150_000
    opened = visit(path, **PHONE)
    assert opened.requests == [path.as_uri()]
    assert opened.overflows() <= 0
    page = opened.page
    picture = page.locator("figure.stored, figure").first
    assert len(opened.sentence()) > 10  # something is shown before anyone points
    bars = {"classes": len(data["classes"] or [])}.get(data["target"], 0)
    assert picture.locator(".bars li").count() == bars
    assert picture.locator("svg.points").count() == (data["target"] == "number")
    heads = sum(own["heads"] for own in data["attention"])
    assert page.locator(".overview button").count() == heads
    if heads > 1:
        page.locator(".overview button").last.click()
        assert page.locator(".overview button").last.get_attribute("aria-pressed") == "true"
    if len(data["examples"]) > 1:
        before = opened.sentence()
        choose_example(page, 1)
        assert opened.sentence() != before


@pytest.mark.parametrize("name", some(name for name, (_, target) in KINDS.items() if target))
def test_each_input_with_each_target_is_tried(name, cells, browser):
    data, _ = cells(name)
    with (
        serving_page(lambda: page_of([data], "explore"), [Replies(data)]) as url,
        visiting(browser, url) as opened,
    ):
        settle(opened.page)
        first = opened.sentence()
        assert first
        choose_example(opened.page.locator(".try"), 1, "example")
        settle(opened.page)
        assert opened.sentence() != first
        changes = opened.page.locator(".try-change small").all_text_contents()
        assert len(changes) > 3
        assert opened.page.locator(".try-figure .bars li").count() in (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_report_is_for_everyone(name, cells, visit):
    _, path = cells(name)
    for look in LOOKS.values():
        opened = visit(path, **look)
        for summary in opened.page.locator("summary").all():
            summary.click()
        assert not (violations := axe_finds(opened.page)), violations
    for viewport in ZOOMED:
        assert visit(path, viewport=viewport).overflows() <= 0


def open_all(opened):
    for summary in opened.page.locator("summary").all():
        summary.click()
    settle(opened.page)


def signed(array):
    """Weights of both signs, which do not sum to 1."""
    return 2 * array * np.where(np.arange(array.shape[-1]) % 2, -1, 1)


class Signed(Answering):
    """Answers of a model of two blocks, of which the first has no softmax."""

    def attended(self, **shapes):
        reply = super().attended(**shapes)
        weights = reply["attention"]["block0"]
        return reply | {
            "attention": reply["attention"] | {"block0": array(signed(numbers_of(weights)))}
        }


def test_a_block_without_softmax_is_said_to_have_none(tmp_path, browser):
    held = read(write_run(tmp_path / "kept", "language")).attention["block0"]
    record = record_of(tmp_path / "run", "language", examples={"attention/block0": signed(held)})
    with serving([record], [Signed("language")]) as url, visiting(browser, url) as opened:
        page = opened.page
        settle(page)
        page.locator(".try .controls select").select_option(label="block0")
        settle(page)
        labels = page.locator(".try .word").evaluate_all("all => all.map(own => own.ariaLabel)")
        numbers = [label.rpartition(": ")[2].replace(MINUS, "-") for label in labels]
        assert [float(number) < 0 for number in numbers] == [False, True, False, True]
        assert [*map("negative".__eq__, classes_of(page))] == [False, True, False, True]
        best = max(range(4), key=lambda i: abs(float(numbers[i])))
        assert f"at {best}, {numbers[best].replace('-', MINUS)}." in opened.sentence()
        assert "block0 has no softmax" in page.locator(".try-controls .hint").inner_text()
        assert page.get_by_label("temperature", exact=True).is_enabled()  # block1 has one
        page.locator(".try-formula summary").click()
        assert page.locator(".try-formula .try-term").count() == 0
        stored = page.locator("figure.stored")
        stored.locator(".overview button").first.click()
        assert re.search(
            rf"the weight {MINUS}?[\d.]+, ", stored.locator(".sentence").first.inner_text()
        )
        assert "%" not in stored.locator(".sentence").first.inner_text()
        ticks = stored.locator(".ticks").last.locator("span").all_inner_texts()
        assert ticks[0] == f"{MINUS}{ticks[-1]}"


def classes_of(page):
    kept = "all => all.map(own => [...own.classList].at(-1))"
    return page.locator(".try .word").evaluate_all(kept)


WORDS = ["a", "word", "that is long enough to need a line", "❤", "z"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPLORED)
def test_the_explorer_is_for_everyone(kind, tmp_path, browser):
    names = WORDS if kind in ("texts", "translation", "language") else WORDS[:4]
    with serving([record_of(tmp_path / kind, kind)], [Answering(kind, names)]) as url:
        for look, options in LOOKS.items():
            with visiting(browser, url, **options) as opened:
                open_all(opened)
                assert not (violations := axe_finds(opened.page)), (look, violations)
                assert opened.page.evaluate(WIDER) <= 0, look
                boxes = [own.bounding_box() for own in opened.page.locator(".try-handle").all()]
                assert all(min(own["width"], own["height"]) >= 44 for own in boxes)
        for viewport in ZOOMED:
            with visiting(browser, url, viewport=viewport) as opened:
                open_all(opened)
                assert opened.page.evaluate(WIDER) <= 0, viewport


# what is pointed at has the weights of the model


def point(page, selector, row, column, shape):
    """Points at a cell of a map with the mouse."""
    canvas = page.locator(selector).first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x = box["x"] + (column + 0.5) * box["width"] / shape[1]
    page.mouse.move(x, box["y"] + (row + 0.5) * box["height"] / shape[0])


@pytest.fixture
def opened(visit, tmp_path):
    """Opens the report of a written run: its weights of an example, and the visit."""

    def open_run(kind, example=0, **options):
        run = read(write_run(tmp_path / kind, kind, **options))
        path = tmp_path / f"{kind}.html"
        path.write_text(report([run]), encoding="utf-8")
        return weights_of(run, example), visit(path, has_touch=True), run

    return open_run


def test_mouse_finger_and_keys_read_a_signals_map_as_the_model_made_it(opened):
    weights, visited, run = opened("signals")
    (weights,) = weights["attention"]
    page = visited.page
    said = lambda q, k: f"{percent(weights[q, k])} on position {k}"
    for q, k in ((0, 1), (3, 2)):
        point(page, ".heat canvas", q, k, weights.shape)
        assert said(q, k) in visited.sentence()
    canvas = page.locator(".heat canvas").first
    canvas.press("ArrowDown")
    canvas.press("Shift+ArrowRight")
    assert said(4, 12) in visited.sentence()
    box = canvas.bounding_box()
    page.touchscreen.tap(box["x"] + 30.5 * box["width"] / 50, box["y"] + 20.5 * box["height"] / 50)
    assert said(20, 30) in visited.sentence()
    page.locator("svg.signal").press("End")
    assert said(49, int(weights[49].argmax())) in visited.sentence()
    page.get_by_text("Numbers: the signal by position").click()
    row = page.locator("details table tr").nth(8).locator("td")
    row.first.wait_for()  # the table is made when it is opened
    cells = row.all_text_contents()
    assert cells[0] == f"{run.examples['inputs'][0, 7, 0]:.3g}"
    assert cells[-1] == percent(weights[49, 7])


GROUNDS_AND_CELLS = """(q) => {
  const words = [...document.querySelectorAll(".word")];
  const { width, height } = document.querySelector(".heat canvas");
  const pen = document.querySelector(".heat canvas").getContext("2d");
  const { data } = pen.getImageData(0, Math.floor((q + 0.5) * height / 7), width, 1);
  const cell = (k) => [...data].slice(4 * Math.floor((k + 0.5) * width / 7)).slice(0, 3);
  const grounds = words.map((word) => getComputedStyle(word).backgroundColor);
  return [grounds, words.map((_, k) => `rgb(${cell(k).join(", ")})`)];
}"""


def test_words_and_their_means_are_the_models(opened):
    weights, visited, run = opened("texts", 1)
    (weights,) = weights["attention"]
    page = visited.page
    assert page.locator(".word.unknown").all_text_contents() == ["(good)"]
    choose_example(page, 1)
    words = page.locator(".word")
    assert words.count() == weights.shape[0] == 7  # no padding
    kept = (np.round(255 * np.sqrt(weights)) / 255) ** 2
    words.nth(3).hover()
    assert f"{percent(kept.mean(axis=0)[3])} of its weight on “film”" in visited.sentence()
    words.nth(2).click()
    assert words.nth(2).get_attribute("aria-pressed") == "true"
    grounds, cells = page.evaluate(GROUNDS_AND_CELLS, 2)
    assert grounds == cells
    for k in (0, 4, 6):
        words.nth(k).focus()
        word = run.examples["words"][1, k]
        assert (
            f"“old” puts {percent(weights[2, k])} of its weight on “{word}”" in visited.sentence()
        )
        assert words.nth(k).get_attribute("aria-label") == f"{word}: {percent(weights[2, k])}"
    words.nth(6).press("Home")
    assert percent(weights[2, 0]) in visited.sentence()


def read_patches(weights, visited):
    page = visited.page
    page.get_by_role("button", name="block1, head 3").click()
    patches = page.locator(".patches button")
    patches.nth(0).click()
    patches.nth(6).hover()
    return percent(weights["block1"][3, 0, 6])


def read_translation(weights, visited):
    (weights,) = weights["alignment"]
    visited.page.locator(".lines [role=button]").nth(1).hover()
    assert percent(weights[1].max()) in visited.sentence()
    assert visited.page.locator(".lines .chosen").count() == (weights[1] >= 0.02).sum()
    point(visited.page, ".heat canvas", 2, 1, weights.shape)
    return percent(weights[2, 1])


def read_series(weights, visited):
    point(visited.page, ".heat canvas", 7, 3, weights["input"][0].shape)
    return f"{percent(weights['input'][0, 7, 3])} on series 3"


def read_hops(weights, visited):
    visited.page.get_by_role("button", name="hop 2").click()
    visited.page.locator(".word").nth(1).hover()
    return percent(weights["hops"][2, 0, 1])


def read_tokens(weights, visited):
    visited.page.get_by_role("button", name="block1, head 1").click()
    words = visited.page.locator(".word")
    words.nth(4).click()
    words.nth(5).hover()
    assert "cannot see it" in visited.sentence()
    words.nth(2).hover()
    return percent(weights["block1"][1, 4, 2])


READ = {
    "images": read_patches,
    "translation": read_translation,
    "series": read_series,
    "hops": read_hops,
    "language": read_tokens,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ)
def test_what_is_pointed_at_has_the_weight_of_the_model(kind, opened):
    weights, visited, _ = opened(kind)
    assert READ[kind](weights, visited) in visited.sentence()


@pytest.mark.slow
def test_a_masked_cell_is_hatched_and_queries_run_downwards(opened):
    _, visited, _ = opened("language")
    first_row = """(() => {
        const canvas = document.querySelector('.heat canvas');
        return [...canvas.getContext('2d').getImageData(0, 5, canvas.width, 1).data];
    })()"""
    opacity = np.reshape(visited.page.evaluate(first_row), (-1, 4))[:, 3]
    size = len(opacity) // 6
    assert (opacity[:size] == 255).all()  # the first query sees itself
    assert (opacity[size:] < 255).all()  # and no key after it


@pytest.mark.slow
def test_a_page_begins_with_the_head_and_the_patch_that_tell_something(opened):
    itself, back = np.eye(6, dtype=np.float32), np.eye(6, k=-2, dtype=np.float32)
    back[:2, 0] = 1
    blocks = {"attention/block0": [itself] * 2, "attention/block1": [itself, back]}
    _, visited, _ = opened("language", examples={k: np.stack(v) for k, v in blocks.items()})
    pressed = visited.page.locator(".overview [aria-pressed=true]")
    assert pressed.text_content() == "block1, head 1"
    images = np.zeros((3, 28, 28), np.float32)
    images[:, 8:12, 15:20] = 1  # in row 1, column 2 of 4 x 4 patches
    _, visited, _ = opened("images", examples={"inputs": images})
    assert visited.sentence().startswith("Patch 6 puts ")


def test_points_of_numbers_say_their_values_and_choose_an_example(opened):
    _, visited, run = opened("numbers")
    page = visited.page
    chart = page.locator("svg.points")
    targets, said = (run.examples[name] for name in ("targets", "predictions"))
    assert chart.locator("circle.dot").count() == len(targets)
    order = np.argsort(targets, kind="stable").tolist()
    chart.press("Home")
    assert f"Test example {order[0]}:" in chart.get_attribute("aria-label")
    for _ in range(order.index(2)):
        chart.press("ArrowRight")
    assert f"prediction {said[2]:.3g}, target {targets[2]:.3g}" in chart.get_attribute("aria-label")
    chart.press("Enter")
    chosen = page.locator("label.control", has_text="Test example").locator("select")
    assert chosen.input_value() == "2"
    assert f"{said[2]:.3g}" in page.locator(".result").text_content()


# nothing runs that a page shows

FOLDER = "a<img src=x onerror=window.harm=1>'\"&\u202eb\x07"
STEERS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# every text and every attribute of the page, without the scripts that it came with
ALL = """() => [...document.querySelectorAll("body, body :not(script), title")].flatMap((node) => [
  ...[...node.childNodes].filter((own) => own.nodeType === 3).map((own) => own.data),
  ...[...node.attributes].map((own) => own.value),
])"""


def attacked(kind, folder):
    """A run of a kind whose name, config, classes and words are attacks."""
    words = np.array([ATTACKS, ATTACKS[::-1], ATTACKS])
    source = {"source_words": words[:2, :4], "predicted_words": words[:2, 4:8]}
    examples = {
        "texts": {"words": words},
        "numbers": {"words": words},
        "translation": source | {"references": np.array(ATTACKS[:2])},
        "language": {"tokens": words[0, :6], "string": words[0, :6]},
    }.get(kind, {})
    config = {"name": f"shapes_attention:{ATTACKS[0]}", "note": dict.fromkeys(ATTACKS, ATTACKS[1])}
    number = 2 if kind == "texts" else 4
    scale = {"mean": 6.0, "std": 2.0}
    config["derived"] = {"classes": ATTACKS[:number], "inputs": scale, "targets": scale}
    return record_of(folder / kind / FOLDER, kind, config=config, examples=examples)


def use(page):
    """Points at, presses and opens what there is."""
    for summary in page.locator("summary").all():
        summary.click()
    for node in page.locator(".try .word, .try .patches button, .try-handle").all()[:6]:
        node.hover()
        node.focus()
    for name in ("Mask this triangle", "mask", "Let the model write"):
        button = page.get_by_role("button", name=name, exact=name == "mask").first
        if button.count():
            button.click()
    page.wait_for_timeout(800)  # until the effects are there


def check_harmless(page):
    assert page.evaluate("window.harm") is None
    assert page.locator("main script, main img, main style, main iframe").count() == 0
    assert [text for text in page.evaluate(ALL) if STEERS.search(text)] == []


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "texts" else pytest.mark.slow) for k in EXPLORED]
)
def test_no_name_word_class_note_or_error_runs(kind, tmp_path, browser):
    answers, requests = Answering(kind, ATTACKS, note=ATTACKS[0]), []
    with serving([attacked(kind, tmp_path)], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        opened.context.on("request", lambda request: requests.append(request.url))
        page.reload()
        opened.wait()
        use(page)
        assert escaped(FOLDER) in page.locator("h1").text_content()
        assert page.locator(".try-problem").text_content() == ATTACKS[0]
        if kind in ("texts", "translation", "language", "numbers"):
            text = page.locator(".try-figure").text_content().replace("␣", " ")
            assert all(escaped(attack) in text for attack in ATTACKS)
        check_harmless(page)
        answers.error = f"got {ATTACKS[1]} {ATTACKS[8]}"
        page.get_by_role("button", name="Reset").click()
        page.wait_for_selector(".try-figure.stale")
        assert page.locator(".try-problem").text_content() == escaped(answers.error)
        check_harmless(page)
    assert [own for own in requests if not own.startswith((url, "data:", "blob:"))] == []
    assert len([request for request in requests if request.endswith("/ask")]) >= 2


def test_no_word_or_config_of_a_report_runs(tmp_path, visit):
    record = attacked("texts", tmp_path)
    path = tmp_path / "page.html"
    path.write_text(report([record]), encoding="utf-8")
    opened = visit(path)
    for word in opened.page.locator(".word").all()[:10]:
        word.hover()
    check_harmless(opened.page)
    raw = path.read_text(encoding="utf-8")
    assert raw.count("<script") == 2
    assert not re.search("[\u202e\u2066\x07\x1b\x9b]", raw)
