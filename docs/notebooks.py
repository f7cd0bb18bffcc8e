"""Writes the lessons of the course as notebooks.

    python -m docs.notebooks FOLDER

They have no outputs. What would tell the answer is folded, and does not run: one answer and a wrong
one are code to look at, in the text. Links to other pages are left out, since a notebook is read
alone; a picture of the project is within the notebook.
"""

import argparse
import base64
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

COURSE = Path(__file__).resolve().parent / "course"
FOLDED = "<details>\n<summary>Show {what}</summary>\n\n```python\n{code}\n```\n\n</details>"
ANSWERS = {"answer": "one answer", "wrong-answer": "a wrong answer"}
TAGS = (*ANSWERS, "data", "training", "table")  # each says what a folded cell is
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^):]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:)[^)]*\)")  # to a file of the project


def kind_of(metadata: dict[str, object], source: str) -> str:
    """Returns what a folded cell is: what its tag says, or else check or picture."""
    tags = metadata.get("tags", [])
    assert isinstance(tags, list)
    for tag in TAGS:
        if tag in tags:
            return tag
    return "check" if source.startswith("def check(") else "picture"


def notebook(lesson: Path) -> "NotebookNode":
    """Returns a lesson as a notebook."""
    import jupytext

    book = jupytext.read(lesson, fmt="md:myst")
    book.metadata = {"kernelspec": book.metadata["kernelspec"]}
    for cell in book.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            read_alone(cell, lesson.parent)
        elif "hide-cell" in tags:
            what = ANSWERS[kind_of(cell.metadata, cell.source)]
            cell.source = FOLDED.format(what=what, code=cell.source)
            as_text(cell)
        elif "hide-input" in tags:
            cell.metadata["jupyter"] = {"source_hidden": True}
        cell.metadata.pop("mystnb", None)
    return book


def as_text(cell: "NotebookNode") -> None:
    """Makes a cell of code one of text."""
    cell.cell_type = "markdown"
    for field in ("outputs", "execution_count"):
        del cell[field]


def read_alone(cell: "NotebookNode", folder: Path) -> None:
    """Takes out of a text what leads to files beside it, and takes its pictures in."""
    for alt, address in PICTURE.findall(cell.source):
        path = folder / address
        picture = base64.b64encode(path.read_bytes()).decode()
        cell.setdefault("attachments", {})[path.name] = {"image/png": picture}
        cell.source = cell.source.replace(
            f"![{alt}]({address})", f"![{alt}](attachment:{path.name})"
        )
    cell.source = LINK.sub(r"\1", cell.source)


def write(folder: Path) -> None:
    """Writes all lessons as notebooks into a folder."""
    import nbformat

    folder.mkdir(parents=True, exist_ok=True)
    for lesson in sorted(COURSE.glob("[0-9]*.md")):
        nbformat.write(notebook(lesson), folder / f"{lesson.stem}.ipynb")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.notebooks", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    if importlib.util.find_spec("jupytext") is None:
        parser.error('notebooks need jupytext; pip install -e ".[docs]"')
    write(folder)


if __name__ == "__main__":
    main()
