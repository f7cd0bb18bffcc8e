"""The command that trains, and what it prints."""

import gc
import os
import platform
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from flax_attn import config_files
from flax_attn.errors import UsageError, escaped_lines, one_line, shortened, unknown
from flax_attn.fields import check_limits, check_name
from flax_attn.files import PARTIAL, can_be_made, expanded
from flax_attn.runs import lock
from flax_attn.runs.directory import default_workdir, flatten, read_config
from flax_attn.runs.results import Summary
from flax_attn.stopping import Stopped, leave_by_stderr, listening
from flax_attn.types import ConfigValues, JsonObject, Options, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.experiment import Config

FLAGS = ("config", "workdir", "manual_dir", "debug_nans", "sequence", "distributed", "timeout")
OF_DEVICES = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_NUM_CPU_DEVICES")


def run_command(
    names: list[str],
    rest: list[str],
    workdir: Path | None,
    manual_dir: Path | None,
    options: Options,
    wait: int | None = None,
) -> int:
    """Trains the config of a name, changed by the flags in `rest`. Returns the exit code.

    Args:
        names: of configs, of which there must be one.
        rest: the flags that change it.
        workdir, manual_dir: as in `experiment.run`.
        options: `debug_nans` and `sequence` of `experiment.run`.
        wait: the seconds that one of several processes waits for the others; None for one alone.

    Raises:
        UsageError: as `experiment.run`, or no name, several, or a flag that is none.
    """
    available = ", ".join(config_files.names())
    if not names:
        raise UsageError(f"expected --config=configs/NAME.py; configs/ has {available}")
    if len(names) > 1:
        got = shortened(" and ".join(names))
        raise UsageError(f"expected one --config, got {len(names)}: {got}")
    config = config_files.read(names[0])
    config_files.change(
        config, config_files.parse(config, overrides(rest, flatten(config.to_dict())))
    )
    check_limits(flatten(config.to_dict()))
    check_name(config.get("name"))
    directory = default_workdir(config) if workdir is None else expanded(workdir)
    arguments = (config, directory, None if manual_dir is None else expanded(manual_dir))
    try:
        if wait is not None:
            train_in_processes(*arguments, options, wait)
        check_directory(directory)
        with lock.held(directory):
            pass  # a second start need not import JAX to be told
        train_and_print(*arguments, options)
    except OSError as error:
        name = error.filename or directory
        raise UsageError(
            f"cannot read or write {name} ({error.strerror}); what was written before is kept"
        ) from error
    except FloatingPointError as error:
        raise UsageError(f"a number is not finite {one_line(error)}") from error
    except Stopped as stopped:
        leave_by_stderr(stopped.said)
        os._exit(128 + stopped.number)  # XLA may still compute, and would crash a longer goodbye
    return 0


def check_directory(path: Path) -> None:
    """Raises a UsageError for a directory that holds something else than a run.

    A lock would be written into it otherwise. A run without a config is mended later.
    """
    lock.check_place(path)
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    is_run = {"sums.json", "checkpoints"} & set(names)
    if not is_run and any(PARTIAL not in name and name != lock.LOCK for name in names):
        read_config(path)


def train_in_processes(
    config: ConfigValues, workdir: Path, manual_dir: Path | None, options: Options, wait: int
) -> NoReturn:
    """Trains as one of several processes, and ends the process where all end."""
    import_jax()
    from flax_attn.experiment import processes

    processes.join(wait)
    code = 0
    try:
        train_and_print(config, workdir, manual_dir, options)
    except Stopped as stopped:
        leave_by_stderr(stopped.said)
        code = 128 + stopped.number
    processes.part(code)


def train_and_print(
    config: ConfigValues, workdir: Path, manual_dir: Path | None, options: Options
) -> None:
    """Trains, hears signals, and prints progress and results.

    JAX starts before anything is written: with flags that it does not know, XLA aborts the process.
    """
    with listening(leave_by_stderr) as stop:
        import_jax()
        check_devices()
        from flax_attn.analysis.tables import wide_console

        train(config, workdir, wide_console(), manual_dir, **options, stop=stop)


def import_jax() -> None:
    """Imports JAX for training, and looks for garbage again when that is done."""
    gc.disable()
    import_libraries()
    import jax

    import flax_attn.experiment  # noqa: F401

    keep_compiled()
    # to note each operation's lines of Python takes a tenth of tracing
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # what is imported stays, and tracing makes so many objects that looking at it takes long
    gc.freeze()
    gc.enable()


