"""What the pages of the lessons have that their text files have not.

- A link to the lesson as a notebook.
- A form for the exercise, and pictures that answer: `docs/parts.py`.
- The names of what is folded.

Several lessons are executed at a time.
"""

import multiprocessing
import os
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from docutils import nodes
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import create_nb_reader
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

from docs import notebooks
from docs.parts import PARTS

FOLDER = "docs/course/"
MOST_AT_A_TIME = 4  # lessons; each takes up to a gigabyte

# The cell after which a part stands: that of the exercise, and the first one with a picture.
PLACES = {
    "exercise": r"```\{code-cell\}\n:tags: \[exercise\]\n.*?\n```\n",
    "picture": r"```\{code-cell\}\n---\n(?:(?!---\n).)*?alt: .*?\n```\n",
}
CELL = """
```{{code-cell}}
:tags: [remove-input]

from IPython.display import HTML

from docs.parts import box

HTML(box("{part}", {facts}))
```
"""
IN_PYTHON = """
The answer is Python code, so this page cannot check it. <a href="{name}.ipynb" download>Open this
lesson as a notebook</a>, and answer it there.
"""
PROMPTS = {
    "answer": "one answer",
    "wrong-answer": "a wrong answer",
    "check": "how it is checked",
    "data": "the code of the data",
    "training": "the code of the training",
    "table": "the code of the table",
    "picture": "the code of the picture",
}


def name_of(page: str) -> str | None:
    """Returns the name of the lesson that a page is, or None for another page."""
    name = page.removeprefix(FOLDER)
    return name if page.startswith(FOLDER) and name[0].isdigit() else None


def add_parts(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds to the text of a lesson the link to its notebook, and cells that compute facts."""
    name = name_of(page)
    if name is None:
        return
    title = r"^# .*\n"
    source[0] = after(title, source[0], links(name, app.config.notebooks_address), re.MULTILINE)
    parts = PARTS.get(name, {})
    for part, facts in parts.items():
        source[0] = after(PLACES[part], source[0], CELL.format(part=part, facts=facts))
    if "exercise" not in parts:
        source[0] = after(PLACES["exercise"], source[0], IN_PYTHON.format(name=name))


def execute(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Executes the lessons that have no outputs yet, and keeps these for when a page is read.

    Sphinx reads one page after another, and a lesson alone leaves cores idle.
    """
    cache = get_cache(app.config.nb_execution_cache_path)
    lessons: dict[str, NotebookNode] = {}
    for page in sorted(filter(name_of, pages), reverse=True):  # the last lessons take longest
        path = env.doc2path(page)
        source = [Path(path).read_text(encoding="utf-8")]
        add_parts(app, page, source)
        reader = create_nb_reader(path, env.myst_config, env.mystnb_config, source[0])
        lesson = reader.read(source[0])
        try:
            cache.match_cache_notebook(lesson)
        except KeyError:
            lessons[path] = lesson
    workers = min(MOST_AT_A_TIME, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        results = pool.map(
            outputs, lessons.values(), [app.config.nb_execution_timeout] * len(lessons)
        )
        for path, result in zip(lessons, results):
            if result is not None:
                lesson, seconds = result
                bundle = CacheBundleIn(lesson, path, data={"execution_seconds": seconds})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def outputs(lesson: NotebookNode, timeout: int) -> tuple[NotebookNode, float] | None:
    """Returns a lesson with its outputs, and the seconds that it took.

    It is None where a cell fails: the lesson is then executed again for its page, which says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = single_nb_execution(lesson, cwd=folder, timeout=timeout, allow_errors=False)
    return None if result.err else (result.nb, result.time)


def links(name: str, address: str) -> str:
    """The links to a lesson as a notebook: to its file, and to where it runs, if that is known."""
    line = f'\n<p class="as-notebook"><a href="{name}.ipynb" download>Open as a notebook</a>'
    if address:
        line += f' <a href="{address}{name}.ipynb">Run it in the browser</a>'
    return f"{line}</p>\n"


def after(place: str, text: str, addition: str, flags: re.RegexFlag = re.DOTALL) -> str:
    """Returns a text with an addition after the first match of a pattern, which must be there."""
    match = re.search(place, text, flags)
    if match is None:
        raise ValueError(f"expected a match of {place!r} in a lesson, found none")
    return text[: match.end()] + addition + text[match.end() :]


def add_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: object
) -> None:
    """Loads the scripts of the parts on the pages that have some."""
    name = name_of(page)
    if name in PARTS:
        app.add_css_file("course/course.css")
        app.add_js_file("course/course.js")
        app.add_js_file(f"course/{name}.js")


class Prompts(SphinxPostTransform):
    """Names what is folded for what it is."""

    default_priority = 198  # before myst_nb folds it
    formats = ("html",)

    def run(self, **options: object) -> None:
        for cell in self.document.findall(nodes.container):
            if cell.get("nb_element") == "cell_code" and "prompt_show" in cell:
                what = PROMPTS[notebooks.kind_of(cell["cell_metadata"], cell.astext())]
                cell["prompt_show"], cell["prompt_hide"] = f"Show {what}", f"Hide {what}"


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Writes the notebooks beside the pages of the lessons."""
    if error is None and app.builder.format == "html":
        notebooks.write(Path(app.outdir, FOLDER))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("notebooks_address", "", "env", str)
    app.add_config_value("course_parts", PARTS, "env")  # other parts need other pages
    app.connect("env-before-read-docs", execute)
    app.connect("source-read", add_parts)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write_notebooks)
    app.add_post_transform(Prompts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
