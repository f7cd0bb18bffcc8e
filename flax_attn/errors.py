"""The error for what a caller can mend: shown as one line on the command line, with exit code 2.

Also the characters that are never shown as they are, in an error or anywhere else.
"""

import difflib
import os
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
PARTS = ("attention", "attentions", "weights")  # of a result, here and in transformers
FILE = {"path", "folder", "filename", "directory", "dir", "csv"}  # what others call a `file`


class UsageError(ValueError):
    """Says in one line of at most `LONGEST` characters what was expected, what came, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(escaped(message), LONGEST))


def one_line(error: BaseException) -> str:
    """What an error says, as one line of at most `LONGEST` characters."""
    try:
        # an error may hold a whole file
        message = shortened(str(error), 100 * LONGEST)
    except BaseException:  # of a `__str__` of the user's own
        message = ""
    return shortened(" ".join(message.split()), LONGEST) or type(error).__name__


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """The text, or its beginning and its end with `...` between where it is longer."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun, whose plural is `many`, or else ends in s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def escaped(text: str) -> str:
    """The text with escapes, such as `\\x1b` and `\\u202e`, for what would change more than itself.

    These are control characters, which steer a terminal or end a line, marks that turn the
    direction of writing, and what is no character. A file keeps the text as it is.
    """
    return text.translate(ESCAPES)


def escaped_lines(text: str) -> str:
    """Lines, each of them escaped."""
    return "\n".join(map(escaped, text.split("\n")))


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> str:
    """The line for a name that is none of those known `where`, with the nearest of them.

    That is one with a slip of the pen. Else it is the key of a config whose words are all in the
    name, as `data.file` in `data.train_file` and `data.path`. Else it is the one that is spelt most
    alike, or whose words begin with the letters of the name, as `learning_rate` of `lr`. Keys of
    the same part of a config come first.
    """
    known, shown = list(known), shortened(name)
    name = shown.lower()
    part = name[: name.find(".") + 1]
    alike = [key for key in known if key.startswith(part)] or known
    within = [key for key in known if "." in key and words_of(key) <= words_of(name)]
    close = (
        _spelt(name, alike, part, 0.9)
        or sorted(within, key=len)[-1:]
        or _spelt(name, alike, part, 0.6)
        or _spelt(name, [key for key in known if key not in alike], "", 0.6)
        or [key for key in alike if len(name) > 1 and name == _initials(key)]
    )
    if of_part := [key for key in known if key.startswith(f"{name}.")]:
        hint = f"it has the keys {_listed(of_part)}"
    else:
        hint = f"did you mean '{close[0]}'?" if close else f"expected one of {_listed(alike)}"
    return f"unknown {what} '{shown}'{where}; {hint}"


def _spelt(name: str, known: list[str], part: str, cutoff: float) -> list[str]:
    """The name that is spelt most alike, where one is; the part that names share does not count."""
    rests = [key.removeprefix(part).lower() for key in known]
    close = difflib.get_close_matches(name.removeprefix(part), rests, n=1, cutoff=cutoff)
    return [known[rests.index(rest)] for rest in close]


def _initials(key: str) -> str:
    """The first letters of the words of a key, without the part of a config that it stands in."""
    return "".join(word[:1] for word in key.rpartition(".")[2].split("_"))


def _listed(names: list[str]) -> str:
    """As many of the names as an error has room for, and how many are left out."""
    for number in range(len(names), 1, -1):
        left = len(names) - number
        text = ", ".join(names[:number]) + (f" and {left} more" if left else "")
        if len(text) <= LONGEST - LONGEST_NAME - 50:
            return text
    return ", ".join(names)


def check_characters(text: str, where: str = "a text") -> None:
    """Raises a UsageError for a text with half a character, which no file in UTF-8 can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"expected whole characters in {where}, got {shortened(ascii(text))}; decode its bytes "
            f"with their encoding"
        ) from error


def check_no_result(expected: str, value: object) -> None:
    """Raises a UsageError for a result of a layer or a model, which holds the weights."""
    parts = [name for name in PARTS if hasattr(value, name)]
    if parts and not hasattr(value, "__array__"):
        kind = type(value).__name__
        raise UsageError(f"expected {expected}, got a result, {kind}; pass its {parts[0]}")


def words_of(name: str) -> set[str]:
    """The words of a name such as `data.test_file`."""
    return {"file" if word in FILE else word for word in re.split("[._]", name)}


def cannot_print(text: str = "") -> bool:
    """Whether a text, or what waits to be printed, cannot be written, as to a disk that is full.

    It is left then.
    """
    try:
        print(end=text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # at its end, Python tries again
        return True
    return False
