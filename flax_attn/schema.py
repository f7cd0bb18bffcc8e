"""The settings of a run, each declared once: a field with its type, its range and its default.

Config files, flags, `config.json` and the arguments of `train` are read by the same fields. A line
of help stands under `Attributes` in the docstring of the class.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta

from flax_attn.errors import UsageError, shortened, unknown
from flax_attn.types import Hint, Json, JsonObject, UserInput

LARGEST = 2**31 - 1  # arrays of JAX hold integers of 32 bits
LARGEST_FLOAT = 3.4e38  # of float32

Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]  # what is gone through one by one
SmallCount = Annotated[int, Meta(ge=1, le=1_000)]  # what is compiled, or searched, one by one
PositiveInt = Annotated[int, Meta(ge=1, le=LARGEST)]
NonNegativeInt = Annotated[int, Meta(ge=0, le=LARGEST)]  # 0 is for none, or for all
Fraction = Annotated[float, Meta(ge=0, lt=1)]
PositiveFloat = Annotated[float, Meta(gt=0, le=LARGEST_FLOAT)]
NonNegativeFloat = Annotated[float, Meta(ge=0, le=LARGEST_FLOAT)]
FiniteFloat = Annotated[float, Meta(ge=-LARGEST_FLOAT, le=LARGEST_FLOAT)]
Split = Literal["train", "valid", "test"]
FilePath = Annotated[str, Meta(min_length=1, description="a path")]
Name = Annotated[
    str,
    Meta(
        max_length=255,
        pattern=r"^(?!\.{1,2}$)[^/\\\x00]+$",
        description="a name for one folder, without / and \\",
    ),
]
FLAGS = (  # those of `flax-attn train` that are no keys
    *("config", "workdir", "manual_dir", "explore", "no-open", "port", "debug_nans", "sequence"),
    *("distributed", "timeout", "last", "twin"),
)
WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    NoneType: "None",
}


class Key(NamedTuple):
    """A setting: its type, its default and a line of help.

    The default is `MISSING` if a value is needed, and `UNSET` if the class that takes it decides.
    """

    hint: Hint
    default: Json = dataclasses.MISSING
    help: str = ""


def keys_of(cls: type, prefix: str = "") -> dict[str, Key]:
    """Returns the settings that a dataclass declares, by name behind the prefix."""
    hints, described, keys = get_type_hints(cls, include_extras=True), help_of(cls), {}
    for field in dataclasses.fields(cls):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.init and field.metadata.get("stored", True):
            key = Key(hints[field.name], default, described.get(field.name, ""))
            keys[prefix + field.name] = key
    return keys


def help_of(cls: type) -> dict[str, str]:
    """Returns what docstrings of the class and its bases say of each attribute."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:")
        for entry in re.split(r"\n(?=    \S)", section.split("\n\n")[0]):
            names, colon, text = " ".join(entry.split()).partition(": ")
            texts |= dict.fromkeys(names.split(", "), text) if colon else {}
    return texts


def read(
    known: Mapping[str, Key], values: JsonObject, flags: Sequence[str] = (), complete: bool = False
) -> JsonObject:
    """Returns the value of every key in its type, in parts; defaults for those that are missing.

    Flags of a command line change `values`, which are by dotted key. With `complete`, no value may
    be missing, as in a run directory.

    Raises:
        UsageError: an unknown key, a missing value, or one outside the type and range of its key.
    """
    for key in values:
        if key not in known:
            raise UsageError(unknown("config key", key, known))
    given = parse(known, flags)
    for key, value in values.items():
        if key not in given:
            given[key] = convert(key, value, known[key].hint)
    resolved: JsonObject = {}
    for key, (hint, default, text) in known.items():
        if key in given:
            resolved[key] = given[key]
        elif default is dataclasses.MISSING or (complete and default is not UNSET):
            raise UsageError(f"expected a value for --{key}: {text or described(hint)}")
        elif default is not UNSET:
            resolved[key] = default
    return nested(resolved)


def convert(name: str, value: UserInput, hint: Hint, strict: bool = True) -> Json:
    """Returns a value in the type of a hint; unless strict, from a text.

    Raises:
        UsageError: the value does not fit the type or its range.
    """
    try:
        return msgspec.convert(plain(value), hint, strict=strict)
    except msgspec.ValidationError:
        got = shortened(repr(value))
        raise UsageError(f"expected {name} to be {described(hint)}, got {got}") from None
    except TypeError:  # msgspec knows no such type, as of a function
        return value


