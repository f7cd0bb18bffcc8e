"""The site: it is whole, asks no machine for anything, and is for everyone. The course: each lesson
has its parts, and its exercise tells right from wrong.
"""

import json
import re

import pytest

from tests.site.conftest import ROOT
from tests.site.reading import Page, dead_links, lines_of_code, printed, tags

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
SOURCES = [
    path.relative_to(ROOT)
    for path in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *DOCS.rglob("*.rst")])
    if "_build" not in path.parts
]
PAGES = [*(path.with_suffix(".html").as_posix() for path in SOURCES), "search.html", "index.html"]
LESSONS = sorted(path.stem for path in (DOCS / "course").glob("[0-9]*.md"))
WHOLE = ("README.html", "docs/api/attend.html")
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
IN_DARK = (*WHOLE, "docs/course/03_scores.html", "docs/attention/masks.html", "search.html")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(site):
    """Returns all pages, read."""
    live = site.pages / "docs" / "live"
    paths = [path for path in site.pages.rglob("*.html") if path.parent != live]
    return {path.resolve(): Page(path) for path in paths}


def test_the_site_is_built_without_a_warning(site):
    assert "build succeeded" in site.log
    assert "WARNING:" not in site.log


def test_every_page_of_the_repository_is_on_the_site(site):
    assert [page for page in PAGES if not (site.pages / page).is_file()] == []


def test_every_link_leads_somewhere(site, pages):
    dead = {path.name: dead_links(path, pages) for path in pages}
    assert {name: links for name, links in dead.items() if links} == {}


def test_nothing_is_loaded_from_elsewhere(pages):
    loaded = {address for page in pages.values() for address in page.loaded}
    assert not [address for address in loaded if re.match(r"([a-z]+:)?//", address)]


def test_every_picture_says_what_is_seen(pages):
    for path, page in pages.items():
        wrong = [text for text in page.pictures if not text.strip() or text.endswith(".png")]
        assert wrong == [], path.name


def test_live_pages_are_copied_as_they_are_and_linked(site, pages):
    files = sorted((DOCS / "live").glob("*.html"))
    linked = set()
    for path, page in pages.items():
        linked |= {(path.parent / address).resolve() for address in page.addresses}
    for file in files:
        copy = site.pages / "docs" / "live" / file.name
        assert copy.read_bytes() == file.read_bytes()
        assert copy.resolve() in linked


# In the browser


@pytest.fixture(scope="module")
def visitor(site, browser):
    """Returns a page of a browser without a network, and what it asked for and said."""
    context = browser.new_context(offline=True, viewport=DESKTOP)
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    context.close()


def overflow(page):
    """Returns by how many pixels the page is wider than its window."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def axe_faults(page, whole=False, within=None, **options):
    """What axe finds, by rule, in the whole page, within what a selector selects, or in the page
    without the list of all pages, which is on every page.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = {"include": [[within]]} if within else {"exclude": [[".sidebar-drawer"]]}
    context = None if whole else context
    options = {"resultTypes": ["violations"], "preload": False, **options}
    results = axe.run(page, context, options).response
    return {
        fault["id"]: [node["html"][:200] for node in fault["nodes"]]
        for fault in results["violations"]
    }


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everyone(name, site, visitor):
    """In light and dark, on a large screen and on a phone."""
    visitor.said.clear()
    visitor.asked.clear()
    visitor.set_viewport_size(DESKTOP)
    visitor.emulate_media(color_scheme="light")
    visitor.goto((site.pages / name).as_uri())
    if name == "index.html":
        visitor.wait_for_url("**/README.html")
        return
    whole = name in WHOLE
    faults = {"light": axe_faults(visitor, whole), "wide": overflow(visitor)}
    visitor.emulate_media(color_scheme="dark")
    if name in IN_DARK:
        faults["dark"] = axe_faults(visitor, whole, **({} if whole else COLOURS))
    visitor.set_viewport_size(PHONE)
    faults["narrow"] = overflow(visitor)
    if whole:
        faults["phone"] = axe_faults(visitor, whole)
    faults["said"] = list(visitor.said)
    faults |= {"asked": [url for url in visitor.asked if not url.startswith(("file:", "data:"))]}
    assert {what: fault for what, fault in faults.items() if fault and fault != 0} == {}


