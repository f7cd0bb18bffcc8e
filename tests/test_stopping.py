"""Signals: who hears them, and what the second does to a command that will save where it stands."""

import signal
import subprocess
import sys
import threading

import pytest

from flax_attn.stopping import FINISHED, describe, listening
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


@pytest.fixture
def interruptible():
    """SIGINT interrupts, as in a shell; what runs in its background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_handlers_are_set_in_the_main_thread_alone_and_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with listening() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    def elsewhere():
        with listening():
            set_to.append(signal.getsignal(signal.SIGTERM))

    set_to = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert set_to == before[1:]


def test_of_a_finished_run_nothing_goes_on():
    said = describe(signal.SIGINT, FINISHED)
    assert said == "stopped by SIGINT; the run is finished"
    assert describe(signal.SIGINT, "epoch 1 is saved").endswith("goes on from there")


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with listening() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.number is None
    finally:
        signal.signal(signal.SIGTERM, before)
