"""Config files: found by name or path, read, and changed."""

import ast
import runpy
from collections.abc import Mapping
from pathlib import Path

from flax_attn.errors import UsageError, one_line, unknown
from flax_attn.runs.directory import flatten
from flax_attn.types import ConfigValues, Json, JsonObject, UserInput

LARGEST = 2**20  # bytes of a config file
LONGEST_SHOWN = 100  # characters of a value in an error
PACKAGE = Path(__file__).parent
FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")  # of a wheel, and of a checkout


def names() -> list[str]:
    """The names of the configs that come with the package."""
    return sorted(path.stem for path in folder().glob("*.py") if path.stem != "base")


def folder() -> Path:
    """The folder of the configs that come with the package."""
    return next((path for path in FOLDERS if path.is_dir()), FOLDERS[0])


def find(name: str) -> tuple[Path, str]:
    """The file and the variant of a config, by `NAME[:VARIANT]` or by `PATH.py[:VARIANT]`.

    Raises:
        UsageError: no such file.
    """
    stem, _, variant = name.partition(":")
    path = Path(stem).expanduser()
    if path.is_file():
        return path, variant
    own = folder() / f"{path.stem}.py"
    if own.is_file() and path in (
        Path(path.stem),
        Path("configs") / path.stem,
        Path("configs") / own.name,
    ):
        return own, variant
    raise UsageError(f"no config file {stem}; configs/ has {', '.join(names())}")


def read(name: str) -> ConfigValues:
    """The config of a name or path, as `get_config(variant)` of its file returns it.

    Raises:
        UsageError: no such file, no such variant, or a file that does not return a ConfigDict.
    """
    return _run(*find(name))


def _run(path: Path, variant: str) -> ConfigValues:
    if path.stat().st_size > LARGEST:
        raise UsageError(f"expected a config file of at most {LARGEST:,} bytes, got {path}")
    try:
        config = runpy.run_path(str(path))["get_config"](variant)
        config.to_dict()
    except ValueError as error:
        raise UsageError(one_line(error)) from error
    except (Exception, SystemExit) as error:  # whatever the code of a config file may raise
        raise UsageError(
            f"expected get_config(variant) in {path} to return a ConfigDict, got "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error
    return config


def read_shipped(name: str) -> ConfigValues | None:
    """The config of the package of this name; None where it has none.

    No other file is run: the name may come from anyone.
    """
    stem, _, variant = name.partition(":")
    if stem not in names():
        return None
    try:
        return _run(folder() / f"{stem}.py", variant)
    except UsageError:
        return None


def change(config: ConfigValues, overrides: Mapping[str, UserInput]) -> None:
    """Sets keys such as `model.features`.

    Raises:
        UsageError: a key that the config does not have, or a value of another type.
    """
    known = flatten(config.to_dict())
    for key, value in overrides.items():
        if key not in known:
            raise UsageError(unknown("config key", key, known))
        try:
            config.update_from_flattened_dict({key: value})
        except (TypeError, ValueError) as error:
            raise _other_type(key, known[key], value) from error


def parse(config: ConfigValues, texts: Mapping[str, str]) -> JsonObject:
    """The values that a command line gives as text, by key of the config, each of its type.

    Raises:
        UsageError: a text that is no such value.
    """
    known, values = flatten(config.to_dict()), {}
    for key, text in texts.items():
        try:
            values[key] = _value(type(known[key]), text)
        except (KeyError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
            raise _other_type(key, known[key], text) from error
    return values


def _other_type(key: str, example: Json, value: UserInput) -> UsageError:
    """The error for a value of another type than the config has."""
    kind = type(example).__name__
    got = repr(value)
    got = got if len(got) <= LONGEST_SHOWN else f"{got[:LONGEST_SHOWN]}..."
    return UsageError(f"expected {kind} for config key '{key}', such as {example!r}, got {got}")


def _value(kind: type, text: str) -> Json:
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    if kind in (int, float, str):
        return kind(text)
    return ast.literal_eval(text)
