"""Config files: found by name or path, read, and changed."""

import ast
import contextlib
import inspect
import runpy
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

from flax_attn.errors import UsageError, one_line, shortened, unknown
from flax_attn.files import check_here, expanded
from flax_attn.runs.directory import flatten
from flax_attn.types import ConfigValues, Json, JsonObject, UserInput

LARGEST = 2**20  # bytes of a config file
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

    A file of the user's own ends in `.py`. A name without this ending is that of a config of the
    package, also where the current directory has a file of that name.

    Raises:
        UsageError: no such file.
    """
    stem, _, variant = name.partition(":")
    path = expanded(stem)
    if path.suffix == ".py" and path.is_file():
        return path, variant
    own = folder() / f"{path.stem}.py"
    if own.is_file() and path in (
        Path(path.stem),
        Path("configs") / path.stem,
        Path("configs") / own.name,
    ):
        return own, variant
    if path.is_file():
        raise UsageError(
            f"expected the name of a config file to end in .py, got {shortened(stem)}; rename it"
        )
    raise UsageError(f"no config file {shortened(stem)}; configs/ has {', '.join(names())}")


def read(name: str) -> ConfigValues:
    """The config of a name or path, as `get_config(variant)` of its file returns it.

    Warnings of its code are not shown. If its code changes the current directory, that is undone.

    Raises:
        UsageError: no such file, no such variant, or a file that does not return a ConfigDict.
    """
    try:
        path, variant = find(name)
    except OSError as error:
        raise UsageError(f"no config file {shortened(name)} ({error.strerror})") from error
    return _run(path, variant)


def _run(path: Path, variant: str) -> ConfigValues:
    if path.stat().st_size > LARGEST:
        raise UsageError(f"expected a config file of at most {LARGEST:,} bytes, got {path}")
    expected = f"expected get_config(variant) in {path} to return a ConfigDict, got"
    check_here()
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.chdir("."):
            names = runpy.run_path(str(path))
            if "get_config" not in names:
                raise UsageError(f"expected a function get_config(variant) in {path}, got none")
            config = names["get_config"](variant)
            if inspect.iscoroutine(config):
                config.close()
            config, kind = _as_config(config), type(config).__name__
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:  # whatever the code of a config file may raise
        raise UsageError(f"{expected} {type(error).__name__}: {one_line(error)}") from error
    if config is None:
        raise UsageError(f"{expected} {kind}")
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


def _as_config(value: UserInput) -> ConfigValues | None:
    """A value as a ConfigDict that can be changed; None where it is none."""
    # a file that has not imported ml_collections cannot return one
    module = sys.modules.get("ml_collections")
    if module is None or not isinstance(value, module.ConfigDict):
        return None
    content = value.to_dict()
    if not isinstance(content, dict):
        return None
    check_keys(content)
    if type(value) is module.ConfigDict:
        return value
    return _as_config(module.ConfigDict(content))  # what a subclass gave may hold anything


def check_keys(content: UserInput) -> None:
    """Raises a UsageError for keys of a config that are no texts."""
    for key, value in content.items():
        if not isinstance(key, str):
            raise UsageError(f"expected config keys that are texts, got {shortened(repr(key))}")
        if isinstance(value, dict):
            check_keys(value)


def change(config: ConfigValues, overrides: Mapping[str, UserInput]) -> None:
    """Sets keys such as `model.features`.

    Raises:
        UsageError: a key that the config does not have, or a value of another type.
    """
    known = flatten(config.to_dict())
    for key, value in overrides.items():
        if key not in known:
            raise UsageError(unknown("config key", str(key), known))
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
    such, got = shortened(repr(example)), shortened(repr(value))
    return UsageError(f"expected {kind} for config key '{key}', such as {such}, got {got}")


def _value(kind: type, text: str) -> Json:
    if kind is bool:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    if kind in (int, float, str):
        return kind(text)
    return ast.literal_eval(text)
