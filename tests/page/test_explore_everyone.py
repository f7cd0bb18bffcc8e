"""The explorer serves everyone, with every kind of run: axe, the dark, a phone, twice the size."""

import pytest

from tests.page.answering import KINDS, Answering, record_of
from tests.page.exploring import axe_finds, serving, settle, visiting

pytestmark = pytest.mark.full

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
LOOKS = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": PHONE}
# a zoom of 200 % halves the window as the page measures it
ZOOMED = [{"width": 640, "height": 400}, {"width": 320, "height": 400}]
WIDER = "document.documentElement.scrollWidth - window.innerWidth"
WORDS = ["a", "word", "that is long enough to need a line", "❤", "z"] * 4


def open_all(opened):
    """Opens what is closed, and waits for what hiding does."""
    for summary in opened.page.locator("summary").all():
        summary.click()
    settle(opened.page)


@pytest.fixture(params=KINDS)
def url(request, tmp_path):
    record = record_of(tmp_path / request.param, request.param)
    names = WORDS if request.param in ("texts", "translation", "language") else WORDS[:4]
    with serving([record], [Answering(request.param, names)]) as opened:
        yield opened


def test_axe_finds_nothing_on_any_kind(url, browser):
    for look, options in LOOKS.items():
        with visiting(browser, url, **options) as opened:
            open_all(opened)
            assert not (violations := axe_finds(opened.page)), (look, violations)
            assert opened.page.evaluate(WIDER) <= 0, look


FORCED = {"forced_colors": "active", "color_scheme": "dark"}


def test_with_forced_colours_a_key_shows_what_the_picture_shows(tmp_path, browser):
    look = "([name, part, key]) => getComputedStyle(document.querySelector(name), part)[key]"
    shown = {
        "signals": [(".try-swatch.try-answer-0", None, "borderTopColor")],
        "language": [(".hatched-key", "::before", "backgroundImage")],
        "images": [(".try-patches .hidden-key", None, "backgroundImage")],
    }
    for kind, parts in shown.items():
        record = record_of(tmp_path / kind, kind)
        with serving([record], [Answering(kind)]) as url:
            said = []
            for options in ({"color_scheme": "dark"}, FORCED):
                with visiting(browser, url, **options) as opened:
                    if kind == "images":
                        opened.page.locator(".try-patches button").first.click()
                        opened.wait()
                    said.append([opened.page.evaluate(look, part) for part in parts])
            assert said[0] == said[1], kind
            assert "none" not in said[0]


def test_a_page_at_twice_its_size_has_no_bar_below(url, browser):
    for viewport in ZOOMED:
        with visiting(browser, url, viewport=viewport) as opened:
            open_all(opened)
            assert opened.page.evaluate(WIDER) <= 0, viewport
