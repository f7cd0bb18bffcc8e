"""Runs on texts and images, from training on real files to predictions by the command line."""

import json
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from configs import (
    ag_news_rnn_attention,
    mnist_attention,
    series_input_attention,
    text_csv,
)
from flax_attn import experiment
from flax_attn.__main__ import main
from flax_attn.analysis import texts as text_figures
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from flax_attn.runs import reading
from flax_attn.runs.directory import read_config
from flax_attn.stopping import FINISHED, Stop
from tests import tiny

NEWS = "The final tennis tournament starts next week."


@pytest.fixture(scope="module")
def news(manual_dir, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "news"
    config = ag_news_rnn_attention.get_config("quick")
    config.data.shuffle = False
    config.model.update({"features": 32, "hidden_features": 32})
    config.model.initialization = "flax"
    config.num_epochs, config.num_seeds, config.learning_rate = 2, 2, 3e-3
    experiment.run(Config.of(config), workdir, manual_dir=manual_dir)
    return workdir


@pytest.fixture(scope="module")
def digits(manual_dir, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "digits"
    config = Config.of(mnist_attention.get_config("quick"))
    experiment.run(config, workdir, manual_dir=manual_dir)
    return workdir


def load(config, manual_dir):
    config = Config.of(config)
    return config.task.load(config.data, config.recipe, manual_dir)


def predict(capsys, *arguments):
    assert main(["predict", *map(str, arguments)]) == 0
    return capsys.readouterr()


def test_a_run_on_texts_is_whole_and_learns(news):
    run = reading.read(news)
    metrics = run.summary["metrics"]
    assert metrics["test/f1"]["mean"] > 0.5  # of four classes
    assert len(metrics["test/f1"]["values"]) == 2
    assert set(run.summary["classes"]) == {"Business", "Sci/Tech", "Sports", "World"}
    assert sum(of_class["support"] for of_class in run.summary["classes"].values()) == 1_140
    assert run.examples["confusion"].sum() == 2 * 1_140
    accuracy = np.trace(run.examples["confusion"]) / (2 * 1_140)
    np.testing.assert_allclose(metrics["test/accuracy"]["mean"], accuracy, rtol=1e-6)
    assert metrics["ensemble/test/f1"]["mean"] > metrics["test/f1"]["mean"] - 0.05
    assert json.loads((news / "labels.json").read_text()) == sorted(run.summary["classes"])
    drawn = {path.stem for path in (news / "figures").iterdir()}
    assert drawn == {"loss", "confusion", "attention"}
    for words, length, weights in zip(
        run.examples["words"], run.examples["lengths"], run.examples["attention/attention"]
    ):
        assert (words[length:] == "").all()
        assert (weights[length:] == 0).all()


def test_a_text_gets_its_classes_and_the_weights_of_its_tokens(news, tmp_path, capsys):
    out, _ = predict(capsys, news, NEWS, "--json")
    (answer,) = json.loads(out)
    shares = list(answer["classes"].values())
    assert shares == sorted(shares, reverse=True)
    np.testing.assert_allclose(sum(shares), 1, atol=1e-5)
    assert next(iter(answer["classes"])) == "Sports"
    tokens = [token["token"] for token in answer["tokens"]]
    assert tokens == ["final", "tennis", "tournament", "starts", "next", "week"]
    # too rare for the 5,000 words
    assert [token["token"] for token in answer["tokens"] if not token["known"]] == ["tournament"]
    np.testing.assert_allclose(sum(token["weight"] for token in answer["tokens"]), 1, atol=1e-5)
    out, _ = predict(capsys, news, "--figure", tmp_path / "map.png", NEWS)
    assert (tmp_path / "map.png").stat().st_size > 5_000
    assert out.index("Sports") < out.index("Business")
    assert "tennis" in out
    assert "(tournament)" in out


def test_a_file_of_texts_and_a_run_moved_elsewhere(news, tmp_path, capsys):
    shutil.copytree(news, tmp_path / "moved")
    texts = [NEWS, *["Oil prices rise as stocks fall"] * 69]
    (tmp_path / "texts.txt").write_text("\ufeff" + "\n\n".join(texts) + "\n", encoding="utf-8")
    arguments = "--input", tmp_path / "texts.txt", "--json", "--figure", tmp_path / "first.png"
    answers = json.loads(predict(capsys, tmp_path / "moved", *arguments).out)
    assert [answer["input"] for answer in answers] == texts
    assert all(
        sum(token["weight"] for token in answer["tokens"]) == pytest.approx(1) for answer in answers
    )
    alone = json.loads(predict(capsys, news, NEWS, "--json").out)
    np.testing.assert_allclose(
        list(answers[0]["classes"].values()), list(alone[0]["classes"].values()), atol=1e-5
    )


@pytest.mark.slow
def test_images_get_their_classes(digits, manual_dir, tmp_path, capsys):
    run = reading.read(digits)
    image = (255 * run.examples["inputs"][0]).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "seven.png")
    Image.fromarray(255 - image).save(tmp_path / "dark_on_light.png")
    transparent = np.zeros((28, 28, 2), np.uint8)  # black ink on nothing
    transparent[..., 1] = image
    Image.fromarray(transparent).save(tmp_path / "transparent.png")
    answers = lambda *arguments: json.loads(predict(capsys, digits, *arguments, "--json").out)
    rows = answers("--input", tmp_path)
    rows += answers("--input", tmp_path / "seven.png", "--figure", tmp_path / "map.png")
    names = ["dark_on_light.png", "seven.png", "transparent.png", "seven.png"]
    assert [row["input"] for row in rows] == names
    expected = {str(i): float(share) for i, share in enumerate(run.examples["predictions"][0])}
    for row in rows:
        assert row["classes"] == pytest.approx(expected, abs=1e-4)
    np.testing.assert_allclose(sum(rows[-1]["patches"]), 1, atol=1e-5)
    all_rows = answers("--input", manual_dir / "mnist" / "t10k-images-idx3-ubyte.gz")
    assert len(all_rows) == 10_000


@pytest.mark.slow
def test_bad_images_are_one_line(digits, tmp_path, capsys):
    Image.fromarray(np.eye(28, 30) > 0).save(tmp_path / "wide.png")
    Image.new("L", (28, 28)).save(tmp_path / "blank.png")
    (tmp_path / "none.png").write_bytes(b"no picture")
    (tmp_path / "empty.txt").write_text("\n")
    for arguments, said in (
        (("a text",), "--input"),
        (("--input", tmp_path / "wide.png"), "28 x 28"),
        (("--input", tmp_path / "none.png"), "none.png"),
        (("--input", tmp_path / "blank.png"), "drawn"),
        (("--input", tmp_path / "empty.txt"), "IDX"),
    ):
        assert main(["predict", str(digits), *map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert said in err


def test_another_order_of_classes_is_refused(news, tmp_path, capsys):
    shutil.copytree(news, tmp_path / "run")
    labels = json.loads((news / "labels.json").read_text())[::-1]
    (tmp_path / "run" / "labels.json").write_text(json.dumps(labels))
    assert main(["predict", str(tmp_path / "run"), NEWS]) == 2
    assert "classes" in capsys.readouterr().err


def test_other_data_than_the_run_began_with_is_refused(news, manual_dir, tmp_path):
    shutil.copytree(news, tmp_path / "run")
    (tmp_path / "data" / "ag_news").mkdir(parents=True)
    rows = (manual_dir / "ag_news" / "test.csv").read_text().splitlines()
    (tmp_path / "data" / "ag_news" / "test.csv").write_text("\n".join(rows[1:]) + "\n")
    stored = read_config(tmp_path / "run")
    config = ag_news_rnn_attention.get_config("quick")
    kept = {key: value for key, value in stored.items() if key not in ("derived", "evaluate")}
    config.update(kept | {"num_epochs": 4})
    with pytest.raises(UsageError, match=r"test.csv"):
        experiment.run(Config.of(config), tmp_path / "run", manual_dir=tmp_path / "data")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("one,pos\ntwo,pos\n" * 20, "two classes .*got pos"),
        ("!?,pos\n!!,neg\n" * 20, "preprocessing"),
        ("a,pos\nb,neg\n" * 20 + "c,rare\n", "'rare'"),
    ],
)
def test_texts_that_cannot_be_learned_are_told(tmp_path, rows, said):
    (tmp_path / "own.csv").write_text(rows)
    config = text_csv.get_config("quick")
    columns = {"text_column": "1", "label_column": "2", "preprocessing": "news"}
    config.data.update(columns | {"file": str(tmp_path / "own.csv")})
    with pytest.raises(UsageError, match=said):
        load(config, None)


def test_a_joined_file_is_not_taken_for_titles(tmp_path):
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "ag_news" / "train.csv").write_text('"1","title and description joined"\n')
    with pytest.raises(UsageError, match=r"train.csv"):
        load(ag_news_rnn_attention.get_config("full"), tmp_path)


