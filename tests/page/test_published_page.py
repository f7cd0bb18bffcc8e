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
            press_a_cell(opened, answers)
            follow_a_token(opened, answers, has_words_after=name in ("gpt2", "hybrid"))


def check_what_it_says(page, name):
    text = page.locator("main").inner_text()
    heads = "2 or 4" if name == "hybrid" else "2"
    assert page.locator("h1").inner_text() == name
    assert f", 2 blocks of {heads} heads, " in page.locator("h1 + p").inner_text()
    assert not re.search(r"nan|test|learned|Results|trained for|Reproduce", text)
    check_that_all_parts_are_of_one_query(page)
    assert page.locator(".head-cell").count() == (6 if name == "hybrid" else 4)
    painted = "(all) => all.every((own) => own.width > 3 && own.width === own.height)"
    assert page.locator(".head-cell canvas").evaluate_all(painted)


SAID = re.compile(r"Head (\d) of (\w+ \d): (?:from )?(.*?)(?:, (\d.*%) of its| gives )")


def check_that_all_parts_are_of_one_query(page, words=None):
    """Of one head, one query and one key."""
    ((head, name, query, share),) = SAID.findall(said_on(page))
    of = f"Head {head} of {name}"
    path = page.locator(".token-path")
    assert page.locator(".chosen-head h2").inner_text() == of
    assert path.locator("h2").inner_text() == f"The path of {query} through {of.lower()}"
    chosen = page.locator(".head-cell[aria-pressed=true]")
    assert chosen.get_attribute("aria-label").startswith(f"{name}, head {head}")
    if share:
        weights = path.locator("dd", has_text="the scores, normalised").inner_text()
        assert f": {share} on " in weights
    if not (words := words or page.locator(".try .words .word")).count():
        return  # an image
    pressed = words.evaluate_all("all => all.map((own) => own.ariaPressed)")
    token = pressed.index("true")
    assert words.nth(token).inner_text() in query
    row = page.locator(".chosen-head .row-mark").evaluate("(own) => parseFloat(own.style.top)")
    assert row == pytest.approx(100 * token / len(pressed), abs=0.01)


def said_on(page):
    return page.locator(".try-said > span").first.text_content()


def look_without_softmax(page):
    """At a head of which the other block has none."""
    page.get_by_role("button", name="block 0, head 3").click()
    settle(page)
    labels = page.locator(".try .word").evaluate_all("all => all.map((own) => own.ariaLabel)")
    weights = [float(label.rpartition(": ")[2].replace("\N{MINUS SIGN}", "-")) for label in labels]
    assert min(weights) < 0
    assert page.locator(".try .word.negative").count() == sum(weight < 0 for weight in weights)
    assert page.locator(".token-path dt").all_inner_texts() == [
        *("residual", "query", "key", "value", "weights", "context", "output"),
    ]
    assert page.get_by_role("group", name="heads of the block").get_by_role("button").count() == 4
    best = max(weights, key=abs)
    end = f"its strongest weight, {best:g}.".replace("-", "\N{MINUS SIGN}")
    assert said_on(page).endswith(end)


def choose_a_head(opened, answers):
    page = opened.page
    page.get_by_role("button", name=re.compile("block 0, head 0")).click()
    opened.wait()
    view = answers.last()["view"]
    assert (view["attention"], view["head"]) == (0, 0)
    assert opened.sentence().startswith("Head 0 of block 0: ")
    for key in ("ArrowDown", "ArrowRight"):  # in rows, as they stand
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    opened.wait()
    assert opened.sentence().startswith("Head 1 of block 1: ")
    assert page.locator(".head-cell[aria-pressed=true]").count() == 1
    settle(opened.page)
    check_that_all_parts_are_of_one_query(page)


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
    cut = page.get_by_role("button", name="block 1, head 1, ablated")
    assert "cut" in cut.get_attribute("class")
    settle(opened.page)
    assert small_texts(row)[1] == "off"
    page.get_by_role("button", name="Ablate each head of all blocks").click()
    page.get_by_role("status").get_by_text("Largest effect").wait_for()
    assert (
        page.get_by_role("button", name=re.compile("block 0, head 1, effect of ablation")).count()
        == 1
    )
    page.get_by_role("button", name="Reset").click()
    settle(opened.page)
    assert "cut" not in answers.last()["settings"]
    assert opened.sentence() == said


def press_a_cell(opened, answers):
    page = opened.page
    tokens = page.locator(".try .words .word").all_inner_texts()
    canvas = page.locator(".chosen-head .heat canvas")
    box = canvas.bounding_box()
    q, k = 3, 1
    place = [(i + 0.5) / len(tokens) * box[side] for i, side in ((k, "width"), (q, "height"))]
    canvas.click(position=dict(zip("xy", place)))
    opened.wait()
    assert answers.last()["view"]["token"] == q
    check_that_all_parts_are_of_one_query(page)
    *_, share = SAID.findall(opened.sentence())[0]
    assert page.locator(".word.selected-key").all_inner_texts() == tokens[k : k + 1]
    label = page.locator(".try .words .word").nth(k).get_attribute("aria-label")
    assert label.endswith(f": {share}")
    left = page.locator(".chosen-head .cell-mark").evaluate("(own) => parseFloat(own.style.left)")
    assert left == pytest.approx(100 * k / len(tokens), abs=0.01)
    view = answers.last()["view"]
    assert view["key"] == k
    rows = page.locator(".chosen-head tbody tr").count()
    assert rows == (0 if answers.answers.is_linear[view["attention"]] else 3)  # pairs of parts
    page.keyboard.press("ArrowDown")
    opened.wait()
    assert answers.last()["view"]["token"] == q + 1


