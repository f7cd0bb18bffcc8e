"""Marks short code in tables, which `site.css` keeps on one line."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

LONGEST = 20  # characters of code that stays on one line


class ShortCode(SphinxPostTransform):
    """Marks the short code of all tables of a page."""

    default_priority = 900  # after links are resolved
    formats = ("html",)

    def run(self, **options: object) -> None:
        for cell in self.document.findall(nodes.entry):
            for code in cell.findall(nodes.literal):
                if len(code.astext()) <= LONGEST:
                    code["classes"].append("is-short")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(ShortCode)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
