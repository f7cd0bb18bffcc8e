"""Trains the experiment of a config.

python train.py --config=configs/NAME.py[:quick] [--workdir=runs/NAME] [--manual_dir=DIR] [--config.KEY=VALUE ...]

The same command again resumes a run that was stopped, and reports one that is finished.
"""

import gc
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import config_flags

from flax_attn.errors import UsageError, one_line, unknown
from flax_attn.runs.directory import flatten

CONFIGS = Path(__file__).parent / "configs"

config_flags.DEFINE_config_file("config", None, "The config file, with :quick for a first look.", lock_config=True)
flags.DEFINE_string("workdir", None, "The run directory; by default runs/NAME, or runs/NAME-quick.")
flags.DEFINE_string("manual_dir", None, "A folder with one folder a data set; by default data sets are downloaded.")


def parse(argv: list[str]) -> list[str]:
    """Parses the command line, and turns what absl and ml_collections would raise into one line."""
    try:
        argv = config_first(argv)
        check_overrides(argv, defaults(argv))
        rest = flags.FLAGS(argv)
        if len(rest) > 1:
            raise UsageError(f"unexpected argument '{rest[1]}'; everything is a flag, see --help")
        return rest
    except (UsageError, flags.Error) as error:
        fail(error)


def config_first(argv: list[str]) -> list[str]:
    """The arguments with `--config=...` before its overrides, which are known only once it is read."""
    places = [i for i, arg in enumerate(argv) if re.match(r"--?config(=|$)", arg)]
    if len(places) > 1:
        raise UsageError(f"expected one --config, got {len(places)}")
    for i in places:
        joined, rest = argv[i], argv[i + 1 :]
        if "=" not in joined and rest:
            joined, rest = f"{joined}={rest[0]}", rest[1:]
        sys.argv = [argv[0], joined, *argv[1:i], *rest]  # where ml_collections looks for overrides
        return sys.argv
    return argv


def defaults(argv: list[str]) -> dict[str, Any]:
    """The config before overrides, flat; empty where the command line asks for help."""
    available = "configs/ has " + ", ".join(sorted(path.stem for path in CONFIGS.glob("*_*.py")))
    given = re.match(r"--?config=(.+)", argv[1]) if len(argv) > 1 else None
    if given is None:
        if any(re.match(r"--?help", arg) for arg in argv):
            return {}
        raise UsageError(f"expected --config=configs/NAME.py; {available}")
    path, _, variant = given[1].partition(":")
    if not Path(path).is_file():
        raise UsageError(f"no config file {path}; {available}")
    try:
        return flatten(runpy.run_path(path)["get_config"](variant).to_dict())
    except ValueError as error:
        raise UsageError(one_line(error)) from error
    except Exception as error:  # whatever the code of a config file may raise
        raise UsageError(
            f"expected get_config(variant) in {path} to return a ConfigDict, got {type(error).__name__}: {one_line(error)}"
        ) from error


def check_overrides(argv: list[str], known: dict[str, Any]) -> None:
    """Every `--config.KEY=VALUE` must name a key of the config and hold a value of its type."""
    for arg in argv:
        match = re.match(r"--?(?:no)?config\.([^=]+)(?:=(.*))?$", arg)
        if match is None:
            continue
        key, value = match.groups()
        if key not in known:
            raise UsageError(unknown("config key", key, known))
        if value is None:
            continue
        kind = type(known[key])
        try:
            kind(value) if kind in (int, float) else None
            valid = kind is not bool or value.lower() in ("true", "false", "1", "0")
        except ValueError:
            valid = False
        if not valid:
            raise UsageError(f"expected {kind.__name__} for config key '{key}', such as {known[key]!r}, got '{value}'")


def fail(error: Exception) -> NoReturn:
    print(f"error: {one_line(error)}", file=sys.stderr)
    sys.exit(2)


def main(argv: list[str]) -> None:
    try:
        gc.disable()
        import jax  # after the flags, so that a typing error is told at once

        from flax_attn.commands.training import keep_compiled, train

        keep_compiled()
        jax.config.update("jax_traceback_in_locations_limit", 0)  # to note each operation's lines of Python takes a tenth of tracing
        from flax_attn.analysis.tables import wide_console

        gc.freeze()  # what is imported stays, and tracing makes so many objects that looking at it again and again takes long
        gc.enable()
        config = flags.FLAGS.config
        workdir = flags.FLAGS.workdir or "runs/" + str(config.get("name", "run")).replace(":", "-")
        manual_dir = Path(os.path.expanduser(flags.FLAGS.manual_dir)) if flags.FLAGS.manual_dir else None
        train(config, Path(os.path.expanduser(workdir)), wide_console(), manual_dir)
    except UsageError as error:
        fail(error)
    except OSError as error:
        fail(UsageError(f"cannot read or write {error.filename} ({error.strerror}); what was written before is kept"))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on after the last checkpoint", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    logging.set_verbosity(logging.ERROR)
    app.run(main, flags_parser=parse)
