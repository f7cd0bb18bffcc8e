"""The explorer in Chromium: what is dragged, typed and changed is answered by the model."""

import re
import time

import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn
from flax_attn.explore.answers import Answers
from flax_attn.explore.under_lens import NORMALIZERS
from flax_attn.runs import shipped
from flax_attn.runs.reading import read
from flax_attn.tasks.replies import numbers_of
from tests import tiny
from tests.page.exploring import Visit, axe_finds, command, serving, stop, visiting

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
# trained for long enough that the answer follows a drag
SHAPES = tiny.ATTENTION | tiny.SHAPES | {"steps_per_epoch": 60, "learning_rate": 0.01}


def train(name, folder, overrides, **options):
    with tiny.no_pictures():
        run = flax_attn.train(name, workdir=folder, overrides=overrides, num_epochs=1, **options)
    return run, read(folder)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return train("shapes_attention:tutorial", tmp_path_factory.mktemp("runs") / "shapes", SHAPES)


@pytest.fixture(scope="module")
def answers(shapes):
    return Asked(Answers(shapes[0]))


class Asked:
    """Answers, with what the input and the settings were answered last."""

    def __init__(self, answers):
        self.answers, self.last, self.delays, self.number = answers, None, {}, 0

    def __call__(self, request):
        time.sleep(self.delays.get(request["settings"]["normalizer"], 0))
        reply = self.answers(request)
        if not request.get("brief"):  # as those are that hide each part in turn
            self.number += 1
            self.last = request, reply
        return reply


def signal_of(request):
    (own,) = request["inputs"].values()
    return np.array(own["data"], np.float32)


def curve(page, name):
    """The numbers of a curve, from its path: heights from 0 to 27 over 92 per cent of a plot."""
    path = page.locator(f"path.try-{name}").get_attribute("d")
    points = [float(y) for y in re.findall(r",(-?[\d.]+)", path)]
    return np.array([27 - (y - 4) * 27 / 92 for y in points])


COUNT = """() => {
  window.updates = 0;
  const watch = new MutationObserver(() => { window.updates += 1; });
  watch.observe(document.querySelector("path.try-answer-0"), { attributeFilter: ["d"] });
}"""


def drag(visit, moves=60):
    """Drags the first triangle with the mouse, a step each frame; the number of updates."""
    page = visit.page
    page.evaluate(COUNT)
    box = page.locator(".try-handle").first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for i in range(moves):
        page.mouse.move(x - 2 * (i % 30), y + i, steps=1)
        page.wait_for_timeout(25)
    page.mouse.up()
    visit.wait()
    return page.evaluate("window.updates")


def test_the_command_answers_every_move_of_a_drag_and_ends_on_ctrl_c(shapes, browser):
    run, record = shapes
    with command(run.path) as (process, url):
        with visiting(browser, url) as opened:
            before = curve(opened.page, "answer-0")
            expected = record.examples["predictions"][0, :, 0]
            np.testing.assert_allclose(before, expected, atol=0.05)
            assert drag(opened) >= 55
            moved = run.predict(curve(opened.page, "input")).outputs
            np.testing.assert_allclose(curve(opened.page, "answer-0"), moved, atol=0.2)
            assert abs(moved - before).max() > 0.1
            check_that_what_is_hidden_stays_so(opened.page)
        code, err = stop(process)
    assert (code, err) == (130, "stopped\n")


def check_that_what_is_hidden_stays_so(page):
    """While the other parts are hidden in turn, for the evidence beside the weights."""
    asked, evidence = [], page.locator(".effects-part[aria-busy=false]")
    evidence.wait_for()
    page.on("request", lambda request: asked.append(request.post_data_json))
    page.get_by_role("button", name="Mask this triangle").click()
    page.locator(".effects-part[aria-busy=true]").wait_for()
    evidence.wait_for()
    first, *others = (set(own["settings"]["hidden"]) for own in asked if own.get("brief"))
    assert len(first) > 1
    assert len({frozenset(hidden) for hidden in others}) == 4
    assert all(first <= hidden for hidden in others)


