"""The fields of a part of a config: their types, and the numbers they may hold.

A part is a frozen dataclass, and its fields are its schema. `build` makes one from the values of a
config. The other functions are called in its `__post_init__`. An error names the key as a config
has it, such as `data.seed`.
"""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

from flax_attn.errors import UsageError, shortened, unknown
from flax_attn.types import Hint, Json, JsonObject, UserInput

LONGEST_NAME = 255  # bytes of the name of a file
LARGEST = 2**31 - 1  # of an integer, which may become one of 32 bits
LARGEST_FLOAT = 3.4e38  # of float32
SMALLEST_FLOAT = 2.0**-126  # of float32; a smaller number becomes 0
LARGEST_BY_NAME = {  # beyond these nothing would ever end, or fit into a memory
    "num_epochs": 1_000_000,
    "steps_per_epoch": 1_000_000,
    "batch_size": 1_000_000,
    "num_train": 1_000_000,
    "num_valid": 1_000_000,
    "num_test": 1_000_000,
    "num_lines": 1_000_000,
    "num_seeds": 10_000,
    "num_heads": 10_000,
    "num_hops": 10_000,
    "num_layers": 1_000,
    "num_blocks": 1_000,
    "num_attentions": 1_000,
    "num_buckets": 1_000,
    "kernel_size": 1_000,
    "max_shift": 1_000,
    "beam": 1_000,
    "seed": 2**32 - 1,
}


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a config, of the name `PART`; the whole has the name ''."""

    PART: ClassVar[str] = ""


AnyPart = TypeVar("AnyPart", bound=Part)


def build(
    part: type[AnyPart], values: Mapping[str, Json], complete: bool = False, choice: str = ""
) -> AnyPart:
    """The part with these values, and with the defaults of those that are missing.

    Args:
        part: a class of a part of a config.
        values: by name.
        complete: whether none may be missing.
        choice: what chose the class, such as `data.name=shapes`; an unknown key tells it.

    Raises:
        UsageError: an unknown key, one that is missing, or a value of another type.
    """
    fields = {field.name: field for field in stored(part)}
    prefix = f"{part.PART}." if part.PART else ""
    for name in values:
        if name not in fields:
            keys, where = [prefix + field for field in fields], f" for {choice}" if choice else ""
            message = unknown("config key", prefix + name, keys, where)
            raise UsageError(f"{message} (or take a config with {choice})" if choice else message)
    hints = typing.get_type_hints(part)
    for name, field in fields.items():
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if name in values or complete or not has_default:
            _check_type(prefix + name, hints[name], values.get(name))
    return part(**values)


def stored(part: Part | type[Part]) -> list[dataclasses.Field]:
    """The fields that a config holds: all but those marked otherwise in their metadata."""
    return [field for field in dataclasses.fields(part) if field.metadata.get("stored", True)]


def above_zero(part: Part, *names: str) -> None:
    """Raises a UsageError for a number of 0 or below."""
    _check_numbers(part, names, "above 0", lambda value: value > 0)


def zero_or_above(part: Part, *names: str) -> None:
    """Raises a UsageError for a number below 0."""
    _check_numbers(part, names, "0 or above", lambda value: value >= 0)


def shares(part: Part, *names: str) -> None:
    """Raises a UsageError for a number outside [0, 1)."""
    _check_numbers(part, names, "in [0, 1)", lambda value: 0 <= value < 1)


def _check_numbers(
    part: Part, names: Sequence[str], rule: str, holds: Callable[[float], bool]
) -> None:
    for name in names:
        if not holds(value := getattr(part, name)):
            raise UsageError(
                f"expected config key {key_of(part, name)} to be a number {rule}, got {value}"
            )


def one_of(part: Part, name: str, known: Sequence[str]) -> None:
    """Raises a UsageError for a name that is none of those known."""
    value = getattr(part, name)
    if value not in known:
        raise UsageError(unknown(key_of(part, name).strip("'"), value, known))


def check_limits(values: Mapping[str, Json]) -> None:
    """Raises a UsageError for a number, by dotted config key, that training cannot compute with.

    It is too large, too small for float32, or not finite. It may stand in a list.
    """
    for key, value in values.items():
        if isinstance(value, list | tuple):
            for element in value:
                check_limits({key: element})
        elif isinstance(value, float):
            _check_float(key, value)
        largest = LARGEST_BY_NAME.get(key.rpartition(".")[2], LARGEST)
        if isinstance(value, int) and abs(value) > largest:
            bits = value.bit_length()
            number = f"{value:,}" if bits < 100 else f"one of {bits} bits"
            raise UsageError(f"expected at most {largest:,} for config key '{key}', got {number}")


def _check_float(key: str, value: float) -> None:
    """Raises a UsageError for a number that is infinite or 0 in float32, and is not 0."""
    if not math.isfinite(value):
        raise UsageError(f"expected a finite number for config key '{key}', got {value}")
    if abs(value) > LARGEST_FLOAT:
        raise UsageError(
            f"expected at most {LARGEST_FLOAT:.2g} for config key '{key}', got {value}"
        )
    if 0 < abs(value) < SMALLEST_FLOAT:
        raise UsageError(
            f"expected 0 or at least {SMALLEST_FLOAT:.2g} for config key '{key}', got {value}"
        )


def plain(value: UserInput) -> UserInput:
    """Converts scalars of NumPy and JAX, also those in dicts and lists, to numbers of Python."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value.item() if getattr(value, "shape", None) == () else value


