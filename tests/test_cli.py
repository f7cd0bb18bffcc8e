"""The command line as a user has it: real processes, real files."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from configs import shapes_attention, shapes_cnn
from flax_attn import config_files, experiment
from flax_attn.__main__ import main
from flax_attn.commands import exploring, training
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from flax_attn.files import can_be_made
from tests.written_runs import vouch

ROOT = Path(__file__).parent.parent
KEEP = "import jax; from flax_attn.commands.training import keep_compiled; keep_compiled(); "
SMALL = [
    "--config.batch_size=32",
    "--config.steps_per_epoch=4",
    "--config.data.num_train=400",
    "--config.data.num_test=50",
]


def train(*args, config="shapes_attention", wait=True):
    command = [sys.executable, "train.py", *map(str, args), f"--config=configs/{config}.py"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if not wait:
        return process
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def flax_attn(*args):
    command = [sys.executable, "-m", "flax_attn", *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("what", ["reading", "writing"])
def test_a_program_that_cannot_be_kept_is_nothing_to_warn_of(what):
    with warnings.catch_warnings(action="error"):
        training.keep_compiled()
        warnings.warn(f"Error {what} persistent compilation cache entry for 'jit_f'", stacklevel=1)


def test_garbage_is_collected_while_a_run_trains():
    training.import_jax()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("name", "has"),
    [("DISPLAY", True), ("WAYLAND_DISPLAY", True), ("BROWSER", True), ("TERM", False)],
)
def test_a_browser_is_opened_where_there_is_a_screen(name, has, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for other in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "something")
    assert exploring.has_screen() == has


@pytest.mark.parametrize("user_says", [True, False])
def test_compiled_programs_are_kept_where_the_user_says_or_in_the_users_cache(user_says, tmp_path):
    """Nothing is compiled here: only where it would go is looked at."""
    code = KEEP + "print(jax.config.jax_compilation_cache_dir)"
    environment = {
        key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"
    }
    environment |= {"XDG_CACHE_HOME": str(tmp_path)} | (
        {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "given")} if user_says else {}
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    place = Path(done.stdout.strip())
    assert place == tmp_path / "given" if user_says else place.parent == tmp_path / "flax_attn"
    assert list(tmp_path.iterdir()) == []


def test_a_cache_is_kept_where_its_folder_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    assert can_be_made(tmp_path / "a" / "b")
    assert can_be_made(tmp_path)
    assert not can_be_made(tmp_path / "file")
    assert not can_be_made(tmp_path / "file" / "a" / "b")


def test_devices_that_are_not_there_are_told_in_one_line(tmp_path):
    command = [sys.executable, "-m", "flax_attn", "train", "shapes_cnn", f"--workdir={tmp_path}/x"]
    environment = os.environ | {"JAX_PLATFORMS": "abacus"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert "error: expected devices of JAX_PLATFORMS=abacus (Unable to initialize" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("off", [False, True])
def test_compiled_programs_are_kept_unless_the_user_says_no(off, tmp_path):
    code = KEEP + "jax.jit(lambda x: x + 1)(1.0)"
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false"} if off else {}
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
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


@pytest.mark.full
def test_kill_9_and_resume_equal_the_unbroken_run(tmp_path):
    workdir, straight = tmp_path / "run", tmp_path / "straight"
    code, _, _ = train(
        *SMALL, "--config.num_epochs=5", f"--workdir={straight}", config="shapes_lstm"
    )
    assert code == 0
    arguments = [*SMALL, "--config.num_epochs=5", f"--workdir={workdir}"]
    process = train(*arguments, config="shapes_lstm", wait=False)
    metrics = workdir / "metrics.jsonl"
    deadline = time.monotonic() + 200
    whole = lambda: [path.parent for path in workdir.glob("checkpoints/*/sums.json")]
    while len(whole()) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (workdir / "summary.json").exists()
    newest = max(whole(), key=lambda path: int(path.name))
    damaged = newest / "state.msgpack"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    code, out, _ = train(*arguments, config="shapes_lstm")
    assert code == 0
    assert "is damaged" in out
    assert f"resuming after epoch {int(newest.name) - 1}" in out
    assert metrics.read_bytes() == (straight / "metrics.jsonl").read_bytes()
    ours, expected = (
        json.loads((folder / "summary.json").read_text()) for folder in (workdir, straight)
    )
    assert ours["metrics"] == expected["metrics"]
    with np.load(workdir / "examples.npz") as ours, np.load(straight / "examples.npz") as expected:
        for name in expected:
            np.testing.assert_array_equal(ours[name], expected[name])


@pytest.mark.parametrize(
    ("arguments", "config", "said"),
    [
        (["--config.model.feature=3"], "shapes_cnn", "'model.features'"),
        ([], "shapes_cn", "'shapes_cnn'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, config, said):
    runs = lambda: sorted((ROOT / "runs").glob("*"))  # there may be the user's own
    before = runs()
    code, out, err = train(*arguments, config=config)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert said in err
    assert runs() == before


def test_a_changed_config_and_a_foreign_directory_are_refused(run, tmp_path):
    before = snapshot(run)
    code, _, err = train(
        *SMALL, "--config.num_epochs=2", "--config.learning_rate=0.1", f"--workdir={run}"
    )
    assert (code, len(err.splitlines())) == (2, 1)
    assert "'learning_rate' was 0.005" in err
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"no config\.json"):
        experiment.run(experiment.Config.of(shapes_attention.get_config()), tmp_path)
    assert snapshot(run) == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.full
def test_predict_keeps_shape_and_units(run, tmp_path):
    with np.load(run / "examples.npz") as examples:
        inputs, expected = examples["inputs"][:3, :, 0], examples["predictions"][:3, :, 0]
    np.save(tmp_path / "signal.npy", inputs)
    np.savetxt(tmp_path / "signal.csv", inputs, delimiter=",")
    code, out, err = flax_attn(
        "predict", run, "--input", tmp_path / "signal.npy", "--figure", tmp_path / "map.png"
    )
    assert (code, err) == (0, "")
    assert f"wrote {tmp_path / 'map.png'}" in out
    np.testing.assert_allclose(np.load(tmp_path / "signal.predictions.npy"), expected, atol=1e-4)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    code, _, _ = flax_attn(
        "predict", run, "--input", tmp_path / "signal.csv", "--output", tmp_path / "out.csv"
    )
    assert code == 0
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out.csv", delimiter=","), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        (np.zeros((2, 99)), "signals of 100 points, (100,), (n, 100) or (n, 100, 1), got (2, 99)"),
        (np.zeros((2, 100, 2)), "got (2, 100, 2)"),
        (np.zeros((2, 3, 100)), "got (2, 3, 100)"),
        (np.zeros((0, 100)), "got an empty array, of shape (0, 100)"),
        (np.float32(3), "got ()"),
        (np.full((1, 100), np.nan), "finite numbers"),
        (np.full((1, 100), 1e300), "finite numbers"),
        (np.full((1, 100), 1e38), "in the range that the model was trained on"),
        (np.zeros((1, 100), "m8[s]"), "real numbers in"),
    ],
)
def test_predict_refuses_what_is_not_a_signal(run, tmp_path, capsys, signals, said):
    np.save(tmp_path / "signal.npy", signals)
    before = snapshot(tmp_path)
    assert main(["predict", str(run), "--input", str(tmp_path / "signal.npy")]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err
    assert snapshot(tmp_path) == before


def test_bad_arguments_of_predict_and_compare_are_one_line_and_touch_nothing(run, tmp_path, capsys):
    good, folder = tmp_path / "good.npy", tmp_path / "folder.npy"
    folder.mkdir()
    np.save(good, np.zeros(100))
    np.savez(tmp_path / "archive.npz", np.zeros(100))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bad.csv").write_text("1,2,three\n")
    (tmp_path / "text.npy").write_bytes(b"PK\x03\x04")
    before = snapshot(tmp_path)
    for arguments, said in [
        (["predict", tmp_path / "none", "--input", good], "no run directory"),
        (["predict", run, "--input", tmp_path / "none.npy"], "No such file"),
        (["predict", run, "--input", tmp_path / "bad.csv"], "expected numbers"),
        (["predict", run, "--input", tmp_path / "empty.csv"], "got an empty file"),
        (["predict", run, "--input", tmp_path / "empty.npy"], "expected numbers"),
        (["predict", run, "--input", tmp_path / "text.npy"], "an archive of several"),
        (
            ["predict", run, "--input", good, "--output", tmp_path / ("x" * 300 + ".npy")],
            "File name too long",
        ),
        (["predict", run, "--input", tmp_path / "archive.npy"], "an archive of several"),
        (["predict", run, "--input", tmp_path], "--input to end in"),
        (["predict", run, "--input", folder], "cannot read --input"),
        (
            ["predict", run, "--input", good, "--output", "/nowhere/at/all.npy"],
            "--output to be a file in a directory that exists",
        ),
        (["predict", run, "--input", good, "--output", folder], "--output to be a file"),
        (["predict", run, "--input", good, "--output", good], "another file than --input"),
        (["predict", run, "--input", good, "--figure", tmp_path / "map.txt"], ".png, .pdf or .svg"),
        (
            ["predict", run, "--input", good, "--figure", tmp_path / "none" / "map.png"],
            "--figure to be a file in a directory that exists",
        ),
        (["predict", run], "expected --input FILE with signals of 100 points"),
        (["predict", run, "--input", good, "a text"], "neither a text nor --json"),
        (["compare"], "required: RUN"),
        (["compare", tmp_path], "no config.json"),
        (["compare", run, "--output", good], "cannot make the directory --output"),
        (["divine", run], "invalid choice: 'divine'"),
    ]:
        assert main([str(argument) for argument in arguments]) == 2, arguments
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1), err
        assert said in err
    assert snapshot(tmp_path) == before


def test_an_input_named_like_a_temporary_file_is_left_alone(run, tmp_path):
    source = tmp_path / "signal.partial.npy"
    np.save(source, np.zeros((1, 100)))
    before = snapshot(tmp_path)
    assert (
        main(
            ["predict", str(run), "--input", str(source), "--output", str(tmp_path / "signal.npy")]
        )
        == 0
    )
    assert before.items() <= snapshot(tmp_path).items()
    assert {path.name for path in tmp_path.iterdir()} == {"signal.partial.npy", "signal.npy"}


def test_compare_names_runs_by_their_directories(run, tmp_path, capsys):
    for name in ("wide", "b[red]"):
        shutil.copytree(run, tmp_path / name)
    assert (
        main(
            [
                "compare",
                str(tmp_path / "wide"),
                str(tmp_path / "b[red]"),
                "--output",
                str(tmp_path / "figures"),
            ]
        )
        == 0
    )
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
    vouch(other)
    code, out, err = flax_attn("compare", run, other, "--output", tmp_path / "figures")
    assert (code, err) == (0, "")
    for word in ("58,177", "130,660"):
        assert word in out
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "loss.png",
        "predictions.png",
    ]


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
