"""What stands in a run directory is data, and may come from anyone.

Every file of a run is opened here. Its name stays below the directory. No link is followed, and
nothing but a regular file is opened: a pipe or a device may never end. A size is compared with a
limit before anything is read. JSON is compared with a type before it is used.
"""

import errno
import functools
import io
import json
import math
import os
import stat
import types
import typing
from pathlib import Path

from flax_attn.errors import UsageError, one_line
from flax_attn.types import Hint, Json

LARGEST_JSON = 2**24  # bytes
DEEPEST = 64  # levels of lists and objects in JSON
MEND = "run the command that made it again to mend it"
STATUS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
)


def is_plain(name: str) -> bool:
    """Whether a name is a relative path that stays below its directory, on every system."""
    parts = name.split("/")
    return all(part not in ("", ".", "..") and not set(part) & set("\\:\0") for part in parts)


def check_folder(path: Path) -> None:
    """Raises a UsageError where something stands at a path that is not a directory itself."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        raise UsageError(
            f"expected a directory in {path}, got {kind_of(mode)}; remove it, and {MEND}"
        )


def open_file(run: Path, name: str, largest: int) -> io.BufferedReader:
    """Opens a regular file below a directory to read its bytes.

    Raises:
        FileNotFoundError: no such file.
        UsageError: a name that leads elsewhere, a link, a pipe, a directory, a device, a file that
            cannot be read, or one of more than `largest` bytes.
    """
    path = run / name
    if not is_plain(name):
        raise UsageError(f"expected the name of a file in {run}, got {name[:60]!r}; {MEND}")
    for folder in list(path.parents)[: name.count("/")]:
        check_folder(folder)
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            raise UsageError(
                f"expected a file in {path}, got a link; copy the files themselves, as cp -rL does"
            )
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(
                f"expected a file in {path}, got {kind_of(status.st_mode)}; remove it, and {MEND}"
            )
        if status.st_size > largest:
            raise UsageError(
                f"expected at most {largest:,} bytes in {path}, got {status.st_size:,}; {MEND}"
            )
        # what has taken the place of the file meanwhile is not followed, and not waited for
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        return open(path, "rb", opener=lambda path, _: os.open(path, flags | _binary()))
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "a link" if error.errno == errno.ELOOP else error.strerror
        advice = "allow it to be read" if error.errno == errno.EACCES else MEND
        raise UsageError(f"cannot read {path} ({reason}); {advice}") from error


def _binary() -> int:
    return getattr(os, "O_BINARY", 0)


def kind_of(mode: int) -> str:
    """What stands at a path of this mode, in words."""
    return next((name for holds, name in STATUS if holds(mode)), "no regular file")


def read_bytes(run: Path, name: str, largest: int = LARGEST_JSON) -> bytes:
    """The bytes of a file. Errors are those of `open_file`."""
    with open_file(run, name, largest) as file:
        # as many are set aside, so no more than the file has, which another program may write to
        size = min(os.fstat(file.fileno()).st_size, largest)
        content = file.read(size + 1)
    if len(content) > size:
        raise UsageError(f"expected at most {size:,} bytes in {run / name}, got more; {MEND}")
    return content


def read_json(run: Path, name: str, kind: Hint = None) -> Json:
    """The JSON in a file, of a type that `check` takes.

    Raises:
        FileNotFoundError: no such file.
        UsageError: as `open_file`; no JSON, JSON that is too deep, that has numbers which are not
            finite, or that is of another type.
    """
    try:
        content = parse(read_bytes(run, name))
        _check_depth(content)
    except UsageError:
        raise
    except (ValueError, RecursionError) as error:
        # a directory with another config may be no run
        advice = f"of a run, {MEND}; else copy the file again" if name == "config.json" else MEND
        raise UsageError(f"expected JSON in {run / name} ({one_line(error)}); {advice}") from error
    try:
        if kind is not None:
            check(content, kind)
    except ValueError as error:
        raise UsageError(f"{run / name} is damaged ({error}); {MEND}") from error
    return content


def parse(content: bytes, may_be_nan: bool = False) -> Json:
    """The JSON in bytes. Raises a ValueError for numbers that are not finite, perhaps but NaN."""
    number = functools.partial(_number, may_be_nan)
    return json.loads(content, parse_float=number, parse_constant=number)


def _number(may_be_nan: bool, written: str) -> float:
    number = float(written)
    if math.isfinite(number) or (may_be_nan and math.isnan(number)):
        return number
    raise ValueError(f"expected finite numbers, got {written[:60]}")


def _check_depth(content: Json) -> None:
    """Raises a ValueError for JSON that is nested too deep."""
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(DEEPEST + 1):
        inner = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [entry for values in inner for entry in values if isinstance(entry, dict | list)]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} levels")


def check(value: Json, kind: Hint, name: str = "") -> None:
    """Compares JSON with a type: of numbers, texts, lists, dicts, typed dicts, or a union.

    A whole number is at least 0 and fits into 64 bits. Keys that a typed dict does not name may
    hold anything.

    Raises:
        ValueError: the value is of another type; says which entry.
    """
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        check(value, dict, name)
        for key, hint in typing.get_type_hints(kind).items():
            if key in value or key in kind.__required_keys__:
                check(value.get(key), hint, f"{name}.{key}" if name else key)
    elif origin in (list, dict):
        check(value, origin, name)
        for entry in value if origin is list else value.values():
            check(entry, options[-1], f"an entry of {name}" if name else "an entry")
    elif origin in (types.UnionType, typing.Union):
        if not any(_is_of(value, option) for option in options):
            raise ValueError(f"{name or 'it'} is missing or of another kind")
    elif kind is not object and not _is_of(value, kind):
        raise ValueError(f"{name or 'it'} is missing or of another kind")


def _is_of(value: Json, kind: type) -> bool:
    if kind is int:
        return type(value) is int and 0 <= value < 2**63
    if kind is float:
        return type(value) is float or (type(value) is int and abs(value) < 2**63)
    return type(value) is kind
