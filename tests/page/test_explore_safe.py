"""Nothing that the explorer shows runs, and nothing leaves the machine."""

import re

import numpy as np
import pytest

import flax_attn
from flax_attn.errors import escaped
from flax_attn.explore.answers import Answers
from flax_attn.tasks import read
from tests import tiny
from tests.page.answering import KINDS, Answering, record_of
from tests.page.attacks import ATTACKS
from tests.page.exploring import serving, visiting

pytestmark = pytest.mark.full

FOLDER = "a<img src=x onerror=window.harm=1>'\"&\u202eb\x07"
STEERS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# every text and every attribute of the page, but for the scripts that it came with
ALL = """() => [...document.querySelectorAll("body, body :not(script), title")].flatMap((node) => [
  ...[...node.childNodes].filter((own) => own.nodeType === 3).map((own) => own.data),
  ...[...node.attributes].map((own) => own.value),
])"""


def written_with_attacks(kind, folder):
    """A run of a kind whose name, config, classes and words are attacks."""
    words = np.array([ATTACKS, ATTACKS[::-1], ATTACKS])
    examples = {
        "texts": {"words": words},
        "numbers": {"words": words},
        "translation": {
            "source_words": words[:2, :4],
            "predicted_words": words[:2, 4:8],
            "references": np.array(ATTACKS[:2]),
        },
        "language": {"tokens": words[0, :6], "string": words[0, :6]},
    }.get(kind, {})
    config = {"name": f"shapes_attention:{ATTACKS[0]}", "note": dict.fromkeys(ATTACKS, ATTACKS[1])}
    number = 2 if kind == "texts" else 4
    config["derived"] = {"classes": ATTACKS[:number], "mean": 6.0, "std": 2.0}
    return record_of(folder / kind / FOLDER, kind, config=config, examples=examples)


def use(page):
    """Points at, presses and opens what there is."""
    for summary in page.locator("summary").all():
        summary.click()
    for word in page.locator(".try .word, .try-patches button, .try-handle").all()[:6]:
        word.hover()
        word.focus()
    for name in ("Hide this triangle", "hide", "Let the model write"):
        button = page.get_by_role("button", name=name, exact=name == "hide").first
        if button.count():
            button.click()
    for word in page.locator(".try .word").all()[:2]:
        word.click()
    page.wait_for_timeout(800)  # until what hiding does is there


def check(opened, requests, url):
    page = opened.page
    assert page.evaluate("window.harm") is None
    assert page.locator("main script, main img, main style, main iframe").count() == 0
    steered = [text for text in page.evaluate(ALL) if STEERS.search(text)]
    assert steered == []
    allowed = (url, "data:", "blob:")
    assert [request for request in requests if not request.startswith(allowed)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_word_class_note_or_error_runs(kind, tmp_path, browser):
    record = written_with_attacks(kind, tmp_path)
    answers = Answering(kind, ATTACKS, note=ATTACKS[0])
    requests = []
    browser_context = {"service_workers": "block"}
    with (
        serving([record], [answers]) as url,
        visiting(browser, url, **browser_context) as opened,
    ):
        opened.context.on("request", lambda request: requests.append(request.url))
        opened.page.reload()
        opened.wait()
        use(opened.page)
        assert escaped(FOLDER) in opened.page.locator("h1").text_content()
        assert opened.page.locator(".try-problem").text_content() == ATTACKS[0]
        if kind in ("texts", "translation", "language", "numbers"):
            text = opened.page.locator(".try-figure").inner_text().replace("␣", " ")
            for attack in ATTACKS:
                assert escaped(attack) in text
        check(opened, requests, url)
        answers.error = f"got {ATTACKS[1]} {ATTACKS[8]}"
        opened.page.get_by_role("button", name="Reset").click()
        opened.page.wait_for_selector(".try-figure.stale")
        said = opened.page.locator(".try-problem").text_content()
        assert said == escaped(answers.error)
        check(opened, requests, url)
    assert len([request for request in requests if request.endswith("/ask")]) >= 2


def test_what_a_user_types_into_a_trained_run_does_not_run(tmp_path, browser):
    texts = [f"good {attack}" for attack in ATTACKS] + [f"bad {attack}" for attack in ATTACKS]
    rows = texts * 2, [ATTACKS[0]] * 10 + [ATTACKS[8]] * 10 + [ATTACKS[0]] * 10 + [ATTACKS[8]] * 10
    with tiny.no_pictures():
        run = flax_attn.train(
            "text_csv",
            data={"train": rows, "test": rows},
            workdir=tmp_path / FOLDER,
            overrides=tiny.TEXTS,
            num_epochs=1,
        )
    requests = []
    with serving([read(run.path)], [Answers(run)]) as url, visiting(browser, url) as opened:
        opened.context.on("request", lambda request: requests.append(request.url))
        for attack in ATTACKS:
            opened.page.locator("textarea").fill(f"good {attack}")
            opened.wait()
            check(opened, requests, url)
        use(opened.page)
        check(opened, requests, url)
        classes = opened.page.locator(".try .bars").inner_text()
        assert ATTACKS[0] in classes
        assert escaped(ATTACKS[8]) in classes