def test_search_works_without_a_network(site, visitor):
    visitor.said.clear()
    visitor.set_viewport_size(DESKTOP)
    visitor.goto((site.pages / "README.html").as_uri())
    field = visitor.locator(".sidebar-search")
    field.fill("mask")
    field.press("Enter")
    results = visitor.locator("#search-results li a")
    results.first.wait_for()
    visitor.get_by_text("Search finished").wait_for()
    assert {"docs/attention/masks.html", "docs/api/masks.html"} <= {
        re.sub(r"[?#].*", "", link.get_attribute("href")) for link in results.all()
    }
    results.first.click()
    assert "mask" in visitor.locator("article").inner_text().lower()
    assert visitor.said == []


def test_pictures_follow_the_theme(site, visitor):
    """A picture that was drawn twice is changed, another one is turned; by system and by button."""
    visitor.set_viewport_size(DESKTOP)
    visitor.emulate_media(color_scheme="light")
    visitor.goto((site.pages / "README.html").as_uri())
    visitor.evaluate("localStorage.clear()")
    visitor.reload()

    def look():
        twins = [visitor.locator(f"img.only-{theme}").first for theme in ("light", "dark")]
        shown = [twin.is_visible() for twin in twins]
        visitor.goto((site.pages / "docs" / "course" / "01_soft_dictionary.html").as_uri())
        turned = visitor.locator("article img:not(.only-dark, .only-light)").first
        turning = turned.evaluate("image => getComputedStyle(image).filter")
        visitor.goto((site.pages / "README.html").as_uri())
        return [*shown, turning != "none"]

    assert look() == [True, False, False]
    visitor.emulate_media(color_scheme="dark")
    assert look() == [False, True, True]
    button = visitor.locator(".theme-toggle-content .theme-toggle")
    for _ in range(2):  # auto, then light or dark, then the other
        button.click()
        theme = visitor.evaluate("document.body.dataset.theme")
        assert look() == ([False, True, True] if theme == "dark" else [True, False, False])
    visitor.evaluate("localStorage.clear()")
    visitor.emulate_media(color_scheme="light")


# The formula of attention

TURNED = "\N{DOWN TACK}"
LIT = {  # the boxes and words of the drawing that each letter lights up, by their order
    "context": ["context"],
    "softmax": ["scores", "softmax →", "weights"],
    "Q": ["Q"],
    "K": [f"K{TURNED}"],
    TURNED: [f"K{TURNED}"],
    "d": ["d", "d", "÷ √d →"],
    "V": ["V"],
}
WAYS = {  # by mouse, finger and keyboard
    "mouse": lambda page, letter: page.locator(".formula mi", has_text=exactly(letter)).hover(),
    "finger": lambda page, letter: page.locator(".formula mi", has_text=exactly(letter)).tap(),
    "keyboard": lambda page, letter: page.keyboard.press("Tab"),
}


def exactly(text):
    return re.compile(f"^{text}$")


@pytest.mark.parametrize("way", WAYS)
def test_each_letter_of_the_formula_says_what_it_is(way, site, browser):
    """The line beside it is its row of the table; its matrices light up, and nothing else does."""
    context = browser.new_context(
        offline=True, viewport={"width": 360, "height": 740}, has_touch=True
    )
    page = context.new_page()
    page.goto((site.pages / "docs" / "course" / "03_scores.html").as_uri())
    table = page.locator("#the-formula table")
    page.locator("#the-formula > p").first.click()  # from here Tab goes on
    letters = [mi.text_content() for mi in page.locator(".formula mi").all()]
    assert sorted(letters) == sorted(LIT)
    for letter in letters:
        WAYS[way](page, letter)
        said = page.locator(".formula-said").inner_text()
        cells = [cell.inner_text() for cell in table.locator("tr.lit").locator("td").all()]
        assert cells[0] == letter
        assert said.startswith(f"{letter}: ")
        assert [cell for cell in cells if cell not in said] == []
        lit = page.locator(".formula-drawing .lit").evaluate_all(
            "parts => parts.map(part => part.textContent || part.nextSibling.textContent)"
        )
        assert sorted(lit) == sorted(LIT[letter])
        pressed = page.locator(".formula-letters [aria-pressed=true]")
        assert pressed.all_text_contents() == [letter]
    assert overflow(page) == 0
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert axe_faults(page) == {}
    context.close()


