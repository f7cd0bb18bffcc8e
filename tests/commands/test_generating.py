"""`flax-attn generate`, on a run that is trained."""

import json
import re
import types

import numpy as np
import pytest

import flax_attn
from flax_attn.__main__ import main
from flax_attn.analysis import language
from flax_attn.experiment import loading
from flax_attn.runs import reading
from tests import tiny

TINY = {"model.features": 16, "model.num_heads": 2, "data.num_lines": 400, "data.max_length": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "names"
    changes = {"num_epochs": 2, "steps_per_epoch": 30, "learning_rate": 1e-2}
    return flax_attn.train("names:quick", workdir=workdir, overrides=TINY, **changes)


def test_a_run_of_a_language_model_is_whole(run):
    record = reading.read(run.path)
    metrics = record.summary["metrics"]
    assert metrics["test/loss"]["mean"] < 2.6  # of log 32 for nothing learned
    assert 0 < metrics["test/harmony"]["mean"] <= 1
    assert 0 <= metrics["test/induction"]["mean"] <= 1
    assert re.fullmatch(r"block[012], head [01]", record.summary["induction_head"])
    assert (run.path / "sample.txt").read_text() == run.generate().texts[0] + "\n"
    pictures = {path.stem for path in (run.path / "figures").iterdir()}
    assert pictures == {"loss", "loss_by_position", "induction", "attention"}
    losses = record.examples["losses"]
    assert losses.shape == (1, 16)
    assert losses[0, 0] > losses[0, 8:].mean()


def generate(capsys, *arguments):
    assert main(["generate", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_command_writes_what_python_writes(run, capsys):
    out = generate(capsys, run.path, "Ba", "--length", 40, "--seed", 3)
    options = {"length": 40, "seed": 3}
    assert out == run.generate("Ba", **options).texts[0] + "\n"
    out = generate(capsys, run.path, "Ba", "--length", 40, "--seed", 3, "--samples", 3)
    texts = run.generate(["Ba"] * 3, **options).texts
    assert out == ("\n" + "-" * 15 + "\n").join(texts) + "\n"
    assert len(set(texts)) == 3
    assert generate(capsys, run.path, "--length", 5).startswith("\n")


def test_half_a_character_is_not_printed_while_a_text_grows(run, capsys, monkeypatch):
    def grow(*args, on_texts, **options):
        for text, out in (("caf\ufffd", "caf"), ("café", "é"), ("café \ufffd", " ")):
            on_texts([text])
            assert capsys.readouterr().out == out
        return types.SimpleNamespace(texts=["café \ufffd"])  # the text ends with it

    monkeypatch.setattr(loading.Model, "generate", grow)
    assert generate(capsys, run.path, "c") == "\ufffd\n"


def test_a_figure_shows_what_the_last_character_looks_at(run, capsys, tmp_path):
    figure = tmp_path / "looks.png"
    out = generate(capsys, run.path, "Ba", "--length", 20, "--figure", figure)
    assert out.endswith(f"wrote {figure}\n")
    assert figure.read_bytes()[:4] == b"\x89PNG"


def test_predict_says_what_may_come_next(run, capsys, tmp_path, monkeypatch):
    drawn, looks = [], language.looks
    monkeypatch.setattr(language, "looks", lambda *args: drawn.append(args) or looks(*args))
    arguments = ["predict", str(run.path), "Kalodu", "--json", "--figure", str(tmp_path / "a.png")]
    assert main(arguments) == 0
    (row,) = json.loads(capsys.readouterr().out)
    prediction = run.predict("Kalodu")
    best = prediction.names[int(np.argmax(prediction.outputs[0]))]
    assert row["next"][0]["token"] == best
    shares = [token["probability"] for token in row["next"]]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) == 10
    assert (tmp_path / "a.png").exists()
    ((tokens, weights, _),) = drawn
    assert list(tokens) == list("Kalodu")
    for name, own in prediction.attention.items():
        np.testing.assert_array_equal(weights[name], own[0][:, -1])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["Baß"], "ß"),
        (["Ba", "--samples", "0"], "--samples"),
        (["Ba", "--length", "0"], "length"),
        (["Ba", "--temperature", "-1"], "temperature"),
        (["Ba", "--figure", "a.txt"], "--figure"),
        (["Ba", "more"], "more"),
        (["Ba", "--length", "many"], "--length"),
    ],
)
def test_a_bad_command_is_one_line(run, capsys, arguments, named):
    assert main(["generate", str(run.path), *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert named in err


def test_a_run_that_is_no_language_model_is_told(tmp_path, capsys):
    options = {"overrides": tiny.SHAPES | tiny.CNN, "num_epochs": 1}
    with tiny.untrained():
        flax_attn.train("shapes_cnn:quick", workdir=tmp_path / "run", **options)
    assert main(["generate", str(tmp_path / "run"), "Ba"]) == 2
    assert "language model" in capsys.readouterr().err
