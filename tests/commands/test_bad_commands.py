"""Mistakes that users make: one line, exit code 2, the key or the file named, nothing written.

`tests/test_schema.py` goes through every bad value of every setting.
"""

from pathlib import Path

import pytest

import flax_attn
from configs import shapes_cnn, text_csv
from flax_attn import config_files, experiment
from flax_attn.__main__ import main
from flax_attn.errors import LONGEST, UsageError
from tests import tiny

RED, TURNED = "\x1b[31m", "\u202e"  # steer a terminal: what follows is red, or written backwards


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A directory of its own, where runs and figures would go."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def complaint(capsys, *arguments):
    """The one line that a bad command prints."""
    before = sorted(Path.cwd().rglob("*"))
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("error: ")
    assert len(err) <= len("error: \n") + LONGEST
    assert sorted(Path.cwd().rglob("*")) == before
    return err


TRAINING = [  # arguments after `train`, and a word of the error
    ("", "shapes_attention"),
    ("shapes_cn", "'shapes_cnn'"),
    ("shapes_cnn:fast", "shapes_cnn:quick"),
    ("shapes_cnn:", "shapes_cnn:quick"),
    ("shapes_cnn shapes_lstm", "shapes_lstm"),
    ("shapes_cnn --config=other", "other"),
    ("--config=configs/other.py", "configs/other.py"),
    ("--config=configs/shapes_cnn.yaml", "shapes_cnn.yaml"),
    ("shapes_cnn --confg=3", "'config'"),
    ("shapes_cnn --workdir=", "--workdir"),
    ("shapes_cnn --model.feature=3", "'model.features'"),
    ("shapes_cnn --lr=0.01", "'learning_rate'"),
    ("shapes_cnn --optimizer=adam", "optimizer.schedule"),
    ("shapes_cnn --model.name=transfomer", "transfomer"),
    ("shapes_cnn --data.name=no.module:Class", "no.module"),
    ("shapes_cnn --data.name=builtins:int", "builtins:int"),
    ("shapes_cnn --data.name=flax_attn.data.sets:SignalData", "SignalData"),
    ("shapes_cnn --keep_best false", "false"),
    ("shapes_cnn --batch_size", "--batch_size"),
    ("shapes_cnn --batch_size=30000", "batch_size"),
    ("shapes_cnn --evaluate=test", "evaluate"),
    ("shapes_cnn --keep_best=False --patience=3", "keep_best"),
    ("shapes_cnn --data.valid_fraction=0", "data.valid_fraction"),
    ("shapes_cnn --data.fresh --data.subset=30", "data.subset"),
    ("shapes_cnn --num_epochs=100000", "num_epochs"),
    ("shapes_cnn --class_weights", "class_weights"),
    ("shapes_cnn --sequence=2", "--sequence"),
    ("shapes_cnn --workdir=s3://bucket/run", "s3://bucket/run"),
    ("mnist_mlp --manual_dir=nowhere", "nowhere"),
    ("text_csv", "--data.file"),
    ("text_csv --data.train_file=a.csv", "'data.file'"),
    ("text_csv --data.file=none.csv", "none.csv"),
    ("text_csv --data.file=a.csv --data.valid_fraction=0", "data.valid_fraction"),
    ("sst_best --data.tokenizer=character", "data.tokenizer"),
    ("translate_tsv --data.file=p.tsv --data.source_column=2", "data.source_column"),
    ("translate_multi30k --data.source=en", "data.source"),
    ("translate_multi30k_transformer --data.shared_vocabulary=False", "data.shared_vocabulary"),
    ("series_input_attention --data.relevant=8", "data.relevant"),
    ("induction --data.max_letters=26", "data.max_length"),
    (
        "text_file --data.file=. --data.tokenizer=bytes --data.vocabulary_size=100",
        "vocabulary_size",
    ),
    ("images_folder --data.file=x --data.size=-1", "data.size"),
    ("names --model.features=12 --model.num_heads=4", "num_heads"),
]


@pytest.mark.parametrize(("arguments", "word"), TRAINING)
def test_a_bad_command_to_train_is_one_line(arguments, word, capsys):
    assert word in complaint(capsys, "train", *arguments.split())


