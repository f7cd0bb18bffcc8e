"""The error of users, which the command line shows as one line with exit code 2.

Also the characters that are never shown as they are, in an error or anywhere else.
"""

import difflib
import re
from collections.abc import Iterable

CONTROLS = {*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029}  # also what ends a line
DIRECTIONS = {0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
NO_CHARACTERS = {*range(0xD800, 0xE000), 0xFFFE, 0xFFFF}  # halves of pairs, and what is in no XML
ESCAPES = {
    code: chr(code).encode("unicode_escape").decode()
    for code in CONTROLS | DIRECTIONS | NO_CHARACTERS
}

LONGEST = 400  # characters of an error
LONGEST_NAME = 100  # characters of a name or value of the user's in an error
ALIKE = 0.6  # the least likeness of a name that is suggested
PARTS = ("attention", "attentions", "weights")  # of a result, here and in transformers
FILE = {"path", "folder", "filename", "directory", "dir", "csv"}  # what others call a `file`


class UsageError(ValueError):
    """States in one line of at most `LONGEST` characters what was expected and what came."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(escaped(message), LONGEST))


def one_line(error: BaseException) -> str:
    """Returns the message of an error as one line of at most `LONGEST` characters."""
    return shortened(" ".join(str(error).split()), LONGEST) or type(error).__name__


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """Returns the text, or its beginning and its end with `...` between where it is longer."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def counted(count: int, one: str, many: str = "") -> str:
    """Returns a number and its noun, whose plural is `many`, or else ends in s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def escaped(text: str) -> str:
    """Escapes what steers a terminal, ends a line or turns the direction of writing.

    Escapes are such as `\\x1b` and `\\u202e`. A file keeps the text as it is.
    """
    return text.translate(ESCAPES)


def escaped_lines(text: str) -> str:
    """Escapes each line of a text."""
    return "\n".join(map(escaped, text.split("\n")))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Returns the line for an unknown name, with the nearest of the known ones."""
    known, shown = list(known), shortened(name)
    name = shown.lower()
    nearest = max(known, key=lambda key: _likeness(name, key), default="")
    if of_section := [key for key in known if key.startswith(f"{name}.")]:
        hint = f"it has the keys {_listed(of_section)}"
    elif _likeness(name, nearest) >= ALIKE:
        hint = f"did you mean '{nearest}'?"
    else:
        section = name[: name.find(".") + 1]
        beside = [key for key in known if key.startswith(section)] or known
        hint = f"expected one of {_listed(beside)}"
    return f"unknown {what} '{shown}'; {hint}"


def _likeness(name: str, key: str) -> float:
    """Returns how alike a name and a known key are, from 0 to 1, without the section they share.

    A key whose words are all in the name is nearer than one that is spelt like it: `data.file` for
    `data.train_file` and `data.path`. Initials count, too: `lr` for `learning_rate`.
    """
    section, last = key[: key.find(".") + 1], key.rpartition(".")[2]
    rest = key.removeprefix(section).lower()
    ratio = difflib.SequenceMatcher(None, name.removeprefix(section), rest).ratio()
    if section and _words(key) <= _words(name):
        return max(ratio, 0.9)
    is_short = len(name) > 1 and name == "".join(word[:1] for word in last.split("_"))
    return max(ratio, ALIKE) if is_short else ratio


def _words(name: str) -> set[str]:
    """Returns the words of a name such as `data.test_file`."""
    return {"file" if word in FILE else word for word in re.split("[._]", name)}


def _listed(names: list[str]) -> str:
    """Lists as many of the names as an error has room for, and how many are left out."""
    for number in range(len(names), 1, -1):
        left = len(names) - number
        text = ", ".join(names[:number]) + (f" and {left} more" if left else "")
        if len(text) <= LONGEST - LONGEST_NAME - 50:
            return text
    return ", ".join(names)


def check_no_result(expected: str, value: object) -> None:
    """Raises a UsageError for a result of a layer or a model, which holds the weights."""
    parts = [name for name in PARTS if hasattr(value, name)]
    if parts and not hasattr(value, "__array__"):
        kind = type(value).__name__
        raise UsageError(f"expected {expected}, got a result, {kind}; pass its {parts[0]}")
