"""The user's logging, left as it is."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def same_handlers() -> Iterator[None]:
    """Takes back the handlers that others add to the root logger.

    tensorflow-datasets and Orbax log through absl. Its first line adds a handler to a root logger
    that has none, and the user's own `logging.basicConfig` then does nothing.
    """
    before = list(logging.root.handlers)
    try:
        yield
    finally:
        for handler in list(logging.root.handlers):
            if handler not in before:
                logging.root.removeHandler(handler)
