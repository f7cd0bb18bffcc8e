"""The command line as a user has it: real processes, real files."""

import gc
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import flax_attn.__main__ as command
from configs import shapes_attention, shapes_cnn
from flax_attn import config_files, experiment
from flax_attn.__main__ import main
from flax_attn.commands import training
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from tests.published.tiny import write_bert

ROOT = Path(__file__).parent.parent
KEEP = "import jax; from flax_attn.commands.training import keep_compiled; keep_compiled(); "
SMALL = ["--config.batch_size=32", "--config.steps_per_epoch=4"]
SMALL += ["--config.data.num_train=400", "--config.data.num_test=50"]


def ran(*args):
    command = [sys.executable, *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


def train(*args, config="shapes_attention"):
    return ran("train.py", *args, f"--config=configs/{config}.py")


def flax_attn(*args):
    return ran("-m", "flax_attn", *args)


def python(code, environment):
    """Runs code in a process of its own; returns what it prints."""
    command = [sys.executable, "-c", code]
    options = {"env": environment, "capture_output": True, "text": True, "check": True}
    return subprocess.run(command, cwd=ROOT, **options).stdout.strip()


@pytest.mark.parametrize("what", ["reading", "writing"])
def test_a_program_that_cannot_be_kept_is_nothing_to_warn_of(what):
    with warnings.catch_warnings(action="error"):
        training.keep_compiled()
        warnings.warn(f"Error {what} persistent compilation cache entry for 'jit_f'", stacklevel=1)


def test_garbage_is_collected_while_a_run_trains():
    training.import_jax()
    assert gc.isenabled()


@pytest.mark.parametrize("user_says", [True, False])
def test_compiled_programs_are_kept_where_the_user_says_or_in_the_users_cache(user_says, tmp_path):
    """Nothing is compiled here: only where it would go is looked at."""
    code = KEEP + "print(jax.config.jax_compilation_cache_dir)"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    del environment["JAX_COMPILATION_CACHE_DIR"]
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "given")} if user_says else {}
    place = Path(python(code, environment))
    assert place == tmp_path / "given" if user_says else place.parent == tmp_path / "flax_attn"
    assert list(tmp_path.iterdir()) == []