# The course


@pytest.fixture(scope="module")
def lessons(site):
    """The executed lessons by name: those that the pages show, each with the outputs on record."""
    nbformat, jupyter_cache = map(pytest.importorskip, ("nbformat", "jupyter_cache"))
    folder, record = site.notebooks / "docs" / "course", jupyter_cache.get_cache(str(site.outputs))
    read = lambda name: nbformat.read(folder / f"{name}.ipynb", as_version=4)
    return {name: record.merge_match_into_notebook(read(name))[1] for name in LESSONS}


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_short_and_says_nothing_on_stderr(name, lessons):
    code = [cell for cell in lessons[name].cells if cell.cell_type == "code"]
    assert sum(map(lines_of_code, code)) <= 60
    outputs = [output for cell in code for output in cell["outputs"]]
    assert [output for output in outputs if output.get("name") == "stderr"] == []


@pytest.mark.parametrize("name", LESSONS)
def test_an_exercise_tells_right_from_wrong(name, lessons):
    begins = {"exercise": "Not answered yet.", "answer": "Right", "wrong-answer": "Not yet"}
    for tag, beginning in begins.items():
        cells = [cell for cell in lessons[name].cells if tag in tags(cell)]
        assert cells, tag
        for cell in cells:
            assert printed(cell).startswith(beginning), (tag, printed(cell))


# What answers on a page

ANSWERS = {  # right, wrong; a function makes them of the facts in the page
    "01_soft_dictionary": (["1", "-1"], ["1", "0"]),
    "02_averaging_what_is_similar": (["1.5"], ["0.1"]),
    "03_scores": (["32"], ["8"]),
    "04_masks": (
        [[c - r in range(-1, 4) for c in range(7)] for r in range(7)],
        [[r - c in range(-1, 4) for c in range(7)] for r in range(7)],
    ),
    "04a_from_numpy_to_flax": (["20"], ["15"]),
    "05_one_layer_that_sees_everything": (["0.07"], ["0.0062"]),
    "08_which_words_mattered": (lambda facts: [str(facts["share"])], ["1"]),
    "09_encoder_and_decoder": (
        lambda facts: [str(share) for share in facts["words"]],
        ["0.9", "0.8"],
    ),
    "10_transformer_block": (
        ["attention/out", "feed_forward/out"],
        ["attention/query", "feed_forward/hidden"],
    ),
    "11_small_gpt": (["5050", "100"], ["10000", "100"]),
    "12_sparse_hard_local": (["10"], ["1"]),
    "15_which_head_does_it": (
        lambda facts: [str(facts["falls"].index(max(facts["falls"])))],
        lambda facts: [str(facts["falls"].index(min(facts["falls"])))],
    ),
    "16_images_as_patches": (["196", "16"], ["196", "4"]),
    "17_what_todays_models_changed": (["131072"], ["524288"]),
    "18_a_memory_that_forgets": (["4.92"], ["3"]),
}
OWN_ANSWERS = "04_masks", "05_one_layer_that_sees_everything"  # not those of the lesson's cells


def open_lesson(visitor, site, name):
    visitor.said.clear()
    visitor.set_viewport_size(DESKTOP)
    visitor.emulate_media(color_scheme="light")
    visitor.goto((site.pages / "docs" / "course" / f"{name}.html").as_uri())


