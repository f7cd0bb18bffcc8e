"""The Python face does what the commands do, also on data and classes of the user's own."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import numpy as np
import pytest
from ml_collections import ConfigDict

import flax_attn
from flax_attn import config_files
from flax_attn.__main__ import main
from flax_attn.data.sets import TextFile, from_python
from flax_attn.errors import UsageError
from flax_attn.experiment import Config, loading
from flax_attn.experiment.config import class_of
from tests import tiny

ROOT = Path(__file__).parents[2]


def signals(number=64, length=30):
    inputs = np.random.default_rng(0).normal(size=(number, length)).astype(np.float32)
    return inputs, np.cumsum(inputs, axis=1) / 5


def texts(number=20, what="film"):
    words = {"good": ("fine", "lovely"), "bad": ("poor", "awful")}
    rows = [
        (f"a {word} {what} {i}", label)
        for label, some in words.items()
        for word in some
        for i in range(number)
    ]
    return tuple(zip(*rows))


def pairs():
    sources = ["a b c", "d e", "f g h i", "b a"] * 20
    return sources, [source[::-1] for source in sources]


FLAT = tiny.CNN | {"optimizer.schedule": "constant"}  # a run that can go on for longer


@pytest.fixture(scope="module")
def signal_run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "signals"
    rows = signals()
    data = {"train": rows, "test": (rows[0][:20], rows[1][:20])}
    options = {"workdir": workdir, "overrides": FLAT}
    with tiny.no_pictures():
        return flax_attn.train("shapes_cnn:quick", data=data, num_epochs=1, **options)


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "texts"
    data = {"train": texts(), "test": texts(4, "play")}
    options = {"workdir": workdir, "overrides": tiny.TEXTS}
    with tiny.no_pictures():
        return flax_attn.train("text_csv", data=data, num_epochs=2, **options)


def command(capsys, *arguments):
    assert main(["predict", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_importing_the_package_imports_nothing_else():
    code = "import sys, flax_attn as f; print('jax' in sys.modules, 'load' in dir(f), f.load)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("False True <function load")


def test_loading_and_predicting_takes_two_lines_and_equals_the_command(
    signal_run, tmp_path, capsys
):
    inputs = signals()[0][:5]
    np.save(tmp_path / "in.npy", inputs)
    command(
        capsys, signal_run.path, "--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy"
    )
    run = flax_attn.load(str(signal_run.path))
    prediction = run.predict(inputs)
    np.testing.assert_array_equal(prediction.outputs, np.load(tmp_path / "out.npy"))
    np.testing.assert_array_equal(prediction.outputs, signal_run.predict(inputs).outputs)
    assert list(run.params) == run.summary["seeds"]
    assert run.rows[-1]["epoch"] == 1


def test_texts_have_classes_tokens_and_attention_as_the_command_prints_them(text_run, capsys):
    (printed,) = json.loads(command(capsys, text_run.path, "an awful film", "--json"))
    prediction = flax_attn.load(text_run.path).predict("an awful film")
    assert prediction.classes == [next(iter(printed["classes"]))]
    assert prediction.tokens == [[token["token"] for token in printed["tokens"]]]
    np.testing.assert_allclose(
        sorted(prediction.outputs[0])[::-1], list(printed["classes"].values()), rtol=1e-6
    )
    (weights,) = prediction.attention.values()
    assert weights.shape[0] == 1


def test_the_same_data_from_python_and_from_files_give_the_same_figures(
    text_run, tmp_path, no_pictures
):
    data = {"train.tsv": texts(), "test.csv": texts(4, "play")}
    for name, (some, labels) in data.items():
        between = "," if name.endswith("csv") else "\t"
        lines = [f"{text}{between}{label}\n" for text, label in zip(some, labels)]
        (tmp_path / name).write_text(f"text{between}label\n" + "".join(lines))
    files = {"data.file": str(tmp_path / "train.tsv"), "data.test_file": str(tmp_path / "test.csv")}
    by_file = flax_attn.train(
        "text_csv",
        num_epochs=2,
        workdir=tmp_path / "run",
        overrides=tiny.TEXTS | files,
    )
    assert by_file.rows == text_run.rows
    assert by_file.summary["metrics"] == text_run.summary["metrics"]


def test_data_from_python_resume_from_python_alone(signal_run, capsys, no_pictures):
    rows = signals()
    data = {"train": rows, "test": (rows[0][:20], rows[1][:20])}
    options = {"workdir": signal_run.path, "overrides": FLAT}
    epochs = []
    longer = flax_attn.train(
        "shapes_cnn:quick", data=data, num_epochs=2, on_epoch=epochs.append, **options
    )
    assert [row["epoch"] for rows in epochs for row in rows] == [2]
    assert longer.rows[:2] == signal_run.rows
    inputs, targets = data["test"]
    for other in (rows, (inputs, targets + 1), (inputs + 1, targets)):
        with pytest.raises(UsageError, match=r"config key 'data.sha256' was"):
            flax_attn.train(
                "shapes_cnn:quick", data=data | {"test": other}, num_epochs=2, **options
            )
    config = longer.config.values | {"num_epochs": 3}
    with pytest.raises(UsageError, match=r"data=\.\.\."):
        flax_attn.train(config, workdir=signal_run.path)


def test_pairs_from_python_train(tmp_path, no_pictures):
    sources, targets = pairs()
    data = {"train": (sources, targets), "test": (sources[:4], targets[:4])}
    run = flax_attn.train(
        "reverse_bahdanau:quick",
        data=data,
        num_epochs=1,
        workdir=tmp_path / "pairs",
        overrides=tiny.PAIRS,
    )
    for option in ({"beam": 0}, {"beam": 10**9}, {"num_best": 0}):
        with pytest.raises(UsageError, match=next(iter(option))):
            run.predict("a b", **option)
    prediction = run.predict(["a b", "? !"], beam=2, num_best=2)
    assert [len(row) for row in prediction.written] == [2, 0]
    assert prediction.outputs[1] == ""


@pytest.mark.parametrize(
    ("test", "word"),
    [
        (None, "test"),
        (signals()[0], "test split"),
        ((*signals(), signals()[1]), "test split"),
    ],
)
def test_data_that_do_not_fit_are_refused_and_nothing_is_made(tmp_path, test, word):
    data = {"train": signals()} | ({} if test is None else {"test": test})
    with pytest.raises(UsageError, match=word):
        flax_attn.train("shapes_cnn:quick", data=data, workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"overrides": {"model.feature": 3}}, "'model.features'"),
        ({"num_epochs": "many"}, "num_epochs"),
        ({"model.features": 3.5}, "model.features"),
        ({"sequence": "2"}, "sequence"),
        ({"workdir": 5}, "workdir"),
        ({"overrides": {"model.name": "json:JSONDecoder"}}, "json:JSONDecoder"),
        ({"overrides": {"model.name": "json:nothing"}}, "json:nothing"),
        ({"overrides": {"model.name": "not_there:Mine"}}, "PYTHONPATH"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_before_anything_is_written(
    changes, word, tmp_path, monkeypatch
):
    """The types are checked first in tests, so the function is called without this check."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=word):
        inspect.unwrap(flax_attn.train)("shapes_cnn", **changes)
    assert list(tmp_path.iterdir()) == []


