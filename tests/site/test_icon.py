"""The site and the pages of runs have the same icon."""

import re

from flax_attn.page.joining import FOLDER
from tests.faults import ROOT


def test_the_icon_of_the_site_is_there_and_is_that_of_the_pages():
    conf = (ROOT / "docs/conf.py").read_text(encoding="utf-8")
    own = re.search(r'^html_favicon = "(.+)"$', conf, re.MULTILINE)
    assert own
    drawn = (ROOT / "docs" / own[1]).read_text(encoding="utf-8")
    page = (FOLDER / "page.html").read_text(encoding="utf-8")
    paths = re.findall(r' d="([^"]+)"', drawn)
    assert paths == re.findall(r" d='([^']+)'", page)
    assert len(paths) == 2
