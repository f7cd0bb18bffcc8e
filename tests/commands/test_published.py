"""Commands on the folder of a published model: those that take it, and those that refuse it."""

import json

import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

import flax_attn
from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.tasks.user_files import read_images
from tests.published import tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    tiny.write_gpt2(folder / "gpt2")
    tiny.write_bert(folder / "words")
    tiny.write_bert(folder / "classes", "classes")
    tiny.write_bert(folder / "states", "states")
    tiny.write_vit(folder / "vit")
    tiny.write_vit(folder / "colour", channels=3)
    tiny.write_t5(folder / "t5")
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
    assert ["change" in token for token in row["tokens"]] == [False, True, True, False]
    _, out, _ = said(capsys, "predict", folders / "classes", "the zebra", "--why")
    _, _, why = out.partition("without the word")
    assert {"the", "[UNK]"} < set(why.split())  # a word that is not known is one
    assert "[CLS]" not in why
    assert "[SEP]" not in why


def test_predict_writes_a_text_for_a_source(folders, tmp_path, capsys):
    code, out, _ = said(capsys, "predict", folders / "t5", "a dog sat", "--json", "--best", 1)
    ((row),) = json.loads(out)
    model = flax_attn.load(folders / "t5")
    prediction = model.predict(["a dog sat", "the cat"])
    assert code == 0
    assert row["translations"][0]["text"] == prediction.outputs[0]
    weights = prediction.attention["cross0"][0]
    tokens, source = prediction.target_tokens[0][0], prediction.tokens[0]
    assert weights.shape == (tiny.HEADS, len(tokens) + 1, len(source))
    alignment = prediction.attention["alignment"][0]
    np.testing.assert_allclose(weights.mean(axis=0)[:-1], alignment, atol=1e-6)
    code, out, _ = said(
        capsys, "predict", folders / "t5", "a dog sat", "--beam", 3, "--figure", tmp_path / "a.png"
    )
    assert code == 0
    none = model.predict([" "])
    assert none.outputs == [""]
    assert none.attention["cross0"][0].shape == (tiny.HEADS, 0, 0)


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


def test_a_text_beyond_the_window_is_warned_of(folders, capsys):
    code, _, err = said(capsys, "predict", folders / "gpt2", "the cat", "a dog " * 12)
    assert code == 0
    assert err == "warning: text 2 has 72 tokens, of which the last 64 are read\n"


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
@pytest.mark.parametrize("name", ["colour", "vit"])
def test_a_picture_has_its_colours_where_the_model_has_channels(
    name, mode, folders, tmp_path, capsys
):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 4), np.uint8)
    pixels[..., 3] = 255
    picture = Image.fromarray(pixels, "RGBA").convert(mode)
    picture.save(tmp_path / "own.png")
    arguments = ["predict", folders / name, "--input", tmp_path / "own.png"]
    code, out, _ = said(capsys, *arguments, "--json")
    assert code == 0
    own = np.asarray(picture.convert("RGB" if name == "colour" else "L"))
    prediction = flax_attn.load(folders / name).predict(own)
    expected = dict(zip(prediction.names, prediction.outputs[0].tolist(), strict=True))
    assert json.loads(out)[0]["classes"] == pytest.approx(expected, abs=1e-6)


def test_transparency_is_left_out_of_a_picture_in_colour(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 4), np.uint8)
    Image.fromarray(pixels, "RGBA").save(tmp_path / "own.png")
    read = read_images(tmp_path / "own.png", light_ink=False, in_colour=True, grounded=False)
    np.testing.assert_array_equal(read, pixels[None, ..., :3])


@pytest.mark.parametrize("name", ["colour", "vit"])
def test_attention_is_drawn_on_a_picture(name, folders, tmp_path, monkeypatch, capsys):
    shown = []
    imshow = Axes.imshow
    keep = lambda ax, image, **options: shown.append(image) or imshow(ax, image, **options)
    monkeypatch.setattr(Axes, "imshow", keep)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "own.png")
    figure = tmp_path / "drawn.png"
    arguments = ["predict", folders / name, "--input", tmp_path / "own.png", "--figure", figure]
    code, _, err = said(capsys, *arguments)
    assert (code, err) == (0, "")
    assert figure.exists()
    expected = (
        pixels if name == "colour" else 255 - np.asarray(Image.fromarray(pixels).convert("L"))
    )
    np.testing.assert_allclose(shown[0], expected / 255, atol=1e-6)


REFUSED = {
    "report": ["report", "gpt2"],
    "compare": ["compare", "gpt2"],
    "train": ["train", "names:quick", "--workdir", "gpt2"],
    "explore two": ["explore", "gpt2", "words"],
    "why": ["predict", "words", "the [MASK]", "--why"],
    "no classes": ["predict", "states", "--input", "texts.csv"],
    "no classes, a text": ["predict", "states", "the cat"],
    "two masks": ["predict", "words", "the [MASK] [MASK]"],
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
