"""The user's logging, left as it is."""

import contextlib
import logging
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def same_handlers() -> Iterator[None]:
    """Takes back the handlers that others add to the root logger.

    Orbax and tensorflow-datasets log through absl. Its first line adds a handler to a root logger
    that has none, and the user's own `logging.basicConfig` then does nothing.
    """
    before = list(logging.root.handlers)
    try:
        yield
    finally:
        for handler in list(logging.root.handlers):
            if handler not in before:
                logging.root.removeHandler(handler)


@contextlib.contextmanager
def raised_errors() -> Iterator[None]:
    """Drops what Orbax prints of errors, where it raises them too.

    Orbax and asyncio log them. Threads of tensorstore report a closed loop of asyncio to
    `sys.unraisablehook`, some of them later, so these reports are dropped from then on.
    """
    loggers, hook = [logging.getLogger(name) for name in ("absl", "asyncio")], sys.unraisablehook
    is_no_error = lambda record: record.levelno < logging.ERROR

    def report(raised: "sys.UnraisableHookArgs") -> None:
        if str(raised.exc_value) != "Event loop is closed":
            hook(raised)

    for logger in loggers:
        logger.addFilter(is_no_error)
    sys.unraisablehook = report
    try:
        yield
        sys.unraisablehook = hook
    finally:
        for logger in loggers:
            logger.removeFilter(is_no_error)
