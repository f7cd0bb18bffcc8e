"""The site: it is whole, asks no machine for anything, and is for everyone. The course: each lesson
has its parts, and its exercise tells right from wrong.
"""

import re

import pytest

from tests.site.conftest import ROOT
from tests.site.reading import Page, dead_links, headings, lines_of_code, printed, tags

pytestmark = pytest.mark.full

DOCS = ROOT / "docs"
SOURCES = [
    path.relative_to(ROOT)
    for path in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *DOCS.rglob("*.rst")])
    if "_build" not in path.parts
]
PAGES = [*(path.with_suffix(".html").as_posix() for path in SOURCES), "search.html", "index.html"]
LESSONS = sorted(path.stem for path in (DOCS / "course").glob("[0-9]*.md"))
PARTS = ["From scratch", "By the library", "Exercise", "Try it", "Summary"]
WHOLE = ("README.html", "docs/api/attend.html")
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(site):
    """All pages, read."""
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
    """A page of a browser without a network, and what it asked for and said."""
    context = browser.new_context(offline=True, viewport=DESKTOP)
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    context.close()


def overflow(page):
    """By how many pixels the page is wider than its window."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def axe_faults(page, whole=False, **options):
    """What axe finds, by rule. The list of all pages, which is on every page, is in the whole."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = None if whole else {"exclude": [[".sidebar-drawer"]]}
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


def test_without_scripts_the_formula_is_typeset_and_its_table_explains_it(site, browser):
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto((site.pages / "docs" / "course" / "03_scores.html").as_uri())
    assert page.locator(".formula math msqrt").bounding_box()["width"] > 5
    first = page.locator("#the-formula table td:first-child").all_inner_texts()
    assert sorted(first) == sorted(LIT)
    context.close()


# The course


@pytest.fixture(scope="module")
def lessons(site):
    """The executed lessons by name."""
    nbformat = pytest.importorskip("nbformat")
    folder = site.notebooks / "docs" / "course"
    return {name: nbformat.read(folder / f"{name}.ipynb", as_version=4) for name in LESSONS}


def number_of(name):
    """The number of a lesson: 0, 4 or 4a."""
    return name.partition("_")[0].removeprefix("0")


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_its_parts(name, lessons):
    title, *parts = [line for line in headings(lessons[name]) if not line.startswith("###")]
    assert title.startswith(f"# {number_of(name)}. ")
    assert "## The picture" in parts
    assert [part for part in parts if part != "## The picture"] == [f"## {part}" for part in PARTS]
    text = lessons[name].cells[-1]["source"]
    assert re.search(r"^Source: \S", text, re.MULTILINE)
    assert len(re.findall(r"^(?:- |\d\. )", text.split("## Summary")[1], re.MULTILINE)) == 3
    if name != LESSONS[-1]:
        after = LESSONS[LESSONS.index(name) + 1]
        link = rf"^Next: \[{number_of(after)}\. .*\]\({after}\.md\)"
        assert re.search(link, text, re.MULTILINE)


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


def test_the_seconds_of_the_lessons(site, lessons, capsys):
    """Written, not judged: another machine takes another time."""
    jupyter_cache = pytest.importorskip("jupyter_cache")
    records = jupyter_cache.get_cache(str(site.outputs)).list_cache_records()
    name_of = lambda record: record.uri.rpartition("/")[2]
    seconds = {name_of(record): record.data["execution_seconds"] for record in records}
    assert len(seconds) == len(lessons)
    with capsys.disabled():
        for name, number in sorted(seconds.items()):
            print(f"\n{name} {number:.1f} s", end="")
        print(f"\nlessons together {sum(seconds.values()):.1f} s")
