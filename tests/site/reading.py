"""What the tests of the site read in a page and in a lesson."""

import re
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """The names, addresses and pictures of a page.

    Attributes:
        names: what a link can lead to within the page.
        addresses: of its links, scripts, styles and pictures.
        loaded: those of them that a browser loads with the page.
        pictures: the alternative text of each picture.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names, self.addresses, self.loaded, self.pictures = set(), [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        address = values.get("src") or values.get("href")
        if address and tag != "use":  # which shows a part of the page itself
            self.addresses.append(address)
            if tag != "a" and values.get("rel") not in ("next", "prev", "index", "search"):
                self.loaded.append(address)
        if tag == "img":
            self.pictures.append(values.get("alt", ""))


def dead_links(page: Path, pages: dict[Path, Page]) -> list[str]:
    """The addresses of a page that lead to no file, or to no place in a page of the site."""
    dead = []
    for address in pages[page].addresses:
        if re.match(r"[a-z]+:", address):
            continue
        name, _, place = address.partition("#")
        path = (page.parent / name.partition("?")[0]).resolve() if name else page
        if not path.is_file() or (place and path in pages and place not in pages[path].names):
            dead.append(address)
    return dead


def lines_of_code(cell: dict) -> int:
    """Returns the lines of a cell that count: those of a cell that is shown, without blank ones."""
    if {"hide-input", "hide-cell", "remove-input"} & set(tags(cell)):
        return 0
    return sum(bool(line.strip()) for line in cell["source"].splitlines())


def tags(cell: dict) -> list[str]:
    return cell["metadata"].get("tags", [])


def printed(cell: dict) -> str:
    """Returns what a cell wrote on its standard output."""
    return "".join(output["text"] for output in cell["outputs"] if output.get("name") == "stdout")
