"""The lessons as notebooks: read alone, and with the answers folded."""

import importlib.util
import re

import pytest

from tests.faults import ROOT
from tests.site.reading import printed, tags

jupytext = pytest.importorskip("jupytext")
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


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_a_folded_cell_is_called_a_picture_only_if_it_draws_one(lesson):
    cells = [
        cell
        for cell in jupytext.read(lesson, fmt="md:myst").cells
        if {"hide-input", "hide-cell"} & set(tags(cell))
    ]
    kinds = [notebooks.kind_of(cell.metadata, cell.source) for cell in cells]
    pictures = ["mystnb" in cell.metadata for cell in cells]
    assert [kind == "picture" for kind in kinds] == pictures


def test_a_missing_package_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["notebooks", "folder"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        notebooks.main()
    assert 'pip install -e ".[docs]"' in capsys.readouterr().err.splitlines()[-1]


def test_a_link_to_a_host_is_there_if_its_address_is_known():
    pytest.importorskip("sphinx")
    from docs._ext.course import links

    addresses = lambda text: re.findall(r'href="([^"]+)"', text)
    assert addresses(links("03_scores", "")) == ["03_scores.ipynb"]
    known = addresses(links("03_scores", "https://host.org/course/"))
    assert known == ["03_scores.ipynb", "https://host.org/course/03_scores.ipynb"]


@pytest.mark.full
def test_a_notebook_runs_and_is_not_answered_yet(written, tmp_path):
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(written["01_soft_dictionary"], as_version=4)
    nbclient.NotebookClient(book, resources={"metadata": {"path": ROOT}}).execute()
    said = "".join(printed(cell) for cell in book.cells if cell.cell_type == "code")
    assert said.endswith("Not answered yet.\n")
    assert "Right" not in said
