"""A few of the faults of `tests/faults.py`, in real processes."""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from flax_attn.__main__ import main
from flax_attn.runs import checkpoints
from tests import faults

TASK = faults.TASKS["signals"]
ROOT = Path(__file__).parent.parent


def test_every_promise_has_its_test():
    page = (ROOT / "docs" / "reliability.md").read_text()
    named = re.findall(r"`(\w+): (test_\w+)`", page)
    assert len(named) > 15
    files = {path.stem.removeprefix("test_"): path for path in (ROOT / "tests").rglob("test_*.py")}
    for file, test in named:
        assert f"def {test}(" in files[file.removeprefix("test_")].read_text(), test


@pytest.fixture
def train_here(capsys):
    """Trains in this process, where a process of its own is not the point."""

    def train(workdir, task=TASK):
        code = main(["train", *task, f"--workdir={workdir}"])
        return code, *capsys.readouterr()

    return train


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A run that nothing disturbed, and the number of its file operations."""
    workdir = tmp_path_factory.mktemp("runs") / "unbroken"
    code, out, err = faults.train(TASK, workdir)
    assert (code, err) == (0, "")
    return workdir, faults.operations(out)


@pytest.mark.parametrize("share", [0.15, pytest.param(0.5, marks=pytest.mark.slow), 0.85])
def test_a_run_killed_at_any_moment_goes_on_to_the_last_bit(unbroken, tmp_path, share, train_here):
    expected, last = unbroken
    workdir = tmp_path / "run"
    code, _, _ = faults.train(TASK, workdir, kill_at=int(share * last))
    assert code == -signal.SIGKILL
    code, _, err = train_here(workdir)
    assert (code, err) == (0, "")
    assert faults.contents(workdir) == faults.contents(expected)


LONG = [*TASK, "--steps_per_epoch=20000", "--num_epochs=1"]


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_start_says_who_is_there_and_the_first_goes_on(tmp_path):
    workdir = tmp_path / "run"
    first = faults.start(LONG, workdir)
    wait_for((workdir / "metrics.jsonl").exists, first)
    code, _, err = faults.train(LONG, workdir)
    assert code == 2
    assert err.startswith(f"error: {workdir} is in use by process {first.pid} on ")
    assert len(err.splitlines()) == 1
    first.send_signal(signal.SIGTERM)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 143
    assert "stopped by SIGTERM; " in err
    assert "steps of epoch 1 are saved; the same command goes on from there" in err
    assert not (workdir / ".lock").exists()
    (begun,) = checkpoints.saved(workdir / "checkpoints")
    assert begun > (0, 0)
    again = faults.start(LONG, workdir)
    while "resuming after epoch 0 and" not in again.stdout.readline():
        assert again.poll() is None
    for _ in range(3):
        again.send_signal(signal.SIGINT)
    again.communicate(timeout=60)
    assert again.returncode == 130


# a signal comes within the first steps
CUT = """
import os, signal, sys
from flax_attn.__main__ import main
from flax_attn.experiment import running
take_chunk = running.take_chunk
def cut(*arguments):
    os.kill(os.getpid(), signal.SIGHUP)
    return take_chunk(*arguments)
running.take_chunk = cut
sys.exit(main(["train", *sys.argv[1:]]))
"""


def test_a_process_that_a_test_starts_hears_the_signals_that_the_session_ignores():
    names = "signal.SIGINT, signal.SIGHUP, signal.SIGTERM"
    code = f"import signal; print(*[signal.getsignal(n) == signal.SIG_IGN for n in ({names})])"
    before = {number: signal.signal(number, signal.SIG_IGN) for number in faults.SIGNALS}
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        now = [signal.getsignal(number) for number in faults.SIGNALS]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert done.stdout == "False False False\n"
    assert now == [signal.SIG_IGN] * 3


def test_an_epoch_cut_by_a_signal_ends_as_the_unbroken_one(tmp_path, train_here, no_pictures):
    task = [*TASK, "--steps_per_epoch=60", "--num_epochs=1"]
    code, _, _ = train_here(tmp_path / "unbroken", task)
    assert code == 0
    command = [sys.executable, "-c", CUT, *task, f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 129
    assert "steps of epoch 1 are saved; the same command goes on from there" in done.stderr
    code, _, _ = train_here(tmp_path / "run", task)
    assert code == 0
    assert faults.contents(tmp_path / "run") == faults.contents(tmp_path / "unbroken")


def test_all_checkpoints_damaged_ends_in_a_way_out(unbroken, tmp_path, train_here):
    run = tmp_path / "run"
    shutil.copytree(unbroken[0], run)
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"PK")
    code, _, err = train_here(run)
    assert code == 2
    assert f"remove {run / 'checkpoints'} to train from the start" in err
    shutil.rmtree(run / "checkpoints")
    code, _, _ = train_here(run)
    assert code == 0
    assert faults.contents(run) == faults.contents(unbroken[0])


def test_a_lock_of_a_killed_process_holds_nobody(unbroken, tmp_path, train_here):
    run = tmp_path / "run"
    shutil.copytree(unbroken[0], run)
    (run / ".lock").write_text('{"pid": 1, "host": "gone", "since": "2001"}')
    os.utime(run / ".lock", (0, 0))
    code, out, _ = train_here(run)
    assert code == 0
    assert "this run is finished" in out


@contextlib.contextmanager
def no_file_above(limit):
    """Within it, this process writes no file of more bytes, and none into XLA's cache."""
    option = "jax_persistent_cache_min_compile_time_secs"
    seconds, sizes = getattr(jax.config, option), resource.getrlimit(resource.RLIMIT_FSIZE)
    jax.config.update(option, 1e9)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, sizes[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, sizes)
        jax.config.update(option, seconds)


def test_a_checkpoint_that_cannot_be_written_is_one_line_and_the_run_goes_on(
    unbroken, tmp_path, train_here
):
    with no_file_above(4_000):
        code, _, err = train_here(tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1), err
    assert "cannot write checkpoint" in err
    code, _, err = train_here(tmp_path / "run")
    assert (code, err) == (0, "")
    assert faults.contents(tmp_path / "run") == faults.contents(unbroken[0])
