"""Config files: found by name or path, read, and changed."""

import ast
import contextlib
import difflib
import inspect
import os
import re
import runpy
import sys
import textwrap
import warnings
from collections.abc import Mapping
from pathlib import Path

from flax_attn.errors import UsageError, one_line, shortened, unknown
from flax_attn.fields import check_limits, check_name, check_no_task, flatten
from flax_attn.files import expanded
from flax_attn.types import ConfigValues, Json, JsonObject, UserInput

LARGEST = 2**20  # bytes of a config file
FLAGS = ("config", "workdir", "manual_dir", "explore", "no-open", "port", "debug_nans", "sequence")
FLAGS += ("distributed", "timeout")
# flags of other programs, and what does the same here
ELSEWHERE = {
    **dict.fromkeys(("output", "output_dir", "out", "outdir"), "--workdir names the run directory"),
    **dict.fromkeys(("resume", "checkpoint"), "a run resumes when it is trained again"),
    "quick": "NAME:quick is the quick recipe of a config",
    **dict.fromkeys(
        ("cpu", "cuda", "device", "gpu", "tpu"),
        "JAX takes the GPU or TPU that it finds; JAX_PLATFORMS=cpu in the environment forbids it",
    ),
}
LISTED = "flax-attn train --help lists the configs"
PACKAGE = Path(__file__).parent
FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")  # of a wheel, and of a checkout


def names() -> list[str]:
    """The names of the configs that come with the package."""
    return sorted(path.stem for path in folder().glob("*.py") if path.stem != "base")


def listed(width: int) -> str:
    """Lists the configs of the package with the first line of their docstrings; runs none."""
    lines = []
    for name in names():
        tree = ast.parse((folder() / f"{name}.py").read_text(encoding="utf-8"))
        says = (ast.get_docstring(tree) or "").partition("\n")[0]
        lines += textwrap.wrap(f"{name}: {says}", width - 2, subsequent_indent="    ")
    return "\n".join(f"  {line}" for line in lines)


def folder() -> Path:
    """The folder of the configs that come with the package."""
    return next((path for path in FOLDERS if path.is_dir()), FOLDERS[0])


def from_command(names: list[str], rest: list[str]) -> tuple[ConfigValues, set[str]]:
    """Reads the config of a command line: the one of its names, changed by the flags in `rest`.

    Returns the keys that they have changed, too.

    Raises:
        UsageError: no name, several, one that is no config's, or a flag that is none.
    """
    config = read(only(names, rest))
    changed = change(config, parse(config, overrides(rest, flatten(config.to_dict()))))
    check_limits(flatten(config.to_dict()))
    return config, changed


def only(names: list[str], rest: list[str]) -> str:
    """The name of the one config. Raises a UsageError for none or several."""
    if not names:
        got = f", got {shortened(' '.join(rest))}" if rest else ""
        raise UsageError(
            f"expected a config, such as flax-attn train shapes_attention{got}; {LISTED}"
        )
    if len(names) > 1:
        got = shortened(" and ".join(names))
        raise UsageError(f"expected one --config, got {len(names)}: {got}")
    return names[0]


def find(name: str) -> tuple[Path, str]:
    """The file and the variant of a config, by `NAME[:VARIANT]` or by `PATH.py[:VARIANT]`.

    A file of the user's own ends in `.py`. A name without this ending is that of a config of the
    package, also where the current directory has a file of that name.

    Raises:
        UsageError: no such file.
    """
    stem, colon, variant = name.partition(":")
    if colon and not variant:
        raise UsageError(f"expected a variant after {shortened(name)}, such as {stem}:quick")
    path = expanded(stem) if stem else Path()
    if path.suffix == ".py" and path.is_file():
        return path, variant
    shipped = folder() / f"{path.stem}.py"
    if shipped.is_file() and path in (
        Path(path.stem),
        Path("configs") / path.stem,
        Path("configs") / shipped.name,
    ):
        return shipped, variant
    if path.is_file():
        raise UsageError(
            f"expected a config file in Python with a function get_config, NAME.py, got "
            f"{shortened(stem)}"
        )
    kind = " (a directory)" if path.is_dir() else " (no regular file)"
    kind = kind if stem and os.path.lexists(path) else ""
    close = difflib.get_close_matches(path.stem, names(), n=1) if not kind else []
    advice = f"did you mean '{close[0]}'?" if close else LISTED
    raise UsageError(f"no config file {shortened(name) or repr(name)}{kind}; {advice}")


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


def change(config: ConfigValues, overrides: Mapping[str, UserInput]) -> set[str]:
    """Sets keys such as `model.features`. Returns those that have another value than before.

    Raises:
        UsageError: a key that the config does not have, or a value of another type.
    """
    known = flatten(config.to_dict())
    for key, value in overrides.items():
        if key not in known:
            check_no_task({str(key): value})
            raise UsageError(unknown("config key", str(key), known))
        if isinstance(value, Path) and isinstance(known[key], str):
            value = str(value)
        try:
            config.update_from_flattened_dict({key: value})
        except (TypeError, ValueError) as error:
            raise _other_type(key, known[key], value) from error
    return {key for key, value in flatten(config.to_dict()).items() if value != known[key]}


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


def overrides(arguments: list[str], known: JsonObject) -> dict[str, str]:
    """The values that flags give to keys of the config, as text.

    A flag is `--KEY=VALUE`, `--KEY VALUE`, or for a truth value `--KEY` and `--noKEY`.
    `--config.KEY` is the same as `--KEY`.

    Raises:
        UsageError: an argument that is no such flag.
    """
    values, rest = {}, list(arguments)
    while rest:
        argument = rest.pop(0)
        match = re.fullmatch(r"--?(no)?(config\.)?([^=]+?)(?:=(.*))?", argument, re.DOTALL)
        if not argument.startswith("-") or match is None:
            raise UsageError(
                f"unexpected argument '{shortened(argument)}'; everything but the config is a "
                f"flag with two hyphens, --KEY=VALUE, see --help"
            )
        no, prefix, key, value = match.groups()
        if no and key not in known:
            no, key = None, f"no{key}"  # a key that begins with these letters
        if no and (value is not None or not isinstance(known[key], bool)):
            raise UsageError(
                f"expected --KEY=VALUE, or --noKEY for a truth value, got {shortened(argument)}"
            )
        if key not in known:
            check_no_task({key: value})
            if not prefix and (here := ELSEWHERE.get(key.replace("-", "_"))):
                raise UsageError(f"unknown flag '{key}'; {here}")
            what, choices = (
                ("config key", known) if prefix else ("flag or config key", [*FLAGS, *known])
            )
            raise UsageError(unknown(what, key, choices))
        if value is None and isinstance(known[key], bool):
            value = "false" if no else "true"
        elif value is None:
            if not rest:
                such = "VALUE" if known[key] == "" else known[key]
                raise UsageError(f"expected a value for --{key}, such as --{key}={such}")
            value = rest.pop(0)
        values[key] = value
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


def default_workdir(config: ConfigValues) -> Path:
    """The run directory of a config if the user names none."""
    name = config.get("name")
    check_name(name)
    return Path("runs") / name.replace(":", "-")
