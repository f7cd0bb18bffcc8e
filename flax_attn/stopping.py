"""Signals that end training: SIGTERM, SIGHUP and SIGINT.

They set a flag. Training looks at it between chunks, saves where it stands and raises `Stopped`.
A command must also leave while XLA compiles, when no Python runs. There a thread of its own hears
the signal, and ends the process.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from flax_attn.types import Tree

NAMES = ("SIGTERM", "SIGHUP", "SIGINT")  # Windows has no SIGHUP
FINISHED = "the run is finished"  # what is said of a run with nothing left to go on with
NUMBERS = tuple(int(getattr(signal, name)) for name in NAMES if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """A signal has ended training. What was trained is saved.

    Attributes:
        number: of the signal.
        said: where training stands, and how it goes on.
    """

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number, self.said = number, message


class Stop:
    """Whether a signal has come, and what is lost if the process ends now.

    Attributes:
        number: of the first signal, or None.
        saved: how far training is saved, in words.
        saves: whether training will look at `number` soon, and save.
        agree: from the number of a signal, or 0, to the largest that any process has; None for a
            process alone.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.saved = "nothing is saved yet"
        self.saves = False
        self.agree: Callable[[int], int] | None = None

    def heard(self) -> int:
        """Returns the number of the signal that any of the processes got; 0 for none."""
        number = self.number or 0
        return number if self.agree is None else self.agree(number)

    def check(self, saved: str) -> None:
        """Raises `Stopped` where a signal has come. `saved` says how far training is saved."""
        self.saved = saved
        if number := self.heard():
            raise Stopped(number, describe(number, saved))

    def wait(self, arrays: list[Tree]) -> bool:
        """Waits for arrays, or for a signal to a process alone. Returns whether none has come."""
        while not all(array.is_ready() for array in arrays):
            if self.agree is None and self.number is not None:
                break
            time.sleep(0.002)
        return not self.heard()


def describe(number: int, saved: str) -> str:
    goes_on = "" if saved == FINISHED else "; the same command goes on from there"
    return f"stopped by {signal.Signals(number).name}; {saved}{goes_on}"


@contextlib.contextmanager
def listening(leave: Callable[[str], None] | None = None) -> Iterator[Stop]:
    """Hears signals while it lasts, in the main thread. Elsewhere none are heard.

    A signal that is ignored stays ignored, as under `nohup`. A second one interrupts at once. With
    `leave`, which takes the last line, the process ends; without it, it stays, as for a notebook.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in NUMBERS}
    heard = [number for number in NUMBERS if before[number] not in (signal.SIG_IGN, None)]

    def hear(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.number is not None and leave is None:
            raise KeyboardInterrupt
        stop.number = stop.number or number

    with contextlib.ExitStack() as stack:
        if leave is not None:
            stack.enter_context(_watching(stop, frozenset(heard), leave))
        for number in heard:
            signal.signal(number, hear)
            stack.callback(signal.signal, number, before[number])
        yield stop


@contextlib.contextmanager
def _watching(stop: Stop, heard: frozenset[int], leave: Callable[[str], None]) -> Iterator[None]:
    """Starts a thread that ends the process if nothing would be saved, or at a second signal.

    Python writes the number of every signal into a pipe, also while the main thread compiles.
    """
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)  # Python demands it of a wakeup descriptor
    before = signal.set_wakeup_fd(sender, warn_on_full_buffer=False)

    def watch() -> None:
        first = True
        while numbers := os.read(receiver, 64):
            for number in (number for number in numbers if number in heard):
                if not (first and stop.saves):
                    leave(describe(number, stop.saved))
                    os._exit(128 + number)  # the main thread may be within XLA
                first = False

    thread = threading.Thread(target=watch, daemon=True, name="signals")
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(sender)  # ends the loop of `watch`
        thread.join()
        os.close(receiver)


def leave_by_stderr(line: str) -> None:
    """Writes the last line of a process."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        os.write(2, f"\n{line}\n".encode(errors="replace"))