def import_libraries() -> None:
    """Imports JAX and Flax.

    Raises:
        UsageError: a variable of the environment has a value that they do not take.
    """
    try:
        import flax  # noqa: F401
        import jax  # noqa: F401
    except ValueError as error:
        said, own = str(error).lower(), ("JAX_", "FLAX_")
        settings = {name: value for name, value in os.environ.items() if name.startswith(own)}
        named = [
            f"{name}={shortened(value)}"
            for name, value in settings.items()
            if name.lower() in said or repr(value.lower()) in said
        ]
        raise UsageError(
            f"expected a value that JAX and Flax take in {' or '.join(named or settings)} "
            f"({one_line(error)}); set another, or leave the variable out"
        ) from error


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
                f"flag, see --help"
            )
        no, prefix, key, value = match.groups()
        if no and key not in known:
            no, key = None, f"no{key}"  # a key that begins with these letters
        if no and (value is not None or not isinstance(known[key], bool)):
            raise UsageError(
                f"expected --KEY=VALUE, or --noKEY for a truth value, got {shortened(argument)}"
            )
        if key not in known:
            what, choices = (
                ("config key", known) if prefix else ("flag or config key", [*FLAGS, *known])
            )
            raise UsageError(unknown(what, key, choices))
        if value is None and isinstance(known[key], bool):
            value = "false" if no else "true"
        elif value is None:
            if not rest:
                raise UsageError(f"expected a value for --{key}, such as --{key}={known[key]}")
            value = rest.pop(0)
        values[key] = value
    return values


def train(
    config: ConfigValues,
    workdir: Path,
    console: "Console",
    manual_dir: Path | None = None,
    **options: UserInput,
) -> Summary:
    """Trains a config, and shows its progress and its results.

    Options and errors are those of `experiment.run`.
    """
    from flax_attn import experiment
    from flax_attn.analysis import tables
    from flax_attn.commands import progress
    from flax_attn.experiment import processes

    def say(text: str) -> None:
        console.print(escaped_lines(text), markup=False, highlight=False, soft_wrap=True)

    checked = experiment.Config.of(config)
    with progress.shown(checked.num_epochs, console) as on_epoch:
        options |= {"on_epoch": on_epoch, "say": say, "manual_dir": manual_dir}
        summary = experiment.run(config, workdir, **options)
    if not processes.is_first():
        return summary
    tables.print_results(summary, checked.reference, console)
    say(f"run directory: {workdir}")
    for line in next_steps(checked, workdir):
        say(line)
    return summary


def next_steps(config: "Config", workdir: Path) -> list[str]:
    """What there is to look at after a run, and what to type."""
    from flax_attn.tasks import ImageClasses, LanguageModel, PairsOfTexts, Signals, TextClasses

    pictures = sorted((workdir / "figures").glob("*.png"))
    best = [path for path in pictures if path.stem in ("attention", "alignment")] or pictures
    lines = [f"look at {best[0]}"] if best else []
    inputs = {
        Signals: "--input SIGNALS.npy --figure prediction.png",
        ImageClasses: "--input IMAGE.png --figure attention.png",
        TextClasses: '"A TEXT" --figure attention.png',
        PairsOfTexts: '"A TEXT" --figure alignment.png',
    }
    if config.task_class is LanguageModel and hasattr(config.model_class, "decode"):
        lines.append(f"then try: flax-attn generate {workdir}")
    if config.task_class in inputs:
        lines.append(f"then try: flax-attn predict {workdir} {inputs[config.task_class]}")
    return lines


def prepare_jax() -> None:
    """Imports JAX, keeps what is compiled, and checks the devices, for a command that computes."""
    import_libraries()
    keep_compiled()
    check_devices()


def check_devices() -> None:
    """Raises a UsageError where JAX does not find the devices that the environment names."""
    import jax

    try:
        jax.devices()
    # an assertion fails for GPUs that it has no code for
    except (AssertionError, RuntimeError) as error:
        said = "none is there" if isinstance(error, AssertionError) else one_line(error)[:200]
        settings = [f"{name}={os.environ[name]}" for name in OF_DEVICES if name in os.environ]
        raise UsageError(
            f"expected devices of {' and '.join(settings) or OF_DEVICES[0]} ({said}); set "
            f"JAX_PLATFORMS=cpu, or leave it out"
        ) from error


def keep_compiled() -> None:
    """Keeps what XLA compiles for the next start.

    It goes to $JAX_COMPILATION_CACHE_DIR, or else to the user's cache, in a folder for each
    machine: a home may be shared, and programs fit one kind of processor. Where this folder cannot
    be written, nothing is kept. JAX_ENABLE_COMPILATION_CACHE=false turns it off. A program that
    cannot be kept, as on a disk that is full, is compiled again, which is nothing to warn of.
    """
    import jax

    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore
        home = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        folder = os.path.join(home, "flax_attn", platform.node() or "machine")
        if can_be_made(Path(folder)):
            jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