MINE = '''
import dataclasses
import flax.linen as nn
import numpy as np
from flax_attn.attention import SelfAttention, scaled_dot
from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets import SignalData


def halved(query, key):
    """A score of one's own."""
    return scaled_dot(query, key) / 2


def softmax(scores, mask):
    """A normaliser of one's own."""
    return nn.softmax(scores)


class Mine(nn.Module):
    features: int = 8

    @nn.compact
    def __call__(self, inputs, *, train=False):
        layer = SelfAttention(self.features, self.features, normalizer=softmax)
        context, weights = layer(inputs)
        return nn.Dense(1)(context), {"attention": {"attention": weights}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waves(SignalData):
    number: int = 64

    def load(self, manual_dir):
        lengths = np.arange(1, self.number + 1)[:, None, None]
        waves = np.sin(np.arange(20)[None, :, None] / lengths).astype(np.float32)
        rows = Columns(waves, waves[:, ::-1].copy())
        return Raw({"train": rows, "valid": rows, "test": rows})
'''
CONFIG = """
from ml_collections import ConfigDict
from flax_attn import recipes


def get_config(variant=""):
    config = recipes.shapes("mine", variant, {"name": "own_parts:Mine", "features": 4})
    config.data = ConfigDict({"name": "own_parts:Waves", "number": 40})
    config.num_epochs, config.batch_size = 1, 16
    return config
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with a model, a data set and a config of one's own, and the run that the command
    made of them.
    """
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_parts.py").write_text(MINE)
    (folder / "mine.py").write_text(CONFIG)
    done = flax_attn_in(folder, "train", "mine.py", "--workdir=run")
    assert done.returncode == 0, done.stderr
    return folder


