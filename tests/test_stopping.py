"""Signals to a command that will save where it stands: one waits for that, a second does not."""

import signal
import subprocess
import sys

import pytest

from tests.faults import Hearing

COMMAND = """
import os, signal, sys, time
from flax_attn.stopping import listening

with listening(lambda said: print(said, flush=True)) as stop:
    stop.saved, stop.saves = "epoch 3 is saved", True
    for number in map(int, sys.argv[1:]):
        os.kill(os.getpid(), number)
        time.sleep(0.3)
    print("goes on", stop.number)
"""


@pytest.mark.parametrize(
    ("signals", "code", "said"),
    [
        ([signal.SIGTERM], 0, "goes on 15"),
        (
            [signal.SIGTERM, signal.SIGINT],
            130,
            "stopped by SIGINT; epoch 3 is saved; the same command goes on from there",
        ),
    ],
)
def test_a_second_signal_ends_a_process_that_would_save(signals, code, said):
    numbers = [str(int(number)) for number in signals]
    command = [sys.executable, "-c", COMMAND, *numbers]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Hearing(command, **pipes) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out.strip(), err) == (code, said, "")
