"""The command that trains, and what it prints."""

import gc
import os
import platform
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from flax_attn import config_files
from flax_attn.errors import UsageError, cannot_print, escaped, escaped_lines, one_line, shortened
from flax_attn.files import PARTIAL, can_be_made, expanded
from flax_attn.runs import lock
from flax_attn.runs.directory import read_config
from flax_attn.runs.results import Summary
from flax_attn.stopping import Stopped, leave_by_stderr, listening
from flax_attn.types import ConfigValues, Options, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.experiment import Config

REFUSED = {  # settings of JAX that runs do not work with
    "JAX_ENABLE_X64": (True,),
    "JAX_NUMPY_DTYPE_PROMOTION": ("strict",),
    "JAX_TRANSFER_GUARD": ("disallow", "disallow_explicit"),
    "JAX_TRANSFER_GUARD_HOST_TO_DEVICE": ("disallow", "disallow_explicit"),
    "JAX_TRANSFER_GUARD_DEVICE_TO_HOST": ("disallow", "disallow_explicit"),
}
BEST_PICTURES = ("attention", "alignment", "predictions")  # to look at first, if they are there
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
        options: `debug_nans` and `sequence` of `experiment.run`, `explore` and `port` of `train`.
        wait: the seconds that one of several processes waits for the others; None for one alone.

    Raises:
        UsageError: as `experiment.run`, or no name, several, or a flag that is none.
    """
    import_jax()
    from flax_attn.experiment.config import from_command

    config = from_command(names, rest)
    directory = config_files.default_workdir(config) if workdir is None else expanded(workdir)
    arguments = (config, directory, None if manual_dir is None else expanded(manual_dir))
    try:
        if wait is not None:
            train_in_processes(*arguments, options, wait)
        check_directory(directory)
        with lock.held(directory):
            pass  # a second start need not import JAX to be told
        train_and_print(*arguments, options)
    except OSError as error:
        # of an output that is not buffered, nothing waits
        name = error.filename or ("the output" if cannot_print("\n") else directory)
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
    if not lock.is_run(path) and any(PARTIAL not in name and name != lock.LOCK for name in names):
        read_config(path)


def train_in_processes(
    config: ConfigValues, workdir: Path, manual_dir: Path | None, options: Options, wait: int
) -> NoReturn:
    """Trains as one of several processes, and ends the process where all end."""
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
        UsageError: a variable of the environment has a value that they do not take, or that no run
            works with.
    """
    try:
        import flax  # noqa: F401
        import jax
    except ValueError as error:
        message, prefixes = str(error).lower(), ("JAX_", "FLAX_")
        settings = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
        named = [
            f"{name}={shortened(value)}"
            for name, value in settings.items()
            if name.lower() in message or repr(value.lower()) in message
        ]
        raise UsageError(
            f"expected a value that JAX and Flax take in {' or '.join(named or settings)} "
            f"({one_line(error)}); set another, or leave the variable out"
        ) from error
    for name, values in REFUSED.items():
        if (got := getattr(jax.config, name.lower())) in values:
            raise UsageError(
                f"expected another {name} than {got}, which no run works with; leave the variable "
                f"out"
            )


def train(
    values: ConfigValues,
    workdir: Path,
    console: "Console",
    manual_dir: Path | None = None,
    explore: bool | None = None,
    port: int | None = None,
    **options: UserInput,
) -> Summary:
    """Trains a config, and shows its progress and its results.

    Options and errors are those of `experiment.run`. With `explore`, a page follows the training,
    until Ctrl-C; True opens a browser, too. `port` is that of the page.
    """
    from flax_attn import experiment, kinds
    from flax_attn.analysis import tables
    from flax_attn.commands import progress
    from flax_attn.experiment import processes

    def say(text: str) -> None:
        console.print(escaped_lines(text), markup=False, highlight=False, soft_wrap=True)

    config = experiment.Config.of(values)
    follower = None
    if explore is not None:
        from flax_attn.commands.following import Follower

        follower = Follower(config, workdir, explore, port)
    with progress.shown(config.num_epochs, console) as shown:
        options |= shown._asdict() | {"say": say, "manual_dir": manual_dir, "on_model": follower}
        summary = experiment.run(config, workdir, **options)
    if not processes.is_first():
        return summary
    tables.print_results(summary, config.reference, console)
    say(f"run directory: {escaped(str(workdir))}")
    remarks = config.kind.remarks(kinds.read(workdir), config.data)
    for line in (*remarks, *next_steps(config, workdir)):
        say(escaped(line))
    if follower is not None:
        follower.finish()
    return summary


def next_steps(config: "Config", workdir: Path) -> list[str]:
    """What there is to look at after a run, and what to type."""
    pictures = {path.stem: path for path in sorted((workdir / "figures").glob("*.png"))}
    best = [pictures[name] for name in BEST_PICTURES if name in pictures] or [*pictures.values()]
    lines = [f"look at {best[0]}"] if best else []
    run = shlex.quote(str(workdir))
    if (to_try := config.kind.to_try(config.data, config.model_class)) is not None:
        command, options = to_try
        lines.append(f"then try: flax-attn {command} {run} {options}".rstrip())
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
        reason = "none is there" if isinstance(error, AssertionError) else one_line(error)[:200]
        settings = [f"{name}={os.environ[name]}" for name in OF_DEVICES if name in os.environ]
        raise UsageError(
            f"expected devices of {' and '.join(settings) or OF_DEVICES[0]} ({reason}); set "
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