@pytest.mark.slow
def test_settings_change_the_answer_and_reset_brings_it_back_bit_for_bit(shapes, answers, browser):
    run, record = shapes
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        page.locator(".try").get_by_role("button", name="example 1", exact=True).click()
        opened.wait()
        first = answers.last
        np.testing.assert_allclose(
            numbers_of(first[1]["outputs"]),
            run.predict(signal_of(first[0])).outputs[:, None],
            atol=1e-4,
        )
        said, drawn = opened.sentence(), curve(page, "answer-0")
        opened.select("hard: the best key alone")
        page.get_by_role("slider", name="temperature").press("ArrowRight")
        page.get_by_role("checkbox", name="may not look ahead").check()
        page.get_by_role("button", name="Mask this triangle").click()
        opened.wait()
        shown = page.get_by_role("button", name="Unmask this triangle")
        assert shown.get_attribute("aria-pressed") == "true"
        settings = answers.last[0]["settings"]
        assert (settings["normalizer"], settings["causal"]) == ("hard", True)
        assert settings["temperature"] > 1
        center, width = (record.examples[name][1, 0] for name in ("centers", "widths"))
        inside = [t for t in range(100) if abs(t - center) <= width / 2]
        assert settings["hidden"] == inside
        assert (numbers_of(answers.last[1]["attention"]["attention"])[..., inside] == 0).all()
        assert opened.sentence() != said
        page.get_by_role("button", name="Reset").click()
        opened.wait()
        assert answers.last == first
        assert opened.sentence() == said
        np.testing.assert_array_equal(curve(page, "answer-0"), drawn)


@pytest.mark.slow
def test_while_an_answer_is_awaited_the_figure_says_so(shapes, answers, browser):
    with serving([shapes[1]], [answers]) as url, visiting(browser, url) as opened:
        page, said = opened.page, opened.sentence()
        late = page.locator(".try-late span")
        assert not late.is_visible()
        answers.delays = {"hard": 0.7, "sparsemax": 0.7}
        opened.select("hard: the best key alone")
        assert page.locator(".try-figure").get_attribute("aria-busy") == "true"
        assert "awaited" in page.locator(".try-said").get_attribute("class")
        opened.select("sparsemax: most become 0")  # the newest wins
        late.wait_for()
        assert late.inner_text() == "computing …"
        assert not page.locator(".try-said").is_visible()  # it is of the answer before
        assert page.locator(".try-plot").evaluate("own => getComputedStyle(own).opacity") == "0.35"
        opened.wait()
        assert not late.is_visible()
        assert "awaited" not in page.locator(".try-said").get_attribute("class")
        assert answers.last[0]["settings"]["normalizer"] == "sparsemax"
        outputs = numbers_of(answers.last[1]["outputs"])[:, 0]
        np.testing.assert_allclose(curve(page, "answer-0"), outputs, atol=0.05)
        assert opened.sentence() != said
        answers.delays = {}


