"""The error for what a caller can mend: shown as one line on the command line, with exit code 2.

Also the characters that are never shown as they are, in an error or anywhere else.
"""

import difflib
from collections.abc import Iterable

CONTROLS = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029}  # also what ends a line
DIRECTIONS = {0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
NO_CHARACTERS = {*range(0xD800, 0xE000), 0xFFFE, 0xFFFF}  # halves of pairs, and what is in no XML
ESCAPES = {
    code: chr(code).encode("unicode_escape").decode()
    for code in CONTROLS | DIRECTIONS | NO_CHARACTERS
}


LONGEST = 800  # characters of an error
LONGEST_NAME = 100  # characters of a name or value of the user's in an error


class UsageError(ValueError):
    """Says in one line of at most `LONGEST` characters what was expected, what came, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(escaped(message), LONGEST))


def one_line(error: BaseException) -> str:
    """What an error says, as one line of at most `LONGEST` characters."""
    try:
        # an error may hold a whole file
        said = shortened(str(error), 100 * LONGEST)
    except BaseException:  # of a `__str__` of the user's own
        said = ""
    return shortened(" ".join(said.split()), LONGEST) or type(error).__name__


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """The text, or its beginning and its end with `...` between where it is longer."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def escaped(text: str) -> str:
    """The text with escapes, such as `\\x1b` and `\\u202e`, for what would change more than itself.

    These are control characters, which steer a terminal or end a line, marks that turn the
    direction of writing, and what is no character. A file keeps the text as it is.
    """
    return text.translate(ESCAPES)


def escaped_lines(text: str) -> str:
    """Lines, each of them escaped."""
    return "\n".join(map(escaped, text.split("\n")))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The line for a name that is none of those known, with the nearest of them."""
    known, name = list(known), shortened(name)
    close = difflib.get_close_matches(name, known, n=1)
    return f"unknown {what} '{name}'" + (
        f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(known)}"
    )
