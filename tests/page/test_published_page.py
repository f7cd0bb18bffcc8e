"""The explorer of a published model in Chromium: heads are chosen and cut, tokens followed."""

import re
import threading

import pytest

import flax_attn
from flax_attn.explore.published import PublishedAnswers, page_data
from flax_attn.page.report import page_of_published
from tests.page.exploring import Visit, axe_finds, serving_page, settle, visiting
from tests.page.test_views import LOOKS, WIDER
from tests.published import tiny

WRITES = {
    "gpt2": tiny.write_gpt2,
    "hybrid": tiny.write_hybrid,
    "words": tiny.write_bert,
    "vit": tiny.write_vit,
}


class Asked:
    """Answers, and all that was asked of them."""

    def __init__(self, run):
        self.answers, self.requests = PublishedAnswers(run), []

    def __call__(self, request):
        self.requests.append(request)
        return self.answers(request)

    def last(self):
        """The newest request that is not of what a change does."""
        return [own for own in self.requests if "changes" not in own][-1]


@pytest.fixture(scope="module", params=WRITES)
def page(request, tmp_path_factory):
    """A page that is served, what answers in it, and the model."""
    folder = WRITES[request.param](tmp_path_factory.mktemp("published") / request.param)
    run = flax_attn.load(folder)
    answers = Asked(run)
    with serving_page(lambda: page_of_published(page_data(run)), [answers]) as url:
        yield request.param, url, answers


def test_a_page_of_a_published_model_tells_of_no_training_and_its_heads_are_cut(page, browser):
    name, url, answers = page
    with visiting(browser, url) as opened:
        settle(opened.page)
        check_what_it_says(opened.page, name)
        if name == "hybrid":
            look_without_softmax(opened.page)
        choose_a_head(opened, answers)
        cut_a_head(opened, answers)
        if name != "vit":
            follow_a_token(opened, answers, has_words_after=name in ("gpt2", "hybrid"))


def check_what_it_says(page, name):
    text = page.locator("main").inner_text()
    heads = "2 or 4" if name == "hybrid" else "2"
    assert page.locator("h1").inner_text().startswith(f"{name}\n2 blocks of {heads} heads, ")
    assert not re.search(r"nan|test|learned|Results|trained for|Reproduce", text)
    assert page.locator("h2:not(.aside)").count() == 0
    assert page.locator(".head-cell").count() == (6 if name == "hybrid" else 4)
    painted = "(all) => all.every((own) => own.width > 3 && own.width === own.height)"
    assert page.locator(".head-cell canvas").evaluate_all(painted)


def look_without_softmax(page):
    """At a head of which the other block has none."""
    page.get_by_role("button", name="block1, head 3").click()
    settle(page)
    labels = page.locator(".try .word").evaluate_all("all => all.map((own) => own.ariaLabel)")
    weights = [float(label.rpartition(": ")[2].replace("\N{MINUS SIGN}", "-")) for label in labels]
    assert min(weights) < 0
    assert page.locator(".try .word.negative").count() == sum(weight < 0 for weight in weights)
    assert page.locator(".token-path dt").all_inner_texts() == [
        *("embedding", "query", "key", "weights", "context"),
    ]
    assert page.get_by_role("group", name="heads of the block").get_by_role("button").count() == 4
    best = max(weights, key=abs)
    assert (
        page.locator(".try-said > span")
        .first.text_content()
        .endswith(f"its strongest weight, {best:g}.".replace("-", "\N{MINUS SIGN}"))
    )


def choose_a_head(opened, answers):
    page = opened.page
    page.get_by_role("button", name=re.compile("block1, head 0")).click()
    opened.wait()
    assert answers.last()["view"] == {"attention": 0, "head": 0, "token": None}
    assert "In block1, head 0, " in opened.sentence()
    for key in ("ArrowDown", "ArrowRight"):  # in rows, as they stand
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    opened.wait()
    assert "In block2, head 1, " in opened.sentence()
    assert page.locator(".head-cell[aria-pressed=true]").count() == 1
    settle(opened.page)


def cut_a_head(opened, answers):
    page = opened.page
    row = page.get_by_role("group", name="heads of the block")
    said = opened.sentence()
    inputs, view = (answers.last()[name] for name in ("inputs", "view"))
    changed = [{"cut": [[1, head]]} for head in range(2)]
    effects = answers.answers({"inputs": inputs, "changes": changed})["effects"]
    shown = [float(text.replace("\N{MINUS SIGN}", "-")) for text in small_texts(row)]
    assert shown == pytest.approx([100 * own for own in effects], rel=0.05)
    row.get_by_role("button", name="head 1").click()
    opened.wait()
    request = answers.last()
    assert request["settings"]["cut"] == [[1, 1]]
    assert request["view"] == view
    cut = page.get_by_role("button", name="block2, head 1, ablated")
    assert "cut" in cut.get_attribute("class")
    settle(opened.page)
    assert small_texts(row)[1] == "off"
    page.get_by_role("button", name="Ablate each head of all blocks").click()
    page.get_by_role("status").get_by_text("Largest effect").wait_for()
    assert (
        page.get_by_role("button", name=re.compile("block1, head 1, effect of ablation")).count()
        == 1
    )
    page.get_by_role("button", name="Reset").click()
    settle(opened.page)
    assert "cut" not in answers.last()["settings"]
    assert opened.sentence() == said


def test_heads_are_cut_also_after_a_press_before_the_first_answer(tmp_path, browser):
    run = flax_attn.load(tiny.write_gpt2(tmp_path))
    answers, is_pressed = PublishedAnswers(run), threading.Event()

    def late(request):
        is_pressed.wait(20)
        return answers(request)

    with serving_page(lambda: page_of_published(page_data(run)), [late]) as url:
        opened = Visit(browser, url)
        button = opened.page.get_by_role("button", name="Ablate each head of all blocks")
        button.click()
        is_pressed.set()
        settle(opened.page)
        button.click()
        opened.page.get_by_role("status").get_by_text("Largest effect").wait_for()
        assert opened.said == []
        opened.context.close()


def small_texts(row):
    return row.locator("small").all_inner_texts()


def follow_a_token(opened, answers, has_words_after):
    page = opened.page
    page.locator(".try .words .word").nth(2).click()
    opened.wait()
    assert answers.last()["view"]["token"] == 2
    path = page.locator(".token-path")
    token = page.locator(".try .words .word").nth(2).inner_text()
    assert path.locator("h3").inner_text() == f"The path of “{token}” through block2, head 1"
    assert path.locator("dt").all_inner_texts() == [
        *("embedding", "query", "key", "scores", "weights", "context"),
    ]
    assert path.locator("tbody tr").count() == (3 if has_words_after else 0)
    hide = page.get_by_role("group", name="tokens", exact=True).get_by_role("button").nth(1)
    hide.click()
    opened.wait()
    assert answers.last()["settings"]["hidden"] == [1]
    settle(opened.page)


@pytest.mark.slow
def test_axe_finds_nothing_and_a_phone_has_no_bar_below(page, browser):
    for look, options in LOOKS.items():
        with visiting(browser, page[1], **options) as opened:
            for summary in opened.page.locator("details:not([open]) > summary").all():
                summary.click()
            assert not (violations := axe_finds(opened.page)), (look, violations)
            assert opened.page.evaluate(WIDER) <= 0, look
