"""Several processes that train one run together, and what ends them."""

import json
import os
import re
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.experiment import processes as of_runs
from tests import faults
from tests.processes import (
    QUICK,
    TASK,
    end,
    environments,
    lines,
    start,
    stop_after,
    train_on,
    wait_for_epoch,
)

# Others may be slow to start. From epoch 3 on, this process waits 5 s for them.
IMPATIENT = """
import os, sys, time
from flax_attn.experiment import processes, running
from flax_attn.tasks import figures
original, draw = running.take_chunk, figures.draw_run
def take_chunk(programs, now, *others):
    if now.progress.epoch == 2:
        processes._timeout = 5
        exec(os.environ.get("IN_EPOCH_3", ""))
    return original(programs, now, *others)
def draw_run(path):
    time.sleep(8)
    return draw(path)
running.take_chunk, figures.draw_run = take_chunk, draw_run
from flax_attn.__main__ import main
sys.exit(main())
"""


def test_two_processes_train_what_one_does(tmp_path, no_pictures):
    """Also where one of them is told to stop, and the same command goes on."""
    workdir, task = tmp_path / "run", [*TASK, "--num_epochs=3"]
    assert main(["train", *task, f"--workdir={tmp_path / 'alone'}"]) == 0
    first, second = environments(2)
    arguments = [*task, f"--workdir={workdir}"]
    told = second | {"STOPPED_IN": "2"}
    codes, _, err = end([start(arguments, own, QUICK) for own in (first, told)])
    assert codes == [143, 143], err
    check_stopped(err, workdir)
    codes, out, err = train_on(2, task, workdir, QUICK)
    assert codes == [0, 0], err
    check_resumed(out)
    assert faults.contents(workdir) == faults.contents(tmp_path / "alone")


def check_stopped(err, workdir):
    assert lines(err[0]) == lines(err[1])
    (line,) = lines(err[0])
    assert line.startswith("stopped by SIGTERM; ")
    assert not (workdir / "summary.json").exists()


def check_resumed(out):
    assert "mesh: 2 x 1 (seed x data); 1 of 2 seed(s) and 16 of 16 rows a device" in out[0]
    assert "resuming after epoch " in out[0]
    assert [line for line in out[1].splitlines() if "Gloo" not in line] == []


@pytest.mark.slow
def test_two_processes_train_what_one_does_with_its_pictures(trained_alone, tmp_path):
    """The same where the signal comes from elsewhere, at any moment."""
    workdir = tmp_path / "run"
    _, err = stop_after(2, TASK, workdir, number=1)
    check_stopped(err, workdir)
    codes, out, err = train_on(2, TASK, workdir)
    assert codes == [0, 0], err
    check_resumed(out)
    assert faults.contents(workdir) == trained_alone


def test_other_configs_are_refused_in_every_process(tmp_path):
    arguments = [*TASK, f"--workdir={tmp_path / 'run'}"]
    first, second = environments(2)
    processes = [start(arguments, first), start([*arguments, "--learning_rate=0.5"], second)]
    codes, _, err = end(processes)
    assert codes == [2, 2]
    assert "learning_rate is 0.5 in process 1 and 0.001 in 0" in lines(err[1])[0]
    assert "process 1 has another" in lines(err[0])[0]
    assert not (tmp_path / "run").exists()


def test_another_version_of_jax_is_refused(monkeypatch):
    told = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(of_runs, "_of_all", lambda differs: np.array([0, differs]))
    monkeypatch.setattr(of_runs, "broadcast", lambda own: told.append(own) or told[0])
    with monkeypatch.context() as process_0:
        process_0.setattr(jax, "__version__", "0.0")
        of_runs.check_same({"seed": 0})
    of_this = re.escape(repr(jax.__version__))
    with pytest.raises(UsageError, match=f"jax is {of_this} in process 0 and '0.0' in 0"):
        of_runs.check_same({"seed": 0})


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_when_one_is_killed_the_other_ends_and_the_run_goes_on(trained_alone, tmp_path, number):
    """Also where it is the first one, through which they meet."""
    workdir = tmp_path / "run"
    arguments = [*TASK, f"--workdir={workdir}"]
    processes = [start(arguments, own, timeout=30) for own in environments(2)]
    wait_for_epoch(workdir, 3, processes)
    processes[number].kill()
    codes, _, _ = end(processes, 60)
    assert codes[number] == -signal.SIGKILL
    assert codes[1 - number] != 0
    codes, _, err = train_on(2, TASK, workdir)
    assert codes == [0, 0], err
    assert faults.contents(workdir) == trained_alone


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_one(trained_alone, tmp_path):
    workdir = tmp_path / "run"
    stop_after(3, TASK, workdir)
    code, _, err = faults.train(TASK, workdir)
    assert code == 0, err
    assert faults.contents(workdir) == trained_alone


