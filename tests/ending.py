"""A time limit for a block of a test."""

import contextlib
import signal


@contextlib.contextmanager
def ending():
    """Fails a block that hangs for a minute, even if the block catches the error."""
    late = []

    def stop(number, frame):
        late.append(frame)
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert not late