def flax_attn_in(folder, *arguments):
    environment = {"PYTHONPATH": f"{folder}:{ROOT}"}
    command = [sys.executable, "-m", "flax_attn", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture
def in_own(own, monkeypatch):
    """This process stands in the folder, and imports from it; what it imported is forgotten."""
    monkeypatch.chdir(own)
    monkeypatch.syspath_prepend(own)
    yield own
    sys.modules.pop("own_parts", None)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (', "valid": rows', "", "valid split"),
        ("return Raw(", "return (", "Waves"),
        ("lengths = ", "raise KeyError\n        lengths = ", "own_parts.py, line"),
        ("np.sin(", "np.nan * np.sin(", "Waves"),
        ('{"attention": weights}}', "weights}", "aux['attention']"),
    ],
)
def test_mistakes_in_own_data_and_models_are_one_line(
    before, after, word, tmp_path, monkeypatch, capsys
):
    assert before in MINE
    (tmp_path / "own_parts.py").write_text(MINE.replace(before, after))
    (tmp_path / "mine.py").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own_parts", None)
    assert main(["train", "mine.py", "--workdir=run"]) == 2
    sys.modules.pop("own_parts", None)
    err = capsys.readouterr().err
    assert (word in err, err.count("\n")) == (True, 1), err


def test_a_model_and_data_of_ones_own_are_trained_and_predicted_where_they_are_allowed(
    in_own, capsys
):
    np.save(in_own / "in.npy", np.zeros((2, 20)))
    predict = ["predict", "run", "--input", "in.npy"]
    assert main(predict) == 2
    refused = capsys.readouterr().err
    assert "allow=['own_parts']" in refused
    assert "--allow own_parts" in refused
    assert len(refused.splitlines()) == 1
    assert "own_parts" not in sys.modules
    assert main([*predict, "--allow", "own_parts", "--figure", "map.png"]) == 0
    assert np.load(in_own / "in.predictions.npy").shape == (2, 20)
    assert main(["train", "mine.py", "--workdir=run"]) == 0
    assert "this run is finished" in capsys.readouterr().out


def test_who_allows_a_package_allows_its_modules(tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    text = "import flax.linen as nn\nclass Own(nn.Module):\n    size: int = 3\n"
    (tmp_path / "own_package" / "inner.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    wanted = "model.name", "own_package.inner:Own", {}, nn.Module
    for allowed in ([], ["inner"], ["own_package.other"], ["own"]):
        with pytest.raises(UsageError, match="allow"):
            class_of(*wanted, allowed)
        assert "own_package" not in sys.modules
    for allowed in (["own_package"], ["own_package.inner"]):
        assert class_of(*wanted, allowed)().size == 3
        del sys.modules["own_package.inner"], sys.modules["own_package"]


def test_comparing_imports_nothing_of_the_users(in_own, monkeypatch):
    (in_own / "elsewhere").mkdir()
    monkeypatch.chdir(in_own / "elsewhere")
    assert main(["compare", str(in_own / "run"), str(in_own / "run")]) == 0
    assert "own_parts" not in sys.modules


def test_a_data_set_of_no_kind_is_told(tmp_path, monkeypatch):
    text = "import dataclasses\nfrom flax_attn.data.sets import DataSet\n"
    text += "@dataclasses.dataclass(frozen=True, kw_only=True)\nclass Odd(DataSet):\n    pass\n"
    (tmp_path / "own_odd.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    config = config_files.read("shapes_cnn")
    config.data = ConfigDict({"name": "own_odd:Odd"})
    with pytest.raises(UsageError, match="Odd"):
        Config.of(config)
    del sys.modules["own_odd"]


@pytest.mark.parametrize("allow", [None, "antigravity", b"antigravity", [b"antigravity"], [3], 3])
def test_modules_to_allow_are_names(allow, signal_run, tmp_path, monkeypatch):
    """A text does not allow its letters, and None does not allow every module."""
    copy = shutil.copytree(signal_run.path, tmp_path / "run")
    (tmp_path / "g.py").write_text(f"open({str(tmp_path / 'TAKEN')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads((copy / "config.json").read_text())
    config["model"]["name"] = "g:Net"
    (copy / "config.json").write_text(json.dumps(config))
    for name in ("load_run", "parted"):
        monkeypatch.setattr(loading, name, inspect.unwrap(getattr(loading, name)))
    with pytest.raises((UsageError, TypeError)):
        inspect.unwrap(loading.load)(copy, allow=allow)
    assert not (tmp_path / "TAKEN").exists()


def test_a_model_that_is_not_for_the_data_is_told_before_anything_is_written(tmp_path):
    """Its outputs have two channels, as its inputs have, and the targets have one."""
    rng = np.random.default_rng(0)
    split = rng.normal(size=(8, 12, 2)), rng.normal(size=(8, 12))
    options = {
        "data": {"train": split, "test": split},
        "batch_size": 4,
        "workdir": tmp_path / "run",
    }
    with pytest.raises(UsageError, match="LSTM"):
        flax_attn.train("shapes_lstm:quick", **options)
    assert list(tmp_path.iterdir()) == []


def test_texts_to_continue_are_not_given_from_python():
    with pytest.raises(UsageError, match="from Python"):
        from_python(TextFile, "next", {"train": ([], []), "test": ([], [])})