def check_number(name: str, number: UserInput) -> None:
    """Raises a UsageError for an argument that is no whole number above 0."""
    if not isinstance(number, numbers.Integral) or isinstance(number, bool) or number < 1:
        raise UsageError(
            f"expected {name} to be a whole number above 0, got {shortened(repr(number))}"
        )


def check_truth(name: str, value: UserInput) -> None:
    """Raises a UsageError for an argument that is neither True nor False."""
    if not isinstance(value, bool):
        raise UsageError(f"expected {name} to be True or False, got {shortened(repr(value))}")


def check_name(name: Json) -> None:
    """Raises a UsageError where a config has a `name` that its run directory cannot have.

    Without `--workdir` a run goes to `runs/NAME`, with `-` for `:`. So a name is that of one
    folder.
    """
    if not isinstance(name, str):
        raise UsageError(f"expected str for config key 'name', got {shortened(repr(name))}")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:  # half a character
        length = 0
    if not 0 < length <= LONGEST_NAME or name in (".", "..") or set("/\\\0") & set(name):
        raise UsageError(
            f"expected config key 'name' to be a name for one folder below runs/ (1 to "
            f"{LONGEST_NAME} bytes of UTF-8, without / and \\), got {shortened(name)!r}; rename "
            f"it, or choose another folder with --workdir"
        )


def key_of(part: Part, name: str) -> str:
    """The config key of a field, in quotes."""
    return f"'{part.PART}.{name}'" if part.PART else f"'{name}'"


def _check_type(key: str, kind: Hint, value: Json) -> None:
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    kinds = tuple(
        typing.get_origin(option) or option
        for option in (typing.get_args(kind) if union else (kind,))
    )
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise UsageError(f"expected {kinds[0].__name__} for config key '{key}', got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"expected a finite number for config key '{key}', got {value}")


def flatten(config: JsonObject, prefix: str = "") -> JsonObject:
    """Nested dicts as one, with dotted keys."""
    flat = {}
    for key, value in config.items():
        flat |= (
            flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def check_no_task(values: Mapping[str, UserInput], to_do: str = "remove it") -> None:
    """Raises a UsageError for a config with a key `task`: its data set decides the kind of task."""
    if "task" in values:
        raise UsageError(
            f"expected no config key 'task' (the kind of task follows from data.name), got "
            f"{shortened(repr(values['task']))}; {to_do}"
        )