@pytest.mark.slow
def test_a_batch_over_two_processes_goes_on_over_eight_devices_of_one(tmp_path):
    """The numbers are those of one device but for rounding."""
    task, rows = [*TASK, "--num_seeds=1", "--num_epochs=6"], {}
    assert faults.train(task, tmp_path / "alone")[0] == 0
    out, _ = stop_after(2, task, tmp_path / "run")
    assert "mesh: 1 x 2 (seed x data); 1 of 1 seed(s) and 8 of 16 rows a device" in out[0]
    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-m", "flax_attn", "train", *task, f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(command, env=os.environ | eight, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mesh: 1 x 8 (seed x data)" in done.stdout
    for name in ("alone", "run"):
        lines_of = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        rows[name] = [list(json.loads(line).values()) for line in lines_of[1:]]
    np.testing.assert_allclose(rows["run"], rows["alone"], rtol=1e-5)


@pytest.mark.slow
def test_process_0_may_work_longer_alone_than_others_wait_elsewhere(tmp_path):
    codes, _, err = train_on(2, [*TASK, "--num_epochs=3"], tmp_path / "run", IMPATIENT)
    assert codes == [0, 0], err


@pytest.mark.slow
def test_a_run_directory_that_is_not_shared_is_refused_in_every_process(tmp_path):
    """Two directories of one name, each seen by one process, as on machines without a mount."""
    processes = []
    for own in environments(2):
        folder = tmp_path / own["JAX_PROCESS_ID"]
        folder.mkdir()
        own["PYTHONPATH"] = str(faults.ROOT)
        processes.append(start([*TASK, "--workdir=run"], own, folder=folder))
    codes, _, err = end(processes)
    assert codes == [2, 2]
    assert lines(err[0]) == lines(err[1])
    assert "process 1 does not see the files of process 0 in run;" in lines(err[0])[0]


@pytest.mark.slow
def test_devices_that_do_not_divide_the_work_are_refused_with_those_that_do(tmp_path):
    codes, _, err = train_on(3, TASK, tmp_path / "run")
    assert codes == [2, 2, 2]
    line = (
        "error: expected devices that divide 2 seed(s) and batches of 16, got 3 processes of 1; "
        "start 1 or 2 or 4 processes"
    )
    assert [lines(text) for text in err] == [[line]] * 3
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_process_that_is_missing_is_waited_for_in_vain(tmp_path):
    first, _ = environments(2)
    codes, _, err = end([start([*TASK, f"--workdir={tmp_path / 'run'}"], first, timeout=5)])
    assert codes == [2]
    assert "join within 5 s" in lines(err[0])[0]
    assert not (tmp_path / "run").exists()


def train_with(number, statement, workdir):
    """Two processes train; one executes a statement in epoch 3."""
    own = environments(2)
    own[number]["IN_EPOCH_3"] = statement
    arguments = [*TASK, f"--workdir={workdir}"]
    return end([start(arguments, variables, IMPATIENT, timeout=30) for variables in own])


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_is_stuck_is_named_and_all_end(tmp_path, number):
    codes, _, err = train_with(number, "time.sleep(3600)", tmp_path / "run")
    assert 0 not in codes
    (line,) = lines(err[1 - number])
    assert f"within 5 s, but process {number} is missing" in line


@pytest.mark.slow
def test_an_error_in_one_process_ends_all(tmp_path):
    codes, _, err = train_with(1, "raise KeyError('wrong')", tmp_path / "run")
    assert codes[1] == 1
    assert codes[0] != 0
    assert "KeyError: 'wrong'" in err[1]


@pytest.mark.parametrize("number", ["two", "2"])
def test_variables_that_are_wrong_are_one_line_that_names_them(monkeypatch, number):
    monkeypatch.setenv("JAX_NUM_PROCESSES", number)
    with pytest.raises(UsageError, match="JAX_COORDINATOR_ADDRESS"):
        of_runs.join()


def test_a_lock_that_another_run_left_is_not_the_one_of_process_0(tmp_path):
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / "lock"
    assert not of_runs._sees(lock, "12 host")
    lock.write_text("11 host")
    assert not of_runs._sees(lock, "12 host")
    lock.write_text("12 host")
    assert of_runs._sees(lock, "12 host")