def test_devices_that_are_not_there_are_told_in_one_line(tmp_path):
    command = [sys.executable, "-m", "flax_attn", "train", "shapes_cnn", f"--workdir={tmp_path}/x"]
    environment = os.environ | {"JAX_PLATFORMS": "abacus"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert "abacus" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("off", [False, True])
def test_compiled_programs_are_kept_unless_the_user_says_no(off, tmp_path):
    code = KEEP + "jax.jit(lambda x: x + 1)(1.0)"
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false"} if off else {}
    python(code, environment)
    assert off != any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An attention run, unbroken."""
    workdir = tmp_path_factory.mktemp("runs") / "attention"
    code, out, err = train(*SMALL, "--config.num_epochs=2", f"--workdir={workdir}")
    assert (code, err) == (0, ""), err
    assert "epoch 2/2" in out
    assert f"look at {workdir}/figures/attention.png" in out
    assert f"then try: flax-attn explore {workdir}\n" in out
    return workdir


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_train_py_takes_what_the_command_takes():
    code, out, err = train("--config.model.feature=3", config="shapes_cnn")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "'model.features'" in err


def test_a_changed_config_and_a_foreign_directory_are_refused(run, tmp_path):
    before = snapshot(run)
    changed = ["--config.num_epochs=2", "--config.learning_rate=0.1"]
    code, _, err = train(*SMALL, *changed, f"--workdir={run}")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "learning_rate" in err
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"config\.json"):
        experiment.run(Config.of(shapes_attention.get_config()), tmp_path)
    assert snapshot(run) == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_predict_keeps_shape_and_units(run, tmp_path):
    with np.load(run / "examples.npz") as examples:
        inputs, expected = examples["inputs"][:3, :, 0], examples["predictions"][:3, :, 0]
    np.save(tmp_path / "signal.npy", inputs)
    np.savetxt(tmp_path / "signal.csv", inputs, delimiter=",")
    figure = ["--figure", tmp_path / "map.png"]
    code, out, err = flax_attn("predict", run, "--input", tmp_path / "signal.npy", *figure)
    assert (code, err) == (0, "")
    assert f"wrote {tmp_path / 'map.png'}" in out
    np.testing.assert_allclose(np.load(tmp_path / "signal.predictions.npy"), expected, atol=1e-4)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    files = ["--input", tmp_path / "signal.csv", "--output", tmp_path / "out.csv"]
    assert main(["predict", str(run), *map(str, files)]) == 0
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out.csv", delimiter=","), expected, atol=1e-3)


SIGNALS = {
    "good": np.zeros(100),
    "other": np.zeros((2, 99)),
    "wide": np.zeros((2, 100, 2)),
    "none": np.zeros((0, 100)),
    "nan": np.full((1, 100), np.nan),
    "far": np.full((1, 100), 1e38),
    "times": np.zeros((1, 100), "m8[s]"),
}
PREDICT = ["predict", "run", "--input"]
BAD = {  # arguments, and what the line names
    "another length": ([*PREDICT, "other.npy"], "(2, 99)"),
    "several channels": ([*PREDICT, "wide.npy"], "(2, 100, 2)"),
    "no signal": ([*PREDICT, "none.npy"], "(0, 100)"),
    "a NaN": ([*PREDICT, "nan.npy"], "finite"),
    "far from the training": ([*PREDICT, "far.npy"], "finite"),
    "other numbers": ([*PREDICT, "times.npy"], "real numbers"),
    "no run": (["predict", "nowhere", "--input", "good.npy"], "nowhere"),
    "no input": ([*PREDICT, "gone.npy"], "gone.npy"),
    "no array": ([*PREDICT, "bad.csv"], "bad.csv"),
    "another ending": ([*PREDICT, "train.py"], ".npy or .csv"),
    "a folder": ([*PREDICT, "folder.npy"], "folder.npy"),
    "no folder for an output": ([*PREDICT, "good.npy", "--output", "no/all.npy"], "no/all.npy"),
    "a folder for an output": ([*PREDICT, "good.npy", "--output", "folder.npy"], "folder.npy"),
    "the input as output": ([*PREDICT, "good.npy", "--output", "good.npy"], "--input"),
    "another picture": ([*PREDICT, "good.npy", "--figure", "map.txt"], ".png"),
    "a picture of the run": ([*PREDICT, "good.npy", "--output", "run/examples.npz"], "--output"),
    "neither text nor file": (["predict", "run"], "--input"),
    "a text": ([*PREDICT, "good.npy", "a text"], "text"),
    "a file as text": (["predict", "run", "good.npy"], "--input"),
    "an unknown flag": ([*PREDICT, "good.npy", "--inptu=3"], "--inptu"),
    "a word for a number": ([*PREDICT, "good.npy", "--beam=many"], "--beam"),
    "a beam": ([*PREDICT, "good.npy", "--beam=3"], "translation"),
    "nothing to compare": (["compare"], "RUN"),
    "no run to compare": (["compare", "."], "config.json"),
    "a file for figures": (["compare", "run", "--output", "good.npy"], "good.npy"),
    "a report of no run": (["report", "nowhere"], "nowhere"),
    "a report of a picture": (["report", "run", "-o", "report.png"], ".html"),
    "an unknown command": (["divine", "run"], "divine"),
    "an unknown demo": (["demo", "shape"], "'shapes'"),
    "no command": ([], "command"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_command_is_one_line_and_touches_nothing(kind, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(run)
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "bad.csv").write_text("1,2,three\n")
    for name, array in SIGNALS.items():
        np.save(tmp_path / f"{name}.npy", array)
    before = snapshot(tmp_path), snapshot(run)
    arguments, said = BAD[kind]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1), err
    assert said in err
    assert (snapshot(tmp_path), snapshot(run)) == before


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (MemoryError("no\nroom"), 2, "error: no room; lower"),
        (FileNotFoundError(2, "No such file", "x.npy"), 2, "error: cannot read or write x.npy"),
        (FloatingPointError("in step 3"), 2, "error: in step 3"),
    ],
)
def test_errors_of_libraries_are_one_line(error, code, said, monkeypatch, capsys):
    def fail(args):
        raise error

    monkeypatch.setitem(command.COMMANDS, "demo", (*command.COMMANDS["demo"][:1], fail, ""))
    assert main(["demo"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_the_end_of_a_pipe_is_quiet():
    words = f"{sys.executable} -m flax_attn train --help | head -1"
    done = subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("usage: flax-attn train")
    assert done.stderr == ""


def test_texts_may_come_through_a_pipe(tmp_path):
    folder = write_bert(tmp_path, "classes")
    words = f"echo a dog | {sys.executable} -m flax_attn predict {folder} --input /dev/stdin --json"
    done = subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True)
    assert [row["input"] for row in json.loads(done.stdout)] == ["a dog"]


def test_an_input_named_like_a_temporary_file_is_left_alone(run, tmp_path):
    source = tmp_path / "signal.partial.npy"
    np.save(source, np.zeros((1, 100)))
    before = snapshot(tmp_path)
    files = ["--input", str(source), "--output", str(tmp_path / "signal.npy")]
    assert main(["predict", str(run), *files]) == 0
    assert before.items() <= snapshot(tmp_path).items()
    assert {path.name for path in tmp_path.iterdir()} == {"signal.partial.npy", "signal.npy"}


def test_compare_names_runs_by_their_directories(run, tmp_path, capsys):
    copies = [str(shutil.copytree(run, tmp_path / name)) for name in ("wide", "b[red]")]
    assert main(["compare", *copies, "--output", str(tmp_path / "figures")]) == 0
    out = capsys.readouterr().out
    assert "wide" in out
    assert "b[red]" in out


def test_a_run_that_is_named_twice_is_one_row(run, tmp_path, capsys):
    (tmp_path / "link").symlink_to(run)
    names = [str(run), f"{run}/", str(tmp_path / "link")]
    assert main(["compare", *names, "--output", str(tmp_path / "figures")]) == 0
    assert capsys.readouterr().out.count("58,177") == 1


def test_compare_prints_one_table_and_draws(run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    summary = json.loads((other / "summary.json").read_text())
    (other / "summary.json").write_text(json.dumps(summary | {"parameters": 130_660}))
    code, out, err = flax_attn("compare", run, other, "--output", tmp_path / "figures")
    assert (code, err) == (0, "")
    for word in ("58,177", "130,660"):
        assert word in out
    drawn = sorted(path.stem for path in (tmp_path / "figures").iterdir())
    assert drawn == ["loss", "predictions"]


def test_help_says_what_each_config_does_and_runs_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(config_files, "read", lambda name: pytest.fail("a config was run"))
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    _, _, listed = capsys.readouterr().out.partition("\nconfigs:\n")
    lines = dict(line.strip().split(": ", 1) for line in listed.splitlines())
    assert list(lines) == config_files.names()
    assert lines["names"] == "Names of an invented language, letter by letter."
    assert all(lines.values())


def test_what_to_look_at_first_is_the_attention_and_else_the_predictions(tmp_path):
    config = Config.of(shapes_cnn.get_config("quick"))
    (tmp_path / "figures").mkdir()
    for name in ("data_sample", "loss", "predictions", "attention"):
        (tmp_path / "figures" / f"{name}.png").touch()
        first, _ = training.next_steps(config, tmp_path)
        best = {"loss": "data_sample"}.get(name, name)
        assert first == f"look at {tmp_path / 'figures' / best}.png"
