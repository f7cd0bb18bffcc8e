"""The command line as a user has it: real processes, real files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
SMALL = ["--config.batch_size=32", "--config.steps_per_epoch=4", "--config.data.num_train=400", "--config.data.num_test=50"]


def train(*args, config="shapes_attention", wait=True):
    command = [sys.executable, "train.py", f"--config=configs/{config}.py", *map(str, args)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not wait:
        return process
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def flax_attn(*args):
    command = [sys.executable, "-m", "flax_attn", *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An attention run and a CNN run, unbroken."""
    folder = tmp_path_factory.mktemp("runs")
    for config in ("shapes_attention", "shapes_cnn"):
        code, out, err = train(*SMALL, "--config.num_epochs=8", f"--workdir={folder / config}", config=config)
        assert (code, err) == (0, ""), err
        assert "epoch 8/8" in out
    return folder


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_kill_9_and_resume_equal_the_unbroken_run(runs, tmp_path):
    workdir = tmp_path / "run"
    arguments = [*SMALL, "--config.num_epochs=8", f"--workdir={workdir}"]
    process = train(*arguments, wait=False)
    metrics = workdir / "metrics.jsonl"
    deadline = time.monotonic() + 200
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 4:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (workdir / "summary.json").exists()
    newest = max((path for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    damaged = next(path for path in sorted(newest.rglob("d/*")) if path.stat().st_size > 1000)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    code, out, _ = train(*arguments)
    assert code == 0
    assert "is damaged" in out
    assert f"resuming after epoch {int(newest.name) - 1}" in out
    straight = runs / "shapes_attention"
    assert metrics.read_bytes() == (straight / "metrics.jsonl").read_bytes()
    ours, expected = (json.loads((folder / "summary.json").read_text()) for folder in (workdir, straight))
    assert ours["metrics"] == expected["metrics"]
    with np.load(workdir / "examples.npz") as ours, np.load(straight / "examples.npz") as expected:
        for name in expected:
            np.testing.assert_array_equal(ours[name], expected[name])


@pytest.mark.parametrize(
    ("arguments", "config", "said"),
    [
        (["--config.num_head=3"], "shapes_cnn", "unknown config key 'num_head'"),
        (["--config.model.feature=3"], "shapes_cnn", "did you mean 'model.features'?"),
        (["--config.nothing", "3"], "shapes_cnn", "unknown config key 'nothing'"),
        (["--config.batch_size=many"], "shapes_cnn", "expected int for config key 'batch_size', such as 128, got 'many'"),
        (["--config.data.fresh=maybe"], "shapes_cnn", "expected bool for config key 'data.fresh'"),
        ([], "shapes_cn", "no config file configs/shapes_cn.py; there are shapes_attention"),
        (["leftover"], "shapes_cnn", "unexpected argument 'leftover'"),
        (["--confg=3"], "shapes_cnn", "Unknown command line flag 'confg'"),
        (["--config.batch_size=0"], "shapes_cnn", "'batch_size' to be a number above 0, got 0"),
        (["--workdir=train.py"], "shapes_cnn", "is a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, config, said):
    code, out, err = train(*arguments, config=config)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert said in err
    assert not (ROOT / "runs").exists()


def test_a_changed_config_and_a_foreign_directory_are_refused(runs, tmp_path):
    before = snapshot(runs)
    code, _, err = train(*SMALL, "--config.num_epochs=8", "--config.learning_rate=0.1", f"--workdir={runs / 'shapes_attention'}")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "'learning_rate' was 0.001" in err
    (tmp_path / "mine.txt").write_text("mine")
    code, _, err = train(*SMALL, f"--workdir={tmp_path}")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "no config.json" in err
    assert snapshot(runs) == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_predict_keeps_shape_and_units(runs, tmp_path):
    with np.load(runs / "shapes_attention" / "examples.npz") as examples:
        inputs, expected = examples["inputs"][:3, :, 0], examples["predictions"][:3, :, 0]
    np.save(tmp_path / "signal.npy", inputs)
    np.savetxt(tmp_path / "signal.csv", inputs, delimiter=",")
    code, out, err = flax_attn("predict", runs / "shapes_attention", "--input", tmp_path / "signal.npy", "--figure", tmp_path / "map.png")
    assert (code, err) == (0, "")
    assert f"wrote {tmp_path / 'map.png'}" in out
    np.testing.assert_allclose(np.load(tmp_path / "signal.predictions.npy"), expected, atol=1e-4)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    code, _, _ = flax_attn("predict", runs / "shapes_attention", "--input", tmp_path / "signal.csv", "--output", tmp_path / "out.csv")
    assert code == 0
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out.csv", delimiter=","), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        (np.zeros((2, 99)), "signals of 100 points, (100,), (n, 100) or (n, 100, 1), got (2, 99)"),
        (np.full((1, 100), np.nan), "finite real numbers"),
        (np.zeros((2, 100, 2)), "got (2, 100, 2)"),
    ],
)
def test_predict_refuses_what_is_not_a_signal(runs, tmp_path, signals, said):
    from flax_attn.__main__ import main

    np.save(tmp_path / "signal.npy", signals)
    before = snapshot(tmp_path)
    code, out, err = capture(main, ["predict", str(runs / "shapes_cnn"), "--input", str(tmp_path / "signal.npy")])
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert snapshot(tmp_path) == before


def test_predict_and_compare_refuse_what_is_not_there(runs, tmp_path):
    from flax_attn.__main__ import main

    (tmp_path / "bad.csv").write_text("1,2,three\n")
    good = tmp_path / "good.npy"
    np.save(good, np.zeros(100))
    cnn = str(runs / "shapes_cnn")
    for arguments, said in [
        (["predict", str(tmp_path / "none"), "--input", str(good)], "no run directory"),
        (["predict", cnn, "--input", str(tmp_path / "none.npy")], "No such file"),
        (["predict", cnn, "--input", str(tmp_path / "bad.csv")], "expected numbers"),
        (["predict", cnn, "--input", str(good), "--output", "/nowhere/at/all.npy"], "cannot write"),
        (["predict", cnn, "--input", str(good), "--figure", str(tmp_path / "map.txt")], ".png, .pdf or .svg"),
        (["compare", str(tmp_path)], "no config.json"),
    ]:
        code, out, err = capture(main, arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert said in err


def capture(function, arguments):
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = function(arguments)
    return code, out.getvalue(), err.getvalue()


def test_compare_prints_one_table_and_draws(runs, tmp_path):
    folders = [runs / "shapes_attention", runs / "shapes_cnn"]
    code, out, err = flax_attn("compare", *folders, "--output", tmp_path / "figures")
    assert (code, err) == (0, "")
    for word in ("58,177", "62,337"):
        assert word in out
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["loss.png", "predictions.png"]
