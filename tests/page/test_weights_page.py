"""The page of weights in Chromium: heads, tokens, cells, lines, and pictures that are saved."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import flax_attn
from tests.page.attacks import ATTACKS
from tests.page.exploring import axe_finds
from tests.page.test_colours import ground
from tests.page.test_views import LOOKS, PHONE

MINUS = "\N{MINUS SIGN}"
SVG = "{http://www.w3.org/2000/svg}"
WORDS = ["the", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "tired"]
PLACE = {word: i for i, word in enumerate(WORDS)}
CHOSEN = ".chosen-head h2"


def told():
    """Weights of two layers of three heads; one head tells what "it" is."""
    weights = np.full((2, 3, 11, 11), 1 / 11)
    row = np.full(11, 0.29 / 10)
    row[PLACE["animal"]] = 0.71
    weights[1, 2, PLACE["it"]] = row
    weights[0, 0] = np.eye(11)
    weights[0, 1] = np.eye(11, k=1) + 0
    weights[0, 1, -1, 0] = 1
    return weights


@pytest.fixture
def opened(visit, tmp_path):
    """Opens the page of weights."""

    def open_page(*arguments, look=None, **options):
        path = flax_attn.show(*arguments, **options).save(tmp_path / "page.html")
        return visit(path, **look or {})

    return open_page


def strip(page, i=0):
    return page.locator(".words").nth(i).locator(".word")


def cell_of(page, q, k, shape):
    """Where a cell of the matrix is, in pixels of the window."""
    box = page.locator(".chosen-head canvas").bounding_box()
    down, across = (box["height"] / shape[0], box["width"] / shape[1])
    return box["x"] + (k + 0.5) * across, box["y"] + (q + 0.5) * down


def test_it_begins_with_what_tells_something_and_answers_pointing(opened):
    visited = opened(told(), WORDS, title="a model")
    page = visited.page
    told_first = "In layer 1, head 2, “it” looks most at “animal”, with 71 %."
    assert visited.sentence().replace("\xa0", " ") == told_first
    title = "a model: 2 layers of 3 heads, 11 queries and 11 keys"
    assert page.locator("h1").inner_text() == title
    assert page.locator(CHOSEN).inner_text() == "layer 1, head 2"
    assert page.locator(".head-cell").count() == 6
    assert strip(page).nth(8).get_attribute("aria-pressed") == "true"
    assert strip(page).nth(1).get_attribute("aria-label") == "animal: 71\xa0%"
    colour = "(own) => getComputedStyle(own).backgroundColor"
    assert strip(page).nth(1).evaluate(colour) != strip(page).nth(2).evaluate(colour)
    strip(page).nth(2).hover()
    assert "“did” looks most at “the” at 0, with 9.1" in visited.sentence()
    page.mouse.move(*cell_of(page, 8, 4, (11, 11)))
    assert "“it” puts 2.8" in visited.sentence()
    assert visited.sentence().endswith("of its weight on “cross”.")
    page.mouse.move(2, 2)
    assert visited.sentence().replace("\xa0", " ") == told_first


def test_what_was_pressed_stays_when_the_pointer_leaves(opened):
    visited = opened(told(), WORDS)
    visited.page.locator(".head-cell").nth(1).click()
    assert visited.page.locator(CHOSEN).inner_text() == "layer 0, head 1"
    strip(visited.page).nth(3).click()
    strip(visited.page).nth(5).hover()
    assert "“the” at 5 looks most at “street”" in visited.sentence()
    visited.page.mouse.move(2, 2)
    assert "“not” looks most at “cross”, with 100" in visited.sentence()
    visited.page.mouse.click(*cell_of(visited.page, 7, 8, (11, 11)))
    visited.page.mouse.move(2, 2)
    assert "“because” puts 100" in visited.sentence()
    visited.page.locator(".head-cell").nth(0).click()
    assert (
        visited.sentence()
        == "In layer 0, head 0, “because” looks most at “because”, with 100\xa0%."
    )


def test_lines_run_from_queries_to_keys(opened):
    visited = opened(told(), WORDS)
    page = visited.page
    page.get_by_role("button", name="Lines").click()
    assert page.locator(".chosen-head .heat").is_hidden()
    query = page.get_by_role("group", name="Queries at the left").get_by_role("button")
    assert query.nth(8).get_attribute("aria-pressed") == "true"
    widths = page.locator(".weight.chosen").evaluate_all(
        "(all) => all.map((line) => Number(line.getAttribute('stroke-width')))"
    )
    assert len(widths) == 11
    assert max(widths) == pytest.approx(0.5 + 7 * 0.71, abs=0.05)
    query.nth(8).focus()
    page.keyboard.press("ArrowUp")
    assert "“because” looks most at" in visited.sentence()
    page.keyboard.press("Home")
    assert "“the” at 0 looks most at" in visited.sentence()
    assert page.locator(".legend").nth(1).is_hidden()


def test_a_visit_by_keyboard(opened):
    visited = opened(told(), WORDS)
    page = visited.page
    strip(page).nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert "“animal” looks most at" in visited.sentence()
    page.locator(".head-cell[tabindex='0']").focus()
    for key in ("ArrowUp", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    assert page.locator(CHOSEN).inner_text() == "layer 0, head 1"
    page.locator(".chosen-head canvas").focus()
    page.keyboard.press("ArrowDown")
    assert "“did” puts" in visited.sentence()
    page.keyboard.press("End")
    assert "on “tired”." in visited.sentence()
    page.get_by_text("Numbers: what each query looks at most").press("Enter")
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").count() == 11
    assert page.locator("tbody tr").nth(2).inner_text().split("\t")[1] == "“not”"


def test_queries_and_keys_of_two_languages_have_their_own_tokens(opened):
    weights = np.eye(3, 4) * 0.8 + 0.05
    visited = opened(weights, ["the", "dog", "sleeps"], ["der", "Hund", "schläft", "."])
    page = visited.page
    assert page.locator("h1").inner_text() == "attention weights: 3 queries and 4 keys"
    assert page.locator(".head-cell").count() == 0
    strip(page, 0).nth(1).hover()
    assert visited.sentence() == "“dog” looks most at “Hund”, with 85\xa0%."
    strip(page, 1).nth(3).hover()
    assert visited.sentence() == "“dog” puts 5.0\xa0% of its weight on “.”."


def test_masked_cells_are_hatched_and_the_legend_says_so(opened):
    weights = np.tril(np.random.default_rng(0).dirichlet(np.ones(4), (2, 4)))
    weights[1, 3] = np.nan
    visited = opened(weights / weights.sum(-1, keepdims=True), list("abcd"))
    page = visited.page
    assert page.locator(".hatched-key").inner_text().startswith("hatched: exactly 0 in every head")
    page.mouse.move(*cell_of(page, 0, 2, (4, 4)))
    assert visited.sentence().endswith("“a” may not look at “c”.")
    pixel = """([q, k]) => {
        const canvas = document.querySelector('.chosen-head canvas');
        const [x, y] = [(k + 0.5) * canvas.width / 4, (q + 0.5) * canvas.height / 4];
        const copy = new OffscreenCanvas(8, 8).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, -x, -y);
        return [...copy.getImageData(0, 0, 8, 8).data];
    }"""
    hatched = np.reshape(page.evaluate(pixel, [0, 2]), (-1, 4))
    assert set(hatched[:, 3]) >= {0}
    assert hatched[:, 3].max() > 0
    page.locator(".head-cell").nth(1).click()
    assert page.evaluate(pixel, [3, 1])[:4] == [213, 94, 0, 255]
    strip(page).nth(3).hover()
    assert visited.sentence().endswith("“d” has no weight that is a number.")
    assert page.locator(".note").count() == 1
    own = opened(np.eye(3), list("abc"), mask=np.tri(3, dtype=bool))
    assert own.page.locator(".hatched-key").inner_text() == "hatched: masked"


def signed_weights():
    """Weights without softmax: “it” reads -0.31 of “animal”."""
    weights = np.tri(11) * 0.05
    weights[PLACE["it"], PLACE["animal"]] = -0.31
    return weights


def test_weights_below_0_have_a_sign_and_another_colour(opened):
    visited = opened(signed_weights(), WORDS)
    page = visited.page
    assert visited.sentence() == f"“it” gives “animal” its strongest weight, {MINUS}0.31."
    page.mouse.move(*cell_of(page, 8, 2, (11, 11)))
    assert visited.sentence() == "“it” gives “did” the weight 0.05."
    page.mouse.move(2, 2)
    animal, did = strip(page).nth(1), strip(page).nth(2)
    assert animal.get_attribute("aria-label") == f"animal: {MINUS}0.31"
    red, blue = (ground(word) for word in (animal, did))
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    line = "(own) => getComputedStyle(own).textDecorationLine"
    assert [word.evaluate(line) for word in (animal, did)] == ["underline", "none"]
    ticks = page.locator(".chosen-head .ticks span").all_inner_texts()
    assert (ticks[0], ticks[len(ticks) // 2], ticks[-1]) == (f"{MINUS}0.31", "0", "0.31")
    root = ElementTree.fromstring(saved_picture(page, "SVG")[1])
    fills = [path.get("fill") or "" for path in root.iter(f"{SVG}path")]
    cells = [[*map(int, fill[4:-1].split(","))] for fill in fills if fill.startswith("rgb")]
    assert {red > blue for red, _, blue in cells} == {True, False}
    page.get_by_role("button", name="Lines").click()
    lines = page.locator(".weight.chosen")
    dashed = lines.evaluate_all("all => all.map(own => getComputedStyle(own).strokeDasharray)")
    assert [dash != "none" for dash in dashed] == [i == 1 for i in range(9)]
    widths = lines.evaluate_all("all => all.map(own => Number(own.getAttribute('stroke-width')))")
    assert max(widths) == pytest.approx(7.5, abs=0.05)  # that of the largest size
    page.locator("summary").click()
    assert page.locator("tbody tr").nth(8).inner_text().split("\t")[1:] == [
        "“animal”",
        f"{MINUS}0.31",
    ]


@pytest.mark.parametrize(
    ("shape", "tokens", "said"),
    [
        ((1, 1), ["one"], "“one” looks most at “one”, with 100\xa0%."),
        ((512, 512), None, "Query "),
        ((2, 130, 130), [str(i) for i in range(130)], "In head "),
        ((1, 9), None, "Query 0 looks most at key "),
    ],
)
def test_one_cell_and_many(shape, tokens, said, opened):
    weights = np.random.default_rng(0).dirichlet(np.ones(shape[-1]) * 0.1, shape[:-1])
    visited = opened(weights, tokens)
    assert visited.sentence().startswith(said)
    assert visited.page.locator(".words").count() == (tokens is not None)
    assert visited.page.get_by_role("button", name="Lines").count() == (shape[-1] <= 128)
    box = visited.page.locator(".chosen-head canvas").bounding_box()
    visited.page.mouse.move(box["x"] + 3, box["y"] + 3)
    assert " puts " in visited.sentence()


def test_layers_of_different_heads_stand_in_rows_of_their_own(opened):
    layers = {"first": np.eye(4), "second": np.stack([np.eye(4)] * 3), "third": np.eye(4)[None]}
    visited = opened(layers)
    names = visited.page.locator(".head-cell").evaluate_all("(all) => all.map((own) => own.title)")
    assert names == ["first", *(f"second, head {i}" for i in range(3)), "third"]
    tops = visited.page.locator(".head-cell").evaluate_all(
        "(all) => all.map((own) => Math.round(own.getBoundingClientRect().top))"
    )
    assert len(set(tops)) == 3
    assert tops[1] == tops[3]
    visited.page.locator(".head-cell").last.click()
    assert visited.sentence().startswith("In third, query ")


def test_no_token_runs_and_none_steers(opened):
    count = len(ATTACKS)
    weights = np.random.default_rng(0).dirichlet(np.ones(count), (2, count))
    visited = opened({ATTACKS[0]: weights, ATTACKS[1]: weights}, ATTACKS, title=ATTACKS[0])
    page = visited.page
    for word in strip(page).all():
        word.hover()
    page.get_by_role("button", name="Lines").click()
    assert page.evaluate("window.harm") is None
    assert page.locator("main script, main img, main style, main iframe").count() == 0
    assert len(visited.requests) == 1
    for end in ("SVG", "PNG"):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Save as {end}").click()
        assert re.fullmatch(r"\w+\.(svg|png)", saved.value.suggested_filename)
        content = saved.value.path().read_bytes()
        if end == "SVG":
            assert not ElementTree.fromstring(content).findall(f".//{SVG}script")


def saved_picture(page, end):
    with page.expect_download() as saved:
        page.get_by_role("button", name=f"Save as {end}").click()
    return saved.value.suggested_filename, saved.value.path().read_bytes()


def texts_of(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def test_a_picture_is_saved_in_light_colours_with_its_tokens(opened):
    visited = opened(told(), WORDS, title="a model", look={"color_scheme": "dark"})
    name, content = saved_picture(visited.page, "SVG")
    assert name == "a_model_layer_1_head_2.svg"
    root = ElementTree.fromstring(content)
    texts = texts_of(root)
    assert texts[0] == "a model: layer 1, head 2"
    assert texts.count("attention weight, square-root scale") == 1
    assert [word for word in WORDS if texts.count(word) < 2] == []
    fills = {path.get("fill") for path in root.iter(f"{SVG}path")}
    assert root.find(f"{SVG}rect").get("fill") == "#ffffff"
    assert len(fills) > 2
    name, content = saved_picture(visited.page, "PNG")
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    size = [2 * int(root.get(side)) for side in ("width", "height")]
    assert [*picture.size] == size
    assert picture.getpixel((2, 2)) == (255, 255, 255)
    assert np.asarray(picture).min() < 60  # letters
    visited.page.get_by_role("button", name="Lines").click()
    root = ElementTree.fromstring(saved_picture(visited.page, "SVG")[1])
    strong = [line for line in root.iter(f"{SVG}line") if line.get("stroke") == "#0069a6"]
    assert len(strong) == 11
    assert [word for word in WORDS if texts_of(root).count(word) < 2] == []
    assert saved_picture(visited.page, "PNG")[1].startswith(b"\x89PNG")


def test_a_picture_of_masked_weights_says_what_is_hatched(opened):
    visited = opened(np.tril(np.ones((3, 3))) / [[1], [2], [3]], list("abc"))
    root = ElementTree.fromstring(saved_picture(visited.page, "SVG")[1])
    hatched = [own for own in root.iter(f"{SVG}path") if own.get("fill") == "url(#hatch)"]
    assert [own.get("d") for own in hatched] == ["M1 0h2v1h-2zM2 1h1v1h-1z"]
    assert texts_of(root)[-1].startswith("hatched: exactly 0 in every head")


def test_pictures_are_saved_from_the_frame_of_a_notebook(browser, tmp_path):
    outside = tmp_path / "notebook.html"
    outside.write_text(f"<p>cell</p>{flax_attn.show(told(), WORDS)._repr_html_()}")
    context = browser.new_context(offline=True)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.goto(outside.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("#page[data-ready]").wait_for()
    for end in ("SVG", "PNG"):
        with page.expect_download() as saved:
            frame.get_by_role("button", name=f"Save as {end}").click()
        assert saved.value.path().stat().st_size > 1000
    assert page.frames[1].evaluate("origin") == "null"
    context.close()
    assert said == []


def test_a_phone_has_no_bar_below(opened):
    many = np.random.default_rng(0).dirichlet(np.ones(40), (12, 12, 40))
    visited = opened(many, [f"token{i}" for i in range(40)], look=PHONE)
    assert visited.overflows() <= 0
    visited.page.get_by_role("button", name="Lines").click()
    assert visited.overflows() <= 0
    strip(visited.page).nth(4).tap()
    assert "“token4” looks most at" in visited.sentence()


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("view", ["Matrix", "Lines"])
def test_axe_finds_nothing(look, view, opened):
    weights = np.tril(told())
    weights[1, 1, 5, 2] = np.nan
    weights[1] *= np.where(np.arange(11) % 3, 1, -1)
    visited = opened(weights, WORDS, look=LOOKS[look])
    visited.page.get_by_role("button", name=view).click()
    visited.page.locator("summary").click()
    assert not (violations := axe_finds(visited.page)), violations