@pytest.mark.slow
def test_keys_move_a_shape_and_scores_become_weights_in_numbers(shapes, answers, browser):
    with serving([shapes[1]], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        handle = page.get_by_role("slider", name="triangle 1")
        before = float(handle.get_attribute("aria-valuenow"))
        handle.press("ArrowUp")
        assert float(handle.get_attribute("aria-valuenow")) == pytest.approx(before + 0.5, abs=0.06)
        assert "height" in handle.get_attribute("aria-valuetext")
        opened.wait()
        page.locator(".try-formula summary").click()
        page.locator(".try-term").first.wait_for()  # made when the part is opened
        terms = page.locator(".try-term").all_text_contents()
        weights = [float(re.search(r"([\d.]+)$", term)[1]) for term in terms]
        assert sum(weights) == pytest.approx(1, abs=0.01)
        best = re.search(r"score ([^:]+): exp\(0.00\) / ([\d.]+) = ([\d.]+)", terms[0])
        assert float(best[3]) == pytest.approx(1 / float(best[2]), abs=6e-4)
        line = page.locator(".try-curve-line").get_attribute("points")
        heights = [float(point.split(",")[1]) for point in line.split()]
        assert heights[-1] == pytest.approx(6, abs=0.1)
        assert heights[-1] < min(heights[:-1])  # no flat roof
        reply = answers.last[1]
        q = round(float(re.search(r"position (\d+)", handle.get_attribute("aria-valuetext"))[1]))
        row = numbers_of(reply["scores"]["attention"])[0, q]
        assert float(best[1].replace(MINUS, "-")) == pytest.approx(row.max(), abs=0.006)


def query_of(page):
    """The query of each part: dashed line, row of the map, what they say, and the formula."""
    cursor = float(page.locator(".try-plot .try-step").get_attribute("x1")) - 0.5
    row = page.locator(".try-marked .row-mark").evaluate("node => parseFloat(node.style.top)")
    said = page.locator(".try-row .hint").text_content()
    formula = page.locator(".try-formula p").first.text_content()
    numbers = [re.search(r"position (\d+)", text)[1] for text in (said, formula)]
    weight = re.search(r"puts (\S+)\s%.*? on position (\d+)", said)
    return [round(cursor), round(row), *map(int, numbers)], (float(weight[1]), int(weight[2]))


def test_all_parts_of_the_shapes_page_show_one_query(shapes, answers, browser):
    with serving([shapes[1]], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        page.locator(".try-formula summary").click()
        page.locator(".try-term").first.wait_for()
        weights = numbers_of(answers.last[1]["attention"]["attention"])[0]
        for number in (0, 3):
            page.locator(".try-handle").nth(number).focus()
            queries, (share, key) = query_of(page)
            assert queries == [round(shapes[1].examples["centers"][0, number])] * 4
            assert key == weights[queries[0]].argmax()
            assert share == pytest.approx(100 * weights[queries[0], key], abs=0.51)
        canvas = page.locator(".try-marked canvas")
        canvas.focus()
        canvas.press("Home")
        canvas.press("ArrowUp")
        queries, (share, key) = query_of(page)
        assert queries == [round(shapes[1].examples["centers"][0, 3]) - 1] * 4
        assert (key, share) == (0, pytest.approx(100 * weights[queries[0], 0], abs=0.51))


@pytest.mark.slow
def test_every_normalizer_has_its_error_on_the_test_examples(shapes, answers, browser):
    run, record = shapes
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        opened.page.get_by_role("button", name="Compare all normalisers").click()
        table = opened.page.locator(".try-compare table")
        table.wait_for(timeout=60_000)
        names = table.locator("tbody th").all_text_contents()
        assert names == ["as trained", "softmax", "entmax-1.5", "sparsemax", "top-k", "hard"]
        rows = [row.split("\t") for row in table.locator("tbody").inner_text().splitlines()]
        inputs, targets = (record.examples[name][:4] for name in ("inputs", "targets"))
        error = np.sqrt(np.square(np.asarray(run.predict(inputs).outputs) - targets).mean())
        errors = {row[0]: float(row[1]) for row in rows}
        assert errors["as trained"] == errors["softmax"] == pytest.approx(error, rel=0.01)
        change = float(rows[-1][2].replace(MINUS, "-"))
        assert change == pytest.approx(errors["hard"] - errors["as trained"], rel=0.06)
        assert change != 0
        keys = {row[0]: float(row[3]) for row in rows}
        assert keys["hard"] == 1 < keys["top-k"] <= 3
        opened.page.get_by_role("slider", name="temperature").press("ArrowRight")
        opened.wait()
        table.wait_for(state="detached")  # it was of another temperature


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_and_the_page_goes_on(shapes, browser):
    sync_api = pytest.importorskip("playwright.sync_api")
    with command(shapes[0].path) as (process, url):
        opened = Visit(browser, url)
        opened.wait()
        said = opened.sentence()
        stop(process)
    opened.page.get_by_role("slider", name="triangle 1").press("PageUp")
    problem = opened.page.locator(".try-problem")
    sync_api.expect(problem).to_contain_text("Start it again")
    assert opened.sentence() == ""
    port = url.rstrip("/").rpartition(":")[2]
    with command(shapes[0].path, "--port", port) as (_, again):
        assert again == url
        sync_api.expect(problem).to_have_text("", timeout=20_000)
        opened.wait()
        assert opened.sentence() not in ("", said)
    opened.context.close()


WORDS = ["a good film", "a bad film", "good and long", "bad and long", "the good", "the bad"]
JUDGED = {name: (WORDS * 7, ["good", "bad"] * 21) for name in ("train", "test")}


@pytest.mark.slow
def test_a_typed_text_is_answered_and_attention_stands_beside_evidence(tmp_path, browser):
    overrides = tiny.TEXTS | {"steps_per_epoch": 60, "learning_rate": 0.01}
    run, record = train("text_csv", tmp_path / "run", overrides, data=JUDGED)
    answers = Answers(run)
    written = "the good <b>film</b>"
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        page.locator("textarea").fill(written)
        opened.wait()
        expected = run.predict(written)
        shares = dict(zip(expected.names, np.asarray(expected.outputs)[0]))
        name, share = next(iter(answers(asked(written))["classes"]))
        assert f"{name} ({100 * share:.0f}{SPACE}%)" in opened.sentence()
        assert share == pytest.approx(shares[name], abs=1e-6)
        words = page.locator(".try .words .word")
        tokens = answers(asked(written))["tokens"]
        assert words.count() == len(tokens)
        page.wait_for_selector(f".try-change:nth-child({len(tokens)})")  # not the first example's
        changes = [share_of(answers, written, [k], name) - share for k in range(len(tokens))]
        shown = page.locator(".try-change small").all_text_contents()
        numbers = [float(one.replace(MINUS, "-")) for one in shown]
        np.testing.assert_allclose(numbers, 100 * np.array(changes), rtol=0.06)
        words.nth(1).click()
        opened.wait()
        assert words.nth(1).get_attribute("aria-pressed") == "true"
        hidden = share_of(answers, written, [1], name)
        assert f"{100 * hidden:.0f}{SPACE}%" in page.locator(".try .bars").inner_text()
        held, late = [], page.locator(".try-late span")
        page.route("**/ask", lambda route: held.append(route))
        page.locator("textarea").fill("good")
        late.wait_for()
        for route in held:
            route.continue_()
        page.unroute("**/ask")
        opened.wait()
        assert page.locator(".try .words").first.is_visible()
        page.locator(".try-formula summary").click()
        page.locator(".try-term").first.wait_for()
        page.locator("textarea").fill("  ")
        page.wait_for_selector(".try-figure.stale")
        assert page.locator(".try-term").count() == 0
        assert not page.locator(".try .words").first.is_visible()  # it is of the text before
        assert page.locator(".try-problem").text_content()


def asked(written, hidden=()):
    return {"inputs": {"text": written}, "settings": {"hidden": list(hidden)}}


def share_of(answers, written, hidden, name):
    return dict(answers(asked(written, hidden))["classes"])[name]


@pytest.mark.slow
def test_two_runs_answer_the_same_signal(shapes, answers, tmp_path, browser):
    run, record = train("shapes_cnn", tmp_path / "cnn", tiny.CNN | tiny.SHAPES)
    other = Asked(Answers(run))
    with serving([shapes[1], record], [answers, other]) as url, visiting(browser, url) as opened:
        opened.page.get_by_role("slider", name="box 1").press("ArrowUp")
        opened.wait()
        for number, own in enumerate([answers, other]):
            drawn, outputs = curve(opened.page, f"answer-{number}"), own.last[1]["outputs"]
            np.testing.assert_allclose(drawn, numbers_of(outputs)[:, 0], atol=0.05)
        assert answers.last[0]["inputs"] == other.last[0]["inputs"]
        assert f"{record.name}: triangles set to" in opened.sentence()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    random = np.random.default_rng(0)
    images = random.uniform(size=(40, 28, 28)).astype(np.float32)
    rows = images, [str(i % 10) for i in range(40)]
    folder = tmp_path_factory.mktemp("runs") / "digits"
    return train("mnist_attention", folder, tiny.STEPS, data={"train": rows, "test": rows})


@pytest.mark.slow
def test_a_drawn_digit_is_centred_as_mnists_are_and_every_move_is_answered(digits, browser):
    run, record = digits
    answers = Asked(Answers(run))
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        first = signal_of(answers.last[0]).reshape(28, 28)
        np.testing.assert_allclose(first, record.examples["inputs"][0], atol=0.005)
        page.get_by_role("button", name="Clear the paper").click()
        opened.wait()
        assert "empty" in opened.sentence()
        box = page.locator(".try-paper").bounding_box()
        place = lambda x, y: (box["x"] + x * box["width"], box["y"] + y * box["height"])
        before = answers.number
        page.mouse.move(*place(0.1, 0.1))
        page.mouse.down()
        for i in range(40):
            page.mouse.move(*place(0.1 + 0.01 * i, 0.1 + 0.015 * i))
            opened.wait()  # a move within the same pixels asks nothing
        page.mouse.up()
        opened.wait()
        assert answers.number - before >= 20
        request, reply = answers.last
        drawn = signal_of(request).reshape(28, 28)
        shares = np.asarray(run.predict(drawn).outputs)[0]
        np.testing.assert_allclose(numbers_of(reply["outputs"]), shares, atol=1e-6)
        ink = 1 - drawn  # files have dark ink on light paper
        for axis in (0, 1):
            mass = ink.sum(axis=axis)
            assert (mass * np.arange(28)).sum() / mass.sum() == pytest.approx(13.5, abs=0.6)
            assert np.ptp(np.flatnonzero(mass > 0.5)) <= 20
        name, share = reply["classes"][0]
        assert f"{name} ({100 * share:.0f}{SPACE}%)" in opened.sentence()


INK = """([row, column]) => {
  const pen = document.querySelector(".try-paper").getContext("2d");
  return pen.getImageData(4 * column + 1, 4 * row + 1, 1, 1).data[0];
}"""


@pytest.mark.slow
def test_a_digit_is_drawn_by_keyboard(digits, browser):
    run, record = digits
    answers = Asked(Answers(run))
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        page.get_by_role("button", name="Clear the paper").click()
        opened.wait()
        page.keyboard.press("Shift+Tab")  # the paper stands before the button
        paper = page.locator(".try-paper")
        assert paper.evaluate("own => own === document.activeElement")
        where = page.locator(".try-drawing .sentence > span").first
        assert where.inner_text() == "Cursor in row 15, column 15."
        assert page.locator(".try-cursor").is_visible()
        for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "Space"):
            page.keyboard.press(key)
        assert where.inner_text() == "Cursor in row 13, column 14, drawn."
        assert page.evaluate(INK, [12, 13]) == 255
        assert page.evaluate(INK, [12, 20]) == 0
        before = answers.number
        for _ in range(8):
            page.keyboard.press("Shift+ArrowRight")
            page.wait_for_timeout(30)
        for _ in range(12):
            page.keyboard.press("Shift+ArrowDown")
            page.wait_for_timeout(30)
        opened.wait()
        assert answers.number - before >= 12
        assert page.evaluate(INK, [12, 17]) == page.evaluate(INK, [20, 21]) == 255
        drawn = 1 - signal_of(answers.last[0]).reshape(28, 28)  # files have dark ink
        assert 20 < drawn.sum() < 300
        name, share = answers.last[1]["classes"][0]
        assert f"{name} ({100 * share:.0f}{SPACE}%)" in opened.sentence()
        page.keyboard.press("Delete")
        assert page.evaluate(INK, [24, 21]) == 0
        for _ in range(30):
            page.keyboard.press("ArrowDown")  # the paper ends
        assert where.inner_text() == "Cursor in row 28, column 22."
        assert not (violations := axe_finds(page)), violations


NAMES = tiny.STEPS | {"model.features": 16, "model.num_heads": 2, "data.num_lines": 300}
SHOWN = """() => ({
  isBusy: document.querySelector(".try-figure").getAttribute("aria-busy") === "true",
  text: document.querySelector("textarea").value,
  labels: [...document.querySelectorAll("[aria-label='the text'] .word")].map((word) =>
    word.getAttribute("aria-label")),
})"""


def percent(share):
    """As the page writes a share."""
    hundredths = 100 * share
    is_small = 0.05 <= hundredths < 9.95
    return f"{hundredths:.1f}{SPACE}%" if is_small else f"{int(hundredths + 0.5)}{SPACE}%"


@pytest.mark.slow
def test_what_the_next_character_looks_at_is_shown_while_the_model_writes(tmp_path, browser):
    run, record = train("names", tmp_path / "run", NAMES)
    answers = Asked(Answers(run))
    attention = list(record.attention)[-1]
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        page, texts = opened.page, ["ka"]
        page.locator(".try-figure select").select_option(label=attention)  # its first head
        page.locator("textarea").fill("ka")
        opened.wait()
        page.get_by_role("button", name="Let the model write").click()
        deadline = time.monotonic() + 60
        while len(texts) < 5 and time.monotonic() < deadline:
            shown = page.evaluate(SHOWN)
            if shown["isBusy"] or shown["text"] == texts[-1]:
                continue
            before = shown["text"][:-1]  # of one more character, a likely one, or of several
            assert before.startswith(texts[-1])
            texts.append(shown["text"])
            writes = answers.answers(asked(before))["writes"]
            written = [chr(codes[0]) for codes in writes if codes]
            assert shown["text"][-1] in written
            reply = answers.answers(asked(shown["text"]))
            weights = numbers_of(reply["attention"][attention])[0, 0]
            shares = [label.rpartition(": ")[2] for label in shown["labels"]]
            assert shares == [percent(weight) for weight in weights.tolist()]
        assert len(texts) == 5
        page.get_by_role("button", name="Stop writing").click()
        stopped = page.locator("textarea").input_value()
        page.wait_for_timeout(1200)
        assert page.locator("textarea").input_value() == stopped
        assert page.get_by_role("button", name="Let the model write").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["translation", "series"])