CONFIGS = {  # files of the user's own, and a word of the error
    "def get_config(variant) return": "SyntaxError",
    "import no_such_module": "no_such_module",
    "raise ImportError('first\\nsecond')": "first second",
    "def get_config(): pass": "TypeError",
    "": "get_config",
    "def get_config(variant): return None": "NoneType",
    "def get_config(variant): return {}": "data.name",
    "def get_config(variant): return {'data': 3}": "data.name",
    "def get_config(variant): raise ValueError('first\\nsecond')": "first second",
    "c.extra = 3": "'extra'",
    "c.seed = True": "seed",
    "c.model.features = '64'": "model.features",
    "c.evaluate = 'test'": "evaluate",
    "c.reference = {'last/test/mse': 'x'}": "reference.last/test/mse",
    "del c.data['name']": "data.name",
}


@pytest.mark.parametrize(("text", "word"), CONFIGS.items())
def test_a_bad_config_file_is_one_line(text, word, tmp_path, capsys):
    if text.startswith(("c.", "del c.")):
        text = (
            "from configs import shapes_cnn\ndef get_config(variant):\n"
            f"  c = shapes_cnn.get_config()\n  with c.ignore_type():\n    {text}\n  return c\n"
        )
    (tmp_path / "mine.py").write_text(text)
    assert word in complaint(capsys, "train", tmp_path / "mine.py")


def test_a_config_may_be_a_dict_of_differences(tmp_path):
    text = "def get_config(variant): return {'name': 'mine', 'model': {'name': 'cnn'}, "
    (tmp_path / "mine.py").write_text(text + "'data': {'name': 'shapes', 'num_train': 200}}")
    config = experiment.Config.of(config_files.read(str(tmp_path / "mine.py")))
    assert (config.data.num_train, config.batch_size) == (200, 64)


@pytest.mark.parametrize("width", [40, 100])
def test_the_list_of_configs_fits_its_width(width):
    assert max(map(len, config_files.listed(width).splitlines())) <= width


# --- predictions ---------------------------------------------------------------------------------


def trained(config, workdir, overrides):
    """A run of one epoch, with the parameters that it began with."""
    config.update_from_flattened_dict(overrides | {"num_epochs": 1})
    with tiny.untrained():
        experiment.run(experiment.Config.of(config), workdir)
    return workdir


@pytest.fixture(scope="module")
def signals(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "signals"
    return trained(shapes_cnn.get_config("quick"), workdir, tiny.CNN | tiny.SHAPES)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A run on texts and labels that hold what steers a terminal."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [
        (f"a good {RED}film number {i}", f"yes{TURNED}") if i % 2 else (f"bad {i}", f"no{RED}")
        for i in range(60)
    ]
    lines = "".join(f'"{text}","{label}"\n' for text, label in rows)
    (folder / "own.csv").write_text("text,label\n" + lines, encoding="utf-8")
    config = text_csv.get_config("quick")
    config.data.file, config.data.preprocessing = str(folder / "own.csv"), "lower"
    return trained(config, folder / "texts", tiny.TEXTS)


PREDICTIONS = [  # the arguments behind a run on texts, and a word of the error
    ([], "text"),
    (["zzz"], "word"),
    (["a good film", "--input", "good.txt"], "--input"),
    (["--input", "latin.txt"], "latin.txt"),
]


@pytest.mark.parametrize(("arguments", "word"), PREDICTIONS)
def test_a_bad_command_to_predict_is_one_line(arguments, word, texts, capsys):
    """`tests/test_cli.py` has those of signals."""
    Path("good.txt").write_text("a good film\n")
    Path("latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    assert word in complaint(capsys, "predict", texts, *arguments)


def test_labels_and_texts_are_printed_with_escapes(texts, capsys):
    """No character of the user's data steers the terminal."""
    assert main(["predict", str(texts), f"a good {RED}film{TURNED}\x7f\x9b"]) == 0
    printed = "".join(capsys.readouterr())
    assert not {"\x1b", TURNED, "\x7f", "\x9b", "\r", "\x07"} & set(printed)
    for escaped in ("yes\\u202e", "no\\x1b[31m", "\\x1b[31mfilm\\u202e\\x7f\\x9b"):
        assert escaped in printed


def test_a_run_directory_inside_another_run_is_refused(signals, capsys):
    before = sorted(signals.rglob("*"))
    for place in ("checkpoints/new", "new"):
        said = complaint(capsys, "train", "shapes_cnn", "--workdir", signals / place)
        assert str(signals) in said
    assert sorted(signals.rglob("*")) == before


def test_a_path_without_a_name_is_refused_from_python():
    for call in (lambda: flax_attn.load(""), lambda: flax_attn.train("shapes_cnn", workdir="")):
        with pytest.raises(UsageError):
            call()
