"""Files beside the pages: pictures for light and dark, live pages, and the first page.

- A picture `NAME.png` with a `NAME_dark.png` beside it is shown by theme. `site.css` turns the
  colours of the others in the dark.
- A `<picture>`, which is raw HTML in a Markdown file, becomes such a picture.
- Live pages are made of the shipped runs before each build, and links to them open them. Any other
  file of the repository that a page links to, such as a script, is copied by Sphinx for download.
"""

import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform

LIVE = Path("docs", "live")
FIRST = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={page}">
<title>flax_attn</title>
</head>
<body><main><h1>flax_attn</h1><p><a href="{page}">The first page</a></p></main></body>
</html>
"""


class Pictures(SphinxTransform):
    """Pairs of pictures, for light and for dark."""

    default_priority = 100

    def apply(self, **options: object) -> None:
        for raw in list(self.document.findall(nodes.raw)):
            image = re.search(r"<picture>.*<img\s([^>]*)>", raw.astext(), re.DOTALL)
            if image:
                attributes = dict(re.findall(r'(\w+)="([^"]*)"', image[1]))
                picture = nodes.image(uri=attributes["src"], alt=attributes.get("alt", ""))
                raw.replace_self(nodes.paragraph("", "", picture))
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for light in list(self.document.findall(nodes.image)):
            path = Path(light["uri"])
            dark = path.with_name(f"{path.stem}_dark{path.suffix}")
            if (folder / dark).is_file():
                twin = light.deepcopy()
                twin["uri"] = dark.as_posix()
                light["classes"].append("only-light")
                twin["classes"].append("only-dark")
                light.parent.insert(light.parent.index(light) + 1, twin)


class LiveLinks(SphinxTransform):
    """Links to live pages open them; Sphinx would make them downloads."""

    default_priority = 100

    def apply(self, **options: object) -> None:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(addnodes.download_reference)):
            if (folder / link["reftarget"]).resolve().parent == Path(self.env.srcdir, LIVE):
                target = {"refuri": link["reftarget"], "internal": False, "classes": ["live"]}
                link.replace_self(nodes.reference("", "", *link.children, **target))


def begin(app: Sphinx, config: Config) -> None:
    """Makes the live pages, so that they are never older than the package."""
    from docs import live_pages  # which imports JAX

    live_pages.write()


def finish(app: Sphinx, error: Exception | None) -> None:
    """Copies the live pages, and makes the page that leads to the first one."""
    if error is None and app.builder.format == "html":
        pages = (Path(app.srcdir) / LIVE).glob("*.html")
        folder = Path(app.outdir) / LIVE
        folder.mkdir(parents=True, exist_ok=True)
        for page in pages:
            shutil.copyfile(page, folder / page.name)
        first = FIRST.format(page=app.builder.get_target_uri(app.config.root_doc))
        Path(app.outdir, "index.html").write_text(first, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(Pictures)
    app.add_transform(LiveLinks)
    app.connect("config-inited", begin)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
