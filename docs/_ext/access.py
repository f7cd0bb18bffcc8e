"""What Sphinx and the theme write that a screen reader cannot tell apart, or reads wrongly.

`site.js` mends what stands in no template that can be changed: it names the two bars at the sides.
"""

import re
from typing import Any

from sphinx.application import Sphinx


def mend(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Mends the navigation and the body of a page before it is written."""
    level = ('role="heading"', 'role="heading" aria-level="2"')
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(*level)
    if "body" in context:
        # the parameters of a long signature are a list of definitions without terms
        body = re.sub(r"<dl>\s*((?:<dd>.*?</dd>\s*)+)</dl>", lines_of, context["body"], flags=re.S)
        # what is folded has a name of its own
        body = body.replace(' aria-label="Toggle hidden content"', "")
        # the empty corner of a table is no header
        context["body"] = re.sub(r'<th class="head[^"]*"><p></p></th>', "<td></td>", body)


def lines_of(parameters: re.Match[str]) -> str:
    spans = parameters[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{spans}</span>'


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", mend, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