def test_scores_become_weights_on_the_pages_of_loops_too(kind, tmp_path, browser):
    series = tiny.STEPS | {"model.features": 8, "data.num_train": 64, "data.num_test": 8}
    config, overrides = {
        "translation": ("reverse_bahdanau:quick", tiny.PAIRS | {"data.num_train": 64}),
        "series": ("series_input_attention", series),
    }[kind]
    run, record = train(config, tmp_path / "run", overrides)
    answers = Asked(Answers(run))
    with serving([record], [answers]) as url, visiting(browser, url) as opened:
        page = opened.page
        opened.select("sparsemax: most become 0")
        opened.wait()
        page.locator(".try-formula summary").click()
        page.locator(".try-term").first.wait_for()
        expect = pytest.importorskip("playwright.sync_api").expect
        if kind == "series":
            at, slider = 3, page.get_by_role("slider", name="position to look at")
            slider.focus()
            slider.press("Home")
            for _ in range(3):
                slider.press("ArrowRight")
            expect(page.locator(".try-formula")).to_contain_text("is position 3")
        else:
            parts = page.get_by_role("group", name="input above, output below").get_by_role(
                "button"
            )
            at, chosen = parts.count() - 1, parts.last
            chosen.focus()
            sentence = rf"“{chosen.text_content()}”( at {at})? attends most to"
            expect(page.locator(".try-said")).to_contain_text(re.compile(sentence))
        (name,) = answers.last[1]["scores"]
        row = numbers_of(answers.last[1]["scores"][name])[0, at]
        weights = np.asarray(NORMALIZERS["sparsemax"](jnp.asarray(row)))
        terms = page.locator(".try-term").all_text_contents()
        shown = [float(re.search(r"([\d.]+)$", term)[1]) for term in terms if " = " in term]
        best = np.sort(weights)[::-1][: len(shown)]
        np.testing.assert_allclose(shown, best, atol=6e-4)
        first = float(re.search(r"max\((\S+) ", terms[0])[1].replace(MINUS, "-"))
        assert first == pytest.approx(row.max(), abs=0.006)