def test_a_long_text_has_a_picture_of_a_size_to_look_at():
    words = [f"word{i}" for i in range(200)]
    figure = text_figures.attention_map(words, np.full((200, 200), 1 / 200), False, "title")
    assert max(figure.get_size_inches()) < 30
    plt.close(figure)


@pytest.mark.usefixtures("no_pictures")
def test_a_seed_that_stops_early_waits_for_the_others_and_the_run_is_finished(tmp_path):
    (tmp_path / "own.csv").write_text(
        "text,label\n" + "".join(f"word{i} here,{'ab'[i % 2]}\n" for i in range(60))
    )
    config = text_csv.get_config()
    config.data.file = str(tmp_path / "own.csv")
    config.update_from_flattened_dict(tiny.TEXTS | {"steps_per_epoch": 0})
    config.num_epochs, config.num_seeds, config.patience, config.learning_rate = 30, 2, 2, 1e-2
    config.seed = 2  # its seed stops before the next one
    config.model.dropout_rate = config.model.embedding_dropout_rate = 0.0
    said: list[str] = []
    summary = experiment.run(Config.of(config), tmp_path / "run", say=said.append)
    assert summary["stopped"]
    assert "stopped early: validation has not improved for 2 epochs" in said
    assert summary["epochs"] < 30
    run = reading.read(tmp_path / "run")
    steps = [row["step"] for row in run.rows[-2:]]
    assert summary["steps"] == max(steps) > steps[0]
    for i, seed in enumerate(summary["seeds"]):
        losses = [row["valid/loss"] for row in run.rows if row["seed"] == seed]
        best = int(np.argmin(losses[1:])) + 1
        assert losses[min(best + 2, len(losses) - 1)] == losses[-1]
        np.testing.assert_allclose(
            summary["metrics"]["valid/loss"]["values"][i], losses[best], rtol=1e-4
        )
    stop, said = Stop(), []
    options = {"stop": stop, "say": said.append}
    again = experiment.run(Config.of(config), tmp_path / "run", **options)
    assert said == ["this run is finished; its results:"]
    assert again == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stop.saved == FINISHED


def test_a_gate_finds_its_series(tmp_path):
    config = Config.of(series_input_attention.get_config("quick"))
    summary = experiment.run(config, tmp_path / "series")
    assert summary["metrics"]["test/gate"]["mean"] > 0.8
    assert main(["predict", str(tmp_path / "series"), "a text"]) == 2
