"""The error for what a caller can mend: shown as one line on the command line, with exit code 2."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """Says in one line what was expected, what came, and what to do."""


def one_line(error: BaseException) -> str:
    """What an error says, as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The line for a name that is none of those known, with the nearest of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"unknown {what} '{name}'" + (
        f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(known)}"
    )