def require(holds: object, expected: str) -> None:
    """Raises a UsageError if a rule between settings does not hold."""
    if not holds:
        raise UsageError(f"expected {expected}")


def described(hint: Hint) -> str:
    """Describes the values of a type, such as `a whole number (at least 1, at most 1,000)`."""
    metas = hint.__metadata__ if get_origin(hint) is Annotated else ()
    base = get_args(hint)[0] if metas else hint
    if metas and metas[0].description:
        return metas[0].description
    if get_origin(base) is Literal:
        return f"one of {', '.join(map(str, get_args(base)))}"
    if get_origin(base) in (Union, UnionType):
        return " or ".join(map(described, get_args(base)))
    if is_list(base):
        return f"a list, each {described(get_args(base)[0])}" if get_args(base) else "a list"
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    of_arrays = (LARGEST, LARGEST_FLOAT, -LARGEST_FLOAT)  # which nobody reaches by intent
    limits = [
        f"{word} {limit:,}" if isinstance(limit, int) else f"{word} {limit:g}"
        for meta in metas
        for name, word in words.items()
        if (limit := getattr(meta, name)) is not None and limit not in of_arrays
    ]
    name = WORDS.get(base) or getattr(base, "__name__", str(base))
    return f"{name} ({', '.join(limits)})" if limits else name


def is_list(hint: Hint) -> bool:
    return (get_origin(hint) or hint) in (tuple, list)


def plain(value: UserInput) -> Json:
    """Returns a value as JSON has it: scalars of NumPy as numbers, paths as texts."""
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return str(value) if isinstance(value, Path) else value


def flatten(values: UserInput, prefix: str = "") -> JsonObject:
    """Returns nested dicts, or ConfigDicts, as one with dotted keys and plain values."""
    flat: JsonObject = {}
    for key, value in values.items():
        is_part = hasattr(value, "items")
        flat |= flatten(value, f"{prefix}{key}.") if is_part else {f"{prefix}{key}": plain(value)}
    return flat


def nested(flat: JsonObject) -> JsonObject:
    """Returns dotted keys as parts: the text up to the first dot names the part."""
    values: JsonObject = {}
    for key, value in flat.items():
        part, dot, name = key.partition(".")
        if dot:
            values.setdefault(part, {})[name] = value
        else:
            values[key] = value
    return values


def parse(known: Mapping[str, Key], arguments: Sequence[str]) -> JsonObject:
    """Returns the values that flags give to keys, each in the type of its key.

    A flag is `--KEY=VALUE`, `--KEY VALUE`, or for a truth value `--KEY` and `--noKEY`.
    `--config.KEY` is the same as `--KEY`. If a flag is repeated, the last value wins.

    Raises:
        UsageError: an argument that is no such flag, or a value that does not fit its key.
    """
    values, rest = {}, list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, text = argument.partition("=")
        if not name.startswith("--"):
            raise UsageError(
                f"unexpected argument '{shortened(argument)}'; everything but the config is a "
                f"flag, --KEY=VALUE, see --help"
            )
        key = name[2:].removeprefix("config.")
        opposite = name[2:].removeprefix("no").removeprefix("config.")
        if key not in known and not equals and is_truth(known, opposite) and name[2:4] == "no":
            values[opposite] = False
            continue
        if key not in known:
            raise UsageError(unknown("flag or config key", key, [*FLAGS, *known]))
        if not equals and is_truth(known, key):
            values[key] = True
            continue
        if not equals and not rest:
            raise UsageError(f"expected a value for --{key}: {described(known[key].hint)}")
        text = text if equals else rest.pop(0)
        given = elements(text) if is_list(known[key].hint) else text
        values[key] = convert(key, given, known[key].hint, strict=False)
    return values


def listed(known: Mapping[str, Key], width: int) -> str:
    """Lists the keys with their defaults, ranges and lines of help, for `--help`."""
    lines = []
    for key, (hint, default, text) in known.items():
        is_set = default is not dataclasses.MISSING and default is not UNSET
        value = f"={default}" if is_set else ""
        line = f"--{key}{value}: {described(hint)}" + (f"; {text}" if text else "")
        lines += textwrap.wrap(line, width - 2, subsequent_indent="    ")
    return "\n".join(f"  {line}" for line in lines)


def is_truth(known: Mapping[str, Key], key: str) -> bool:
    return key in known and known[key].hint is bool


def elements(text: str) -> Json:
    """Returns the elements of a list as a flag writes it: `('valid', 'test')` or `valid,test`."""
    try:
        value = ast.literal_eval(text)
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        value = None
    return value if isinstance(value, list | tuple) else text.split(",")
