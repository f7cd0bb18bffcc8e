"""Makes the pictures of the docs and the live pages again, from shipped runs and from numbers.

    python -m docs.fresh

It trains nothing. `docs/images/digests.json` then has a digest of the sources of each picture, by
which a test finds one that is older than them. Screenshots need Chromium, as `docs.screenshots`
says.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import flax_attn
from docs import draw, live_pages, of_devices, of_numbers, screenshots, ship
from docs.panels import DOCS
from flax_attn.page.joining import COMMENT

RECORD = DOCS / "images" / "digests.json"
PACKAGE = Path(flax_attn.__file__).parent
OF_NUMBERS = of_devices.PICTURES | of_numbers.PICTURES
PAGE = (".py", ".mjs", ".css", ".html")  # ends of names of the sources of a page
PICTURES = (*draw.PAGES, *OF_NUMBERS, "shapes", *screenshots.PICTURES)


def sources(name: str) -> Iterator[bytes]:
    """Yields what a picture is made of: code, examples, numbers and runs."""
    if name in screenshots.PICTURES:
        files = (path for path in (PACKAGE / "page").rglob("*") if path.suffix in PAGE)
        yield from (COMMENT.sub("", path.read_text()).encode() for path in sorted(files))
        yield ship.place(screenshots.PICTURES[name].run).read_bytes()
        return
    yield from ((DOCS / f"{module}.py").read_bytes() for module in ("draw", "panels"))
    yield (PACKAGE / "analysis" / "drawing.py").read_bytes()
    if name == "shapes":
        yield (DOCS / "of_runs.py").read_bytes()
        yield from (ship.place(run).read_bytes() for run in ("shapes", "shapes_cnn"))
    elif name in OF_NUMBERS:
        yield from (path.read_bytes() for path in sorted((DOCS / "numbers").glob(f"{name}*.csv")))
        yield from ((DOCS / f"{module}.py").read_bytes() for module in ("of_numbers", "of_devices"))
    else:
        yield "".join(draw.blocks_of(draw.before_picture(name))).encode()


def digest(name: str) -> str:
    return hashlib.sha256(b"".join(sources(name))).hexdigest()[:16]


def main() -> None:
    live_pages.write()
    draw.main([])
    screenshots.main([])
    record = {name: digest(name) for name in sorted(PICTURES)}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
