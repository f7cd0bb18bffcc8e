"""The lessons as notebooks: read alone, and with the answers folded."""

import re

import pytest

from tests.faults import ROOT
from tests.site.reading import printed, tags

pytestmark = pytest.mark.slow
pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")

from docs import notebooks  # noqa: E402

LESSONS = sorted((ROOT / "docs" / "course").glob("[0-9]*.md"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks")
    notebooks.write(folder / "course")
    return {path.stem: path for path in sorted((folder / "course").glob("*.ipynb"))}


def test_every_lesson_is_a_notebook(written):
    assert list(written) == [lesson.stem for lesson in LESSONS]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_a_notebook_is_read_alone_and_tells_no_answer(lesson, written):
    book = nbformat.read(written[lesson.stem], as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell["outputs"] for cell in code)
    assert not any({"answer", "wrong-answer"} & set(tags(cell)) for cell in code)
    checks = [cell for cell in code if cell.source.startswith("def check(")]
    assert [cell.metadata["jupyter"] for cell in checks] == [{"source_hidden": True}]
    texts = [cell for cell in book.cells if cell.cell_type == "markdown"]
    answers = [cell.source for cell in texts if "answer" in tags(cell)]
    assert all(re.match(r"<details>\n<summary>Show one answer</summary>\n", a) for a in answers)
    assert answers
    prose = "\n".join(cell.source for cell in texts)
    places = re.findall(r"\]\((?!https?:)([^)]*)\)", prose)
    held = [name for cell in texts for name in cell.get("attachments", {})]
    assert places == [f"attachment:{name}" for name in held]


def test_a_notebook_runs_and_is_not_answered_yet(written, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(written["01_soft_dictionary"], as_version=4)
    nbclient.NotebookClient(book, resources={"metadata": {"path": ROOT}}).execute()
    said = "".join(printed(cell) for cell in book.cells if cell.cell_type == "code")
    assert said.endswith("Not answered yet.\n")
    assert "Right" not in said
