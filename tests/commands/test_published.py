"""Commands on the folder of a published model: those that take it, and those that refuse it."""

import json

import pytest

import flax_attn
from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from tests.published import tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    tiny.write_gpt2(folder / "gpt2")
    tiny.write_bert(folder / "words")
    tiny.write_bert(folder / "classes", "classes")
    tiny.write_bert(folder / "states", "states")
    (folder / "texts.csv").write_text("text\nthe cat sat\na dog\n")
    return folder


def said(capsys, *arguments):
    """The exit code of a command, and what it printed."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_predict_names_the_next_tokens(folders, capsys):
    code, out, _ = said(capsys, "predict", folders / "gpt2", "the cat", "--json")
    ((row),) = json.loads(out)
    assert code == 0
    assert len(row["next"]) == 10
    best = flax_attn.load(folders / "gpt2").predict("the cat").classes
    assert row["next"][0]["token"] == best[0]


def test_predict_names_words_for_a_mask_and_says_which_words_mattered_for_classes(folders, capsys):
    code, out, _ = said(capsys, "predict", folders / "words", "the [MASK] sat", "--json")
    ((row),) = json.loads(out)
    assert code == 0
    assert set(row["classes"]) == set(tiny.WORDS)
    assert [token["token"] for token in row["tokens"]][2] == "[MASK]"
    code, out, _ = said(capsys, "predict", folders / "classes", "the cat", "--why", "--json")
    ((row),) = json.loads(out)
    assert code == 0
    assert set(row["classes"]) == set(tiny.CLASSES)
    assert all("change" in token for token in row["tokens"])


def test_words_are_those_of_a_file(folders, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("the cat sat\nthe cat on a dog\na cat on the mat\n")
    source = tmp_path / "texts.txt"
    code, out, _ = said(capsys, "words", folders / "classes", "--input", source, "--json")
    assert code == 0
    assert "cat" in out


def test_a_table_gets_the_class_of_each_text(folders, tmp_path, capsys):
    source, output = tmp_path / "texts.csv", tmp_path / "classes.csv"
    source.write_text("text,id\nthe cat sat,1\n,2\na dog,3\n")
    arguments = ["predict", folders / "classes", "--input", source, "--output", output]
    code, out, err = said(capsys, *arguments)
    assert (code, err.count("\n")) == (0, 1)
    assert "1 of 3 rows get no prediction" in err
    best = flax_attn.load(folders / "classes").predict(["the cat sat", "a dog"]).classes
    rows = [line.split(",") for line in output.read_text().splitlines()]
    assert [row[2] for row in rows] == ["predicted_class", best[0], "", best[1]]
    assert out.startswith("2 texts: ")


def test_generate_goes_on_with_a_text(folders, capsys):
    arguments = ["the cat", "--length", 5, "--temperature", 0]
    code, out, _ = said(capsys, "generate", folders / "gpt2", *arguments)
    assert code == 0
    assert out.startswith("the cat")


REFUSED = {
    "report": ["report", "gpt2"],
    "compare": ["compare", "gpt2"],
    "export": ["export", "gpt2", "exported"],
    "train": ["train", "names:quick", "--workdir", "gpt2"],
    "explore two": ["explore", "gpt2", "words"],
    "why": ["predict", "words", "the [MASK]", "--why"],
    "no classes": ["predict", "states", "--input", "texts.csv"],
    "no mask": ["predict", "words", "the cat"],
    "no test": ["words", "classes"],
    "beam": ["predict", "gpt2", "the", "--beam", "3"],
    "generate": ["generate", "classes"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_run_is_refused_in_one_line(name, folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folders)
    before = sorted(path.name for path in folders.rglob("*"))
    code, out, err = said(capsys, *REFUSED[name])
    assert (code, out) == (2, "")
    assert err.startswith("error: expected ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in folders.rglob("*")) == before


def test_a_notebook_is_told_so_too(folders):
    for own in (folders / "gpt2", flax_attn.load(folders / "gpt2")):
        with pytest.raises(UsageError, match="expected a run, got the published model"):
            flax_attn.show(own)
