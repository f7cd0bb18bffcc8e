"""Config files: found by name or path, and read."""

import ast
import difflib
import os
import runpy
import textwrap
from pathlib import Path

from flax_attn.errors import UsageError, one_line, shortened
from flax_attn.types import ConfigValues

LISTED = "flax-attn train --help lists the configs"
PACKAGE = Path(__file__).parent
FOLDERS = (PACKAGE / "configs", PACKAGE.parent / "configs")  # of a wheel, and of a checkout


def names() -> list[str]:
    """Returns the names of the configs that come with the package."""
    return sorted(path.stem for path in folder().glob("*.py"))


def listed(width: int) -> str:
    """Lists the configs of the package with the first line of their docstrings; runs none."""
    lines = []
    for name in names():
        tree = ast.parse((folder() / f"{name}.py").read_text(encoding="utf-8"))
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        lines += textwrap.wrap(f"{name}: {summary}", width - 2, subsequent_indent="    ")
    return "\n".join(f"  {line}" for line in lines)


def folder() -> Path:
    """Returns the folder of the configs that come with the package."""
    return next((path for path in FOLDERS if path.is_dir()), FOLDERS[0])


def only(names: list[str], rest: list[str]) -> str:
    """Returns the name of the one config. Raises a UsageError for none or several."""
    if len(names) != 1:
        got = shortened(" and ".join(names) or " ".join(rest)) or "none"
        raise UsageError(
            f"expected one config, such as flax-attn train shapes_attention, got {got}; {LISTED}"
        )
    return names[0]


def find(name: str) -> tuple[Path, str]:
    """Returns the file and the variant of a config, by `NAME[:VARIANT]` or by `PATH.py[:VARIANT]`.

    A file of the user's own ends in `.py`. A name without this ending is that of a config of the
    package, also where the current directory has a file of that name.
    """
    stem, colon, variant = name.partition(":")
    if colon and not variant:
        raise UsageError(f"expected a variant after {shortened(name)}, such as {stem}:quick")
    path = Path(os.path.expanduser(stem))
    if path.suffix == ".py" and path.is_file():
        return path, variant
    is_name = path.suffix in ("", ".py") and str(path.parent) in (".", "configs")
    if is_name and path.stem in names():
        return folder() / f"{path.stem}.py", variant
    if path.is_file():
        raise UsageError(f"expected a config file in Python, NAME.py, got {shortened(stem)}")
    close = difflib.get_close_matches(path.stem, names(), n=1)
    advice = f"did you mean '{close[0]}'?" if close else LISTED
    raise UsageError(f"no config file {shortened(name) or repr(name)}; {advice}")


def read(name: str) -> ConfigValues:
    """Returns the config of a name or path, as `get_config(variant)` of its file returns it."""
    path, variant = find(name)
    expected = f"expected get_config(variant) in {path} to return a ConfigDict or a dict, got"
    try:
        config = runpy.run_path(str(path))["get_config"](variant)
    except UsageError:
        raise
    except Exception as error:  # whatever the code of a config file may raise
        raise UsageError(f"{expected} {type(error).__name__}: {one_line(error)}") from error
    if not hasattr(config, "items"):
        raise UsageError(f"{expected} {type(config).__name__}")
    return config


def default_workdir(name: str) -> Path:
    """Returns the run directory of a config of this name if the user names none."""
    return Path("runs") / name.replace(":", "-")
