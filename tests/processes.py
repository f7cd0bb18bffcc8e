"""Several processes on this machine that train one run together."""

import os
import signal
import socket
import subprocess
import sys
import time

from tests import faults

TINY = ["--batch_size=16", "--num_seeds=2", "--data.num_train=200", "--data.num_test=20"]
TINY += ["--model.features=8", "--model.num_layers=2"]
TASK = ["shapes_cnn:tutorial", *TINY, "--steps_per_epoch=6", "--num_epochs=25"]


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def environments(number):
    """Returns what each of several processes is told of the others."""
    address = f"localhost:{free_port()}"
    shared = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(number)}
    return [shared | {"JAX_PROCESS_ID": str(i)} for i in range(number)]


# Draws no pictures. In a process with STOPPED_IN, a signal comes in that epoch.
QUICK = """
import os, signal, sys, types
from flax_attn.experiment import running
figures = types.ModuleType("flax_attn.tasks.figures")  # without matplotlib
figures.draw_run = lambda path, only_missing=False: []
sys.modules["flax_attn.tasks.figures"] = figures
original = running.take_chunk
def take_chunk(programs, now, *others):
    if str(now.progress.epoch + 1) == os.environ.get("STOPPED_IN"):
        os.kill(os.getpid(), signal.SIGTERM)
    return original(programs, now, *others)
running.take_chunk = take_chunk
from flax_attn.__main__ import main
sys.exit(main())
"""


def start(arguments, environment, code=None, timeout=120, folder=faults.ROOT):
    how = ["-c", code] if code else ["-m", "flax_attn"]
    command = [sys.executable, *how, "train", "--distributed", f"--timeout={timeout}", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | environment, **pipes)


def end(processes, seconds=150):
    """Returns the codes of processes, and what they wrote."""
    deadline = time.monotonic() + seconds
    try:
        out = [p.communicate(timeout=max(1, deadline - time.monotonic())) for p in processes]
    finally:
        for process in processes:
            process.kill()
    return [p.returncode for p in processes], [o for o, _ in out], [e for _, e in out]


def train_on(number, task, workdir, code=None):
    arguments = [*task, f"--workdir={workdir}"]
    return end([start(arguments, own, code) for own in environments(number)])


def wait_for_epoch(workdir, number, processes):
    deadline = time.monotonic() + 120
    while not (workdir / "checkpoints" / f"{number}.npz").exists():
        assert all(process.poll() is None for process in processes), end(processes)
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stop_after(epoch, task, workdir, number=0):
    """Two processes train until an epoch, and one of them gets SIGTERM. Returns what they wrote."""
    processes = [start([*task, f"--workdir={workdir}"], own) for own in environments(2)]
    wait_for_epoch(workdir, epoch, processes)
    processes[number].send_signal(signal.SIGTERM)
    codes, out, err = end(processes, 60)
    assert codes == [143, 143], err
    return out, err


def lines(err):
    """Returns the lines that are ours."""
    return [line for line in err.splitlines() if line.startswith(("error:", "stopped"))]
