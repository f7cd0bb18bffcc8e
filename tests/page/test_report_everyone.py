"""A report is safe, and serves everyone: by keyboard, in the dark, on a phone, on paper."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from flax_attn.errors import escaped
from flax_attn.explore.showing import Page
from flax_attn.page.report import report
from flax_attn.tasks import read
from tests.page.attacks import ATTACKS
from tests.written_runs import KINDS, WORDS, write_run

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
LOOKS = [{"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE]


def attacked(folder):
    """A run whose name, words, classes, config and metrics are attacks, and its page."""
    words = np.array([[*ATTACKS], ATTACKS[::-1], WORDS])
    changed = {"name": f"shapes_attention:{ATTACKS[0]}", "note": dict.fromkeys(ATTACKS, ATTACKS[1])}
    changed["derived"] = {"classes": ATTACKS[:2]}
    path = write_run(
        folder / "a<img src=x onerror=alert(1)>'\"&",
        "texts",
        config=changed,
        examples={"words": words},
    )
    page = folder / "page.html"
    page.write_text(report([read(path), read(path)]), encoding="utf-8")
    return page


def test_no_word_class_name_or_config_runs(visit, tmp_path):
    page = attacked(tmp_path)
    opened = visit(page)
    assert opened.requests == [page.as_uri()]
    for word in opened.page.locator(".word").all()[:10]:
        word.hover()
    assert opened.page.evaluate("window.harm") is None
    assert opened.page.locator("main script, main img, main style, main iframe").count() == 0
    text = opened.page.locator(".words").first.inner_text()
    for attack in ATTACKS:
        assert escaped(attack).replace(" ", "␣")[:55] in text
    assert ATTACKS[0] in opened.page.locator(".bars").first.inner_text()
    raw = page.read_text(encoding="utf-8")
    assert raw.count("<script") == 2
    assert not re.search("[\u202e\u2066\x07\x1b\x9b]", raw)


@pytest.mark.full
def test_the_policy_lets_only_the_pages_own_script_and_style_be(browser, written):
    _, path = written("plain")
    context = browser.new_context(offline=True)
    page = context.new_page()
    text = path.read_text(encoding="utf-8")
    more = "<script>window.harm = 1</script><img src='x' onerror='window.harm = 2'>"
    changed = path.with_name("changed.html")
    changed.write_text(text.replace("<main", f"{more}<main"), encoding="utf-8")
    page.goto(changed.as_uri())
    page.wait_for_selector("#page[data-ready]")
    assert page.evaluate("window.harm") is None
    asked = page.evaluate("fetch('https://example.org').then(() => 1, () => 0)")
    context.close()
    assert asked == 0


def axe_faults(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    violations = axe.run(page).response["violations"]
    return [(fault["id"], [node["html"][:150] for node in fault["nodes"]]) for fault in violations]


@pytest.mark.full
@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "phone"])
def test_axe_finds_nothing(look, visit, written):
    _, path = written("signals", "plain", "texts")
    assert axe_faults(visit(path, **look).page) == []


@pytest.mark.full
@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "phone"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_on_any_kind(kind, look, visit, written):
    _, path = written(kind)
    opened = visit(path, **look)
    for summary in opened.page.locator("summary").all():
        summary.click()
    assert axe_faults(opened.page) == []


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_at_twice_its_size_has_no_bar_below(kind, visit, written):
    """A zoom of 200 % halves the window as the page measures it."""
    _, path = written(kind)
    assert visit(path, viewport={"width": 640, "height": 400}).overflows() <= 0
    assert visit(path, viewport={"width": 320, "height": 400}).overflows() <= 0


@pytest.mark.full
def test_a_whole_visit_by_keyboard(visit, written):
    _, path = written("images")
    opened = visit(path)
    stops = []
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        stops.append(
            opened.page.evaluate("""(() => {
            const node = document.activeElement;
            const outline = getComputedStyle(node).outlineStyle;
            return [node.tagName.toLowerCase(), outline, node.textContent.slice(0, 20)];
        })()""")
        )
        if stops[-1][0] == "body":
            break
    names = [name for name, _, _ in stops]
    assert {"button", "canvas", "summary", "select", "svg", "input"} <= set(names)
    assert names[-1] == "body"  # none holds the keyboard
    assert len(names) < 30  # a row of buttons is one stop
    assert all(outline != "none" for name, outline, _ in stops if name != "body")


@pytest.mark.full
def test_paper_has_results_curves_and_the_example_and_no_controls(visit, written, tmp_path):
    if shutil.which("pdftotext") is None:
        pytest.skip("paper is read by pdftotext; apt-get install poppler-utils")
    _, path = written("texts")
    opened = visit(path)
    opened.page.pdf(path=tmp_path / "page.pdf", format="A4")
    done = subprocess.run(
        ["pdftotext", "-layout", tmp_path / "page.pdf", "-"],
        capture_output=True,
        text=True,
        check=True,
    )
    for wanted in (
        "Results",
        "How it learned",
        "training step",
        "test/accuracy",
        "film",
        "of its weight on",
        "flax-attn train",
        "Written with",
        "positive",
    ):
        assert wanted in done.stdout, wanted
    for control in ("Example", "Metric", "log scale", "Show all", "Drag over", "Numbers:"):
        assert control not in done.stdout, control
    opened.page.emulate_media(media="print")
    word = "getComputedStyle(document.querySelector('.word'))"
    assert opened.page.evaluate(f"{word}.printColorAdjust") == "exact"
    heading = "getComputedStyle(document.querySelector('h2'))"
    assert opened.page.evaluate(f"{heading}.breakAfter") == "avoid"


@pytest.mark.full
def test_a_notebooks_frame_lives_without_kernel_and_network(browser, written, tmp_path):
    _, path = written("signals")
    shown = Page(path.read_text(encoding="utf-8"))._repr_html_()
    outside = tmp_path / "notebook.html"
    outside.write_text(f"<!DOCTYPE html><p>cell</p>{shown}", encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(outside.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("#page[data-ready]").wait_for()
    frame.locator(".heat canvas").first.press("ArrowDown")
    assert "of its weight on position" in frame.locator(".sentence").first.inner_text()
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
    context.close()
    assert said == []


@pytest.mark.full
def test_without_javascript_there_are_the_results_and_a_curve(browser, written):
    _, path = written("signals")
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("body").inner_text()
    assert "test/mse" in text
    assert "with JavaScript, which is off here" in text
    assert page.locator("noscript svg polyline, svg polyline").count() == 1
    context.close()


@pytest.mark.full
def test_an_old_browser_is_told_so(browser, written):
    _, path = written("signals")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(path.as_uri())
    page.get_by_text("This browser is from before 2023").wait_for()
    context.close()


@pytest.mark.full
def test_long_names_and_a_hundred_seeds_fit(visit, tmp_path):
    name = "x" * 200
    paths = [
        write_run(tmp_path / name, "plain", seeds=range(100), epochs=2),
        write_run(tmp_path / "other" / "name 🙂 שלום", "plain", seeds=(0,), epochs=0),
    ]
    page = tmp_path / "page.html"
    page.write_text(report([read(path) for path in paths]), encoding="utf-8")
    opened = visit(page, **PHONE)
    assert opened.overflows() <= 0
    assert "🙂" in opened.page.locator("h2 .name").nth(1).text_content()