def test_a_page_can_be_used_before_its_first_answer(tmp_path, browser):
    run = flax_attn.load(tiny.write_gpt2(tmp_path))
    answers, is_pressed = PublishedAnswers(run), threading.Event()

    def late(request):
        is_pressed.wait(20)
        return answers(request)

    with serving_page(lambda: page_of_published(page_data(run)), [late]) as url:
        opened = Visit(browser, url)
        button = opened.page.get_by_role("button", name="Ablate each head of all blocks")
        assert not button.is_visible()
        opened.page.get_by_role("button", name="block 0, head 1").click()
        opened.page.locator(".try-controls select").select_option(label="hard: the best key alone")
        is_pressed.set()
        settle(opened.page)
        assert opened.sentence().startswith("Head 1 of block 0: ")
        button.click()
        opened.page.get_by_role("status").get_by_text("Largest effect").wait_for()
        assert opened.said == []
        opened.context.close()


def test_a_model_without_an_answer_has_none_to_change(tmp_path, browser):
    run = flax_attn.load(tiny.write_bert(tmp_path, "states"))
    make = lambda: page_of_published(page_data(run))
    with serving_page(make, [PublishedAnswers(run)]) as url, visiting(browser, url) as opened:
        settle(opened.page)
        assert opened.page.locator(".bars, .effects").count() == 0
        check_that_all_parts_are_of_one_query(opened.page)


def small_texts(row):
    return row.locator("small").all_inner_texts()


def follow_a_token(opened, answers, has_words_after):
    page = opened.page
    page.locator(".try .words .word").nth(2).click()
    opened.wait()
    assert answers.last()["view"]["token"] == 2
    path = page.locator(".token-path")
    token = page.locator(".try .words .word").nth(2).inner_text()
    assert path.locator("h2").inner_text().startswith(f"The path of “{token}”")
    assert path.locator("dt").all_inner_texts() == [
        *("residual", "query", "key", "value", "scores", "weights", "context", "output"),
    ]
    assert path.locator("tbody tr").count() == (3 if has_words_after else 0)
    hide = page.get_by_role("group", name="tokens", exact=True).get_by_role("button").nth(1)
    hide.click()
    opened.wait()
    assert answers.last()["settings"]["hidden"] == [1]
    settle(opened.page)


def test_a_page_follows_a_written_token_to_its_source(tmp_path, browser):
    run = flax_attn.load(tiny.write_t5(tmp_path))
    answers, text = Asked(run), "a dog sat"
    made = run.predict(text)
    words, source = made.target_tokens[0][0], made.tokens[0]
    page_of = lambda: page_of_published(page_data(run) | {"text": text})
    with serving_page(page_of, [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        settle(page)
        assert page.locator(".chosen-head h2").inner_text().endswith("of cross 0")
        line = lambda name: page.get_by_role("group", name=name).locator(".word")
        written = line("What is written")
        for name, queries, count in (
            ("encoder 1", line("The source"), 2),
            ("decoder 0", written, 3),
            ("cross 0", written, 2),
        ):
            page.get_by_role("button", name=f"{name}, head 1").click()
            opened.wait()
            assert page.locator(".try .words:not(.effects)").count() == count
            queries.nth(1).click()
            opened.wait()
            check_that_all_parts_are_of_one_query(page, queries)
            has_key = page.locator(".token-path dt").filter(has_text="key").count()
            assert has_key == (name != "cross 0")
        view = answers.last()["view"]
        assert view == {"attention": 3, "head": 1, "token": 1, "source": 1, "key": None}
        shown = line("The source").evaluate_all("all => all.map((own) => own.ariaLabel)")
        shares = [float(label.rpartition(": ")[2].rstrip(" %")) for label in shown]
        assert shares == pytest.approx(100 * made.attention["cross0"][0][1, 1], abs=0.6)
        assert f"“{words[1].strip()}”" in opened.sentence().replace("␣", "")
        shape = page.locator(".heat canvas").evaluate("own => own.height / own.width")
        assert shape == pytest.approx((len(words) + 1) / len(source), rel=0.01)
        line("The source").nth(2).click()  # a key
        opened.wait()
        assert answers.last()["view"] == view | {"key": 2}
        check_that_all_parts_are_of_one_query(page, written)
        settle(page)
        row = page.get_by_role("group", name="heads of the block")
        inputs, changes = answers.last()["inputs"], [{"cut": [[3, head]]} for head in range(2)]
        asked = {"inputs": inputs, "view": view, "changes": changes}
        effects = [100 * own for own in answers.answers(asked)["effects"]]
        shown = [float(text.replace("\N{MINUS SIGN}", "-")) for text in small_texts(row)]
        assert shown == pytest.approx(effects, rel=0.05)


@pytest.mark.slow
def test_axe_finds_nothing_and_a_phone_has_no_bar_below(page, browser):
    for look, options in LOOKS.items():
        with visiting(browser, page[1], **options) as opened:
            closed = opened.page.locator("details:not([open]) > summary")
            while closed.count():
                closed.first.click()
            assert not (violations := axe_finds(opened.page)), (look, violations)
            assert opened.page.evaluate(WIDER) <= 0, look
