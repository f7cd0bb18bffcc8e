"""Pictures of the explorer and of a report, light and dark, as Chromium shows them.

python -m docs.screenshots [NAME ...]

It needs `pip install playwright`, and Chromium. The runs are the shipped ones.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from docs.ship import unpacked

IMAGES = Path(__file__).parent / "images"
CHROMIUM = Path("/usr/bin/chromium")
SIZE = {"width": 1080, "height": 900}
SCHEMES = {"light": "", "dark": "_dark"}  # by the end of a file's name
SETTLED = "body:not(:has([aria-busy=true]))"
Page = Any  # of playwright, which is for tests and pictures alone


class Picture(NamedTuple):
    """A shipped run, whether it is explored or reported, and what is done before it is shown."""

    run: str
    explored: bool
    use: Callable[[Page], None]


def leave(page: Page) -> None:
    """Shows the page as it opens."""


def translate_a_date(page: Page) -> None:
    """Types a date, and points at a digit of the month, which was read from its name."""
    page.locator("textarea").fill("wednesday, 16 july 1969")
    page.wait_for_selector(SETTLED)
    page.get_by_role("group", name="input above, output below").get_by_role("button").nth(6).hover()


def write_a_name(page: Page) -> None:
    """Goes to what can be tried, and types the beginning of a name."""
    page.locator(".try textarea").fill("kalina")
    page.wait_for_selector(SETTLED)
    page.locator(".try").first.scroll_into_view_if_needed()
    page.evaluate("document.querySelector('.try').scrollIntoView()")


PICTURES = {
    "explorer": Picture("shapes", True, leave),
    "explorer_translation": Picture("dates", True, translate_a_date),
    "report_language": Picture("names", False, write_a_name),
}


@contextlib.contextmanager
def exploring(run: Path) -> Iterator[str]:
    """Returns the address of the explorer of a run, while it answers."""
    command = [sys.executable, "-m", "flax_attn", "explore", str(run), "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        if address is None:
            raise SystemExit(f"the explorer of {run} did not start")
        yield address[0]
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def reporting(run: Path) -> Iterator[str]:
    """Returns the address of the report of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        command = [sys.executable, "-m", "flax_attn", "report", str(run), "-o", str(path)]
        subprocess.run(command, check=True)
        yield path.as_uri()


def make_small(path: Path) -> None:
    """Leaves a picture at most 256 colours."""
    picture = Image.open(path).convert("RGB")
    method = Image.Quantize.MAXCOVERAGE  # a scale of colours is small, and needs many of them
    picture = picture.quantize(256, method, kmeans=2, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


def draw(name: str, browser: Any) -> list[Path]:
    """Draws a picture in each scheme of colours, and returns the paths."""
    run, explored, use = PICTURES[name]
    paths = []
    with unpacked(run) as path, (exploring if explored else reporting)(path) as address:
        for scheme, end in SCHEMES.items():
            context = browser.new_context(color_scheme=scheme, viewport=SIZE)
            page = context.new_page()
            page.goto(address)
            page.wait_for_selector(".try-figure[aria-busy=false]")
            page.wait_for_timeout(500)  # then what hiding does is asked
            page.wait_for_selector(SETTLED)
            use(page)
            page.wait_for_timeout(500)
            page.wait_for_selector(SETTLED)
            paths.append(IMAGES / f"{name}{end}.png")
            page.screenshot(path=paths[-1])
            make_small(paths[-1])
            context.close()
    return paths


def main(arguments: list[str] | None = None) -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    args = parser.parse_args(arguments)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=options)
        for name in args.names or PICTURES:
            for path in draw(name, browser):
                print(path)


if __name__ == "__main__":
    main()