def fill(box, answer):
    """Answers an exercise by the mouse and the keyboard, and returns what the page says."""
    if callable(answer):
        answer = answer(json.loads(box.locator("script").text_content()))
    for line, wanted in zip(box.locator("tr:has(button)").all(), answer):
        for cell, is_true in zip(line.locator("button").all(), wanted):
            if (cell.get_attribute("aria-pressed") == "true") != is_true:
                cell.click()
    for field, text in zip(box.locator("input[type=text]").all(), answer):
        field.fill(text)
    for choice in box.locator("label.choice").all():
        if choice.locator("input").is_checked() != (choice.inner_text() in answer):
            choice.click()
    box.get_by_role("button", name="Check").click()
    return box.get_by_role("status").text_content()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_exercise_is_answered_on_the_page(name, site, visitor, lessons):
    open_lesson(visitor, site, name)
    box = visitor.locator(".part[data-part=exercise]")
    box.get_by_role("button", name="Check").click()
    assert box.get_by_role("status").text_content() == "Not answered yet."
    cells = {tag: cell for cell in lessons[name].cells for tag in tags(cell)}
    faults = {}
    for answer, tag, begins in zip(
        ANSWERS[name], ("answer", "wrong-answer"), ("Right: ", "Not yet: ")
    ):
        said = fill(box, answer)
        assert said.startswith(begins)
        if name not in OWN_ANSWERS:
            assert said == printed(cells[tag]).rstrip("\n")
        for scheme in ("light", "dark"):
            visitor.emulate_media(color_scheme=scheme)
            faults[begins, scheme] = axe_faults(visitor, within=".part")
        visitor.set_viewport_size(PHONE)
        faults[begins, "narrow"] = overflow(visitor)
        visitor.set_viewport_size(DESKTOP)
    assert {what: fault for what, fault in faults.items() if fault} == {}
    # the form is in the place of the cell, but where the answer is code, too
    assert visitor.locator(".cell.tag_exercise").is_visible() == (name == "04_masks")
    assert visitor.said == []


def test_a_form_is_answered_by_the_keyboard(site, visitor):
    open_lesson(visitor, site, "03_scores")
    box = visitor.locator(".part[data-part=exercise]")
    box.get_by_label("divisor").focus()
    visitor.keyboard.type("32")
    visitor.keyboard.press("Enter")
    assert box.get_by_role("status").text_content().startswith("Right")
    open_lesson(visitor, site, "04_masks")
    visitor.get_by_role("button", name="query 0, key 0").focus()
    for key in ("Space", "ArrowRight", "Space", "ArrowDown", "ArrowLeft", "Enter"):
        visitor.keyboard.press(key)
    box = visitor.locator(".part[data-part=exercise]")
    pressed = box.locator("[aria-pressed=true]").all()
    names = [cell.get_attribute("aria-label") for cell in pressed]
    assert names == ["query 0, key 0", "query 0, key 1", "query 1, key 0"]
    visitor.keyboard.press("Tab")
    visitor.keyboard.press("Enter")
    assert "query 0 may attend to key 2" in box.get_by_role("status").text_content()


def test_sliders_move_their_pictures(site, visitor):
    moved = 0
    for name in LESSONS:
        open_lesson(visitor, site, name)
        box = visitor.locator(".part[data-part=picture]")
        for slider in box.locator("input[type=range]").all():
            slider.focus()
            visitor.keyboard.press("Home")
            first = box.locator("svg").inner_html()
            visitor.keyboard.press("End")
            assert box.locator("svg").inner_html() != first, name
            moved += 1
    assert moved > 5
    assert visitor.said == []


def test_the_network_of_lesson_5_follows_a_triangle(site, visitor):
    """The answer at the right triangle moves towards the height of the left one."""
    open_lesson(visitor, site, "05_one_layer_that_sees_everything")
    box = visitor.locator(".part[data-part=picture]")

    def answer():
        says = box.locator(".says").text_content()
        assert "in the left triangle" in says
        return [float(number) for number in re.findall(r"is (\d+\.\d)", says)]

    for key in ("End", "Home"):
        box.get_by_label("right triangle", exact=True).focus()
        visitor.keyboard.press(key)
        there, mean = answer()
        assert abs(there - mean) < 3


def test_a_review_is_read_in_the_page_of_lesson_8(site, visitor):
    open_lesson(visitor, site, "08_which_words_mattered")
    box = visitor.locator(".part[data-part=picture]")
    choose = lambda name, word: box.get_by_label(name, exact=True).select_option(word)
    for number in (1, 2, 3):
        choose(f"adjective of clause {number}", "great")
        choose(f"adverb of clause {number}", "very")
    assert "says praise" in box.locator(".says").text_content()
    for number in (1, 2):
        choose(f"adverb of clause {number}", "not")
    assert "says blame" in box.locator(".says").text_content()
    before = box.locator(".review").inner_text()
    box.locator("label.field select").select_option("3")
    assert "Network 3 says blame" in box.locator(".says").text_content()
    assert box.locator(".review").inner_text() != before