@pytest.fixture(scope="module")
def dates():
    """The address of the shipped run, whose texts are answered by Python."""
    path = shipped.unpacked("dates")
    with serving([read(path)], [Answers(flax_attn.load("dates"))]) as url:
        yield url


def test_a_link_holds_the_input_and_the_settings(dates, browser):
    with visiting(browser, dates) as visit:
        visit.page.locator(".try textarea").fill("5 may 1967")
        visit.page.get_by_label("normaliser").first.select_option(index=5)
        visit.wait()
        visit.page.get_by_role("button", name="Copy link").click()
        visit.page.wait_for_function("location.hash.length > 1")
        link, said = visit.page.url, visit.sentence()
    with visiting(browser, link) as visit:
        visit.wait()
        assert visit.page.locator(".try textarea").input_value() == "5 may 1967"
        assert visit.page.get_by_label("normaliser").first.input_value() == "5"
        assert visit.sentence() == said
        visit.page.get_by_role("button", name="Projector mode").click()
        assert not visit.page.get_by_role("heading", name="Results").is_visible()


def test_the_six_steps_go_from_a_query_to_its_context_by_the_keyboard(dates, browser):
    with visiting(browser, dates) as visit:
        visit.wait()
        guide = visit.page.locator(".guide")
        guide.locator("summary").click()
        for i, name in enumerate(["query", "keys", "scores", "softmax", "values", "context"], 1):
            guide.get_by_role("heading", name=f"{i} of 6: {name}").wait_for()
            assert guide.locator("p").first.inner_text()
            visit.page.keyboard.press("ArrowRight")
        assert not axe_finds(visit.page)
