"""Pages in a browser, and runs that they show."""

import pytest

from flax_attn.page.report import report
from flax_attn.runs.reading import read
from tests.written_runs import write_run


class Visit:
    """A page that is open: its requests and all that its console said."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.requests, self.said = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#page[data-ready]")

    def sentence(self, number=0):
        """The sentence under a picture."""
        return self.page.locator(".sentence > span:first-child").nth(number).text_content()

    def overflows(self):
        """By how many pixels the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@pytest.fixture
def visit(browser):
    """Opens a page; all are closed after the test, and none may have said anything."""
    visits = []

    def open_page(path, **options):
        visits.append(Visit(browser, path, **options))
        return visits[-1]

    yield open_page
    for visit in visits:
        visit.context.close()
    assert [visit.said for visit in visits] == [[] for _ in visits]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The run directory of a kind, and its report."""
    folder, made = tmp_path_factory.mktemp("written"), {}

    def write(*kinds):
        for kind in kinds:
            if kind not in made:
                made[kind] = write_run(folder / kind, kind, seed=len(made))
        runs = [read(made[kind]) for kind in kinds]
        path = folder / f"{'-'.join(kinds)}.html"
        if not path.exists():
            path.write_text(report(runs), encoding="utf-8")
        return runs[0] if len(runs) == 1 else runs, path

    return write
