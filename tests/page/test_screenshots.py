"""The pictures of the explorer and of a report are there, light and dark, and stand in a page."""

import struct

import pytest

from docs.screenshots import IMAGES, PICTURES, SCHEMES, SIZE

PAGES = [IMAGES.parent / "explorer.md", IMAGES.parent / "report.md"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_there_in_both_schemes(name):
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for scheme, end in SCHEMES.items():
        picture = (IMAGES / f"{name}{end}.png").read_bytes()
        assert struct.unpack(">II", picture[16:24]) == (SIZE["width"], SIZE["height"])
        assert len(picture) < 250_000
        media = '<source media="(prefers-color-scheme: dark)" srcset="' if scheme == "dark" else ""
        source = f'src="images/{name}.png"' if not media else f"{media}images/{name}{end}.png"
        assert source in text
