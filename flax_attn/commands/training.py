"""The command that trains, and what it prints."""

import argparse
import gc
import os
import platform
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from flax_attn import config_files
from flax_attn.errors import UsageError, escaped, escaped_lines, one_line
from flax_attn.files import can_be_made, expanded
from flax_attn.runs.results import Summary
from flax_attn.stopping import Stopped, leave_by_stderr, listening
from flax_attn.types import Options, UserInput

if TYPE_CHECKING:
    from rich.console import Console

    from flax_attn.experiment import Config

BEST_PICTURES = ("attention", "alignment", "predictions")  # to look at first, if they are there


def run_command(args: argparse.Namespace) -> None:
    """Trains the config that `args` name, changed by the flags in `args.rest`."""
    is_name = bool(args.rest) and not args.rest[0].startswith("-")
    names, flags = args.config + args.rest[:is_name], args.rest[is_name:]
    import_jax()
    from flax_attn.analysis.tables import wide_console
    from flax_attn.experiment import Config, processes

    values = config_files.read(config_files.only(names, flags))
    config = Config.of(values, flags=flags)
    workdir = expanded(args.workdir or config_files.default_workdir(config.name))
    options: Options = {"manual_dir": args.manual_dir and expanded(args.manual_dir)}
    options |= {"explore": args.open if args.explore else None, "port": args.port}
    options |= {"debug_nans": args.debug_nans, "sequence": args.sequence}
    options |= {"last": args.last, "twin": args.twin}
    code = 0
    if args.distributed:
        processes.join(args.timeout)
    try:
        with listening(leave_by_stderr) as stop:
            check_devices()  # before anything is written: for some flags XLA aborts the process
            train(config, workdir, wide_console(), **options, stop=stop)
    except Stopped as stopped:
        leave_by_stderr(stopped.said)
        code = 128 + stopped.number
    if args.distributed:
        processes.part(code)  # ends this process where all end
    if code:
        os._exit(code)  # XLA may still compute, and would crash a longer goodbye


def train(
    config: "Config",
    workdir: Path,
    console: "Console",
    explore: bool | None = None,
    port: int | None = None,
    last: bool = False,
    twin: bool = False,
    **options: UserInput,
) -> Summary:
    """Trains a config, and shows its progress and its results.

    Options and errors are those of `experiment.run`. With `explore`, a page follows the training,
    until Ctrl-C; True opens a browser, too. `port` is that of the page. With `last`, the figures of
    the last epoch are printed, too; with `twin`, twins without learned weights are trained beside.
    """
    from flax_attn import experiment
    from flax_attn.analysis import tables
    from flax_attn.commands import progress
    from flax_attn.experiment import processes, twins
    from flax_attn.runs import reading
    from flax_attn.tasks import baselines, comparison

    def say(text: str) -> None:
        console.print(escaped_lines(text), markup=False, highlight=False, soft_wrap=True)

    def show(summary: "Summary") -> None:
        target = config.task.target_class
        tables.print_results(summary, config.reference, console, last)
        compared = comparison.lines(summary.get("comparisons", []))
        if target.name in baselines.REGRESSED and not baselines.has_sklearn():
            compared.append(baselines.NEEDED)
        remarks = target.remarks(reading.read(workdir), config.data)
        for line in (f"run directory: {workdir}", *compared, *remarks):
            say(escaped(line))

    follower = None
    if explore is not None:
        from flax_attn.commands.following import Follower

        follower = Follower(config, workdir, explore, port)
    with progress.shown(config.num_epochs, console) as shown:
        options |= shown._asdict() | {"say": say, "on_model": follower}
        if twin:  # whose results stand in those of the run
            summary = twins.run_with_twins(config, workdir, **options)
            show(summary)
        else:
            summary = experiment.run(config, workdir, on_summary=show, **options)
    if not processes.is_first():
        return summary
    for line in next_steps(config, workdir):
        say(escaped(line))
    if follower is not None:
        follower.finish()
    return summary


def next_steps(config: "Config", workdir: Path) -> list[str]:
    """Returns what there is to look at after a run, and what to type."""
    pictures = {path.stem: path for path in sorted((workdir / "figures").glob("*.png"))}
    best = [pictures[name] for name in BEST_PICTURES if name in pictures] or [*pictures.values()]
    lines = [f"look at {best[0]}"] if best else []
    run, of_input = shlex.quote(str(workdir)), config.task.input_class.name
    why = "--why " if config.task.tells_why else ""
    picture = "alignment" if config.task.target_class.takes_beam else "attention"
    tries = {
        "signal": f"explore {run}",
        "image": f"predict {run} --input IMAGE.png --figure attention.png",
        "text": f'predict {run} "A TEXT" {why}--figure {picture}.png',
    }
    if hasattr(config.model_class, "decode"):
        tries["tokens"] = f"generate {run}"
    if of_input in tries:
        lines.append(f"then try: flax-attn {tries[of_input]}")
    return lines


def import_jax() -> None:
    """Imports JAX for training. Garbage is looked for again when that is done."""
    gc.disable()
    keep_compiled()
    import jax

    import flax_attn.experiment  # noqa: F401

    # to note each operation's lines of Python takes a tenth of tracing
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # what is imported stays, and tracing makes so many objects that looking at it takes long
    gc.freeze()
    gc.enable()


def prepare_jax() -> None:
    """Imports JAX, keeps what is compiled, and checks the devices, for a command that computes."""
    keep_compiled()
    check_devices()


def check_devices() -> None:
    """Raises a UsageError where JAX does not find the devices that the environment names."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:  # an assertion fails for GPUs without a driver
        raise UsageError(
            f"JAX finds no device ({one_line(error)[:200]}); set JAX_PLATFORMS=cpu, or leave it out"
        ) from error
    if jax.config.jax_enable_x64:  # pyright: ignore
        raise UsageError("expected JAX_ENABLE_X64 to be off, as runs compute in float32")


def keep_compiled() -> None:
    """Imports JAX, and keeps what XLA compiles for the next start.

    It goes to $JAX_COMPILATION_CACHE_DIR, or else to the user's cache, in a folder for each
    machine: a home may be shared, and programs fit one kind of processor. A program that cannot be
    kept is compiled again, which is nothing to warn of.
    """
    try:
        import flax  # noqa: F401
        import jax
    except ValueError as error:  # a variable of the environment has a value that they do not take
        raise UsageError(one_line(error)) from error
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore
        home = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        folder = os.path.join(home, "flax_attn", platform.node() or "machine")
        if can_be_made(Path(folder)):
            jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
