"""The command `flax-attn`, also `python -m flax_attn`: training, predictions, texts, comparison."""

import argparse
import io
import sys
import traceback
from pathlib import Path

import flax_attn
from flax_attn.commands.arguments import make_parser, refuse
from flax_attn.errors import LONGEST, UsageError, escaped, one_line, shortened
from flax_attn.files import check_here

LEAST_MEMORY = 2_000_000_000  # bytes, in which a small run trains on two cores


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    The code is 0, or 2 for bad input, with one line on standard error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that cannot show a character shows a question mark
    if "--distributed" not in (sys.argv[1:] if argv is None else argv):
        return run_safely(argv)
    try:
        code = run_safely(argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    if "flax_attn.experiment.processes" in sys.modules:  # it may have joined the others
        from flax_attn.experiment import processes

        processes.fail(code)
    return code


def run_safely(argv: list[str] | None) -> int:
    """Runs the command, and turns errors into a line and a code."""
    try:
        args = parse(argv)
        commands = {"train": run_train, "predict": run_predict, "generate": run_generate}
        commands |= {"compare": run_compare, "report": run_report, "explore": run_explore}
        code = commands[args.command](args)
        print(end="", flush=True)  # a program without an output has no sys.stdout
        return code
    except UsageError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stdout = None
        return 0
    except OSError as error:
        try:
            check_here()
        except UsageError as gone:
            return complain(str(gone))
        what = error.filename or "the output"
        return complain(f"cannot read or write {what} ({error.strerror or one_line(error)})")
    except RecursionError:
        return complain("expected files that are not nested so deep; restore them")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        said = one_line(error)[:120]
        return complain(f"out of memory ({said}); lower batch_size, num_seeds or model.features")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def complain(message: str) -> int:
    """Prints the one line of an error and returns the exit code for it.

    Of a line that is too long, the beginning and the end are printed: what to do is at the end.
    """
    print(f"error: {shortened(escaped(message), LONGEST)}", file=sys.stderr)
    return 2


def check_memory() -> None:
    """Raises a UsageError where JAX, imported, would abort for want of addresses."""
    try:
        import resource
    except ImportError:  # of Unix alone, as is such a limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY:
        raise UsageError(
            f"expected at least {LEAST_MEMORY / 1e9:.1f} GB of memory for JAX, got a limit of "
            f"{limit / 1e9:.1f} GB; raise it, as with ulimit -v unlimited"
        )


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The arguments.

    Texts may also come behind the options, where argparse does not look, and so may overrides.
    """
    arguments = sys.argv[1:] if argv is None else argv
    for argument in arguments:
        if "\0" in argument:
            refuse(f"expected arguments without NUL characters, got {argument[:60]!r}")
    args, rest = make_parser(__doc__, flax_attn.__version__).parse_known_args(arguments)
    if args.command == "train":
        args.rest = rest
        return args
    if rest and (args.command != "predict" or any(arg.startswith("-") for arg in rest)):
        refuse(f"unrecognized arguments: {shortened(' '.join(rest))}")
    if rest:
        args.text += rest
    return args


def check_text(text: str, what: str, advice: str) -> None:
    """Raises a UsageError for an argument with bytes that are not UTF-8, or for its locale not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"expected {what} in UTF-8, got {text[-60:]!a}; {advice}") from error


def run_train(args: argparse.Namespace) -> int:
    from flax_attn.commands.training import (
        run_command,
    )  # jax comes later, so that a typing error is told at once

    is_name = bool(args.rest) and not args.rest[0].startswith("-")
    names, rest = args.config + args.rest[:is_name], args.rest[is_name:]
    place = args.workdir or Path("runs")
    for argument in (*rest, str(place.absolute())):
        check_text(argument, "arguments", "rename, or set LC_ALL=C.UTF-8")
    check_memory()
    if args.timeout < 1:
        refuse(f"expected --timeout of at least 1 second, got {args.timeout}")
    wait = args.timeout if args.distributed else None
    options = {"debug_nans": args.debug_nans, "sequence": args.sequence}
    return run_command(names, rest, args.workdir, args.manual_dir, options, wait)


def run_predict(args: argparse.Namespace) -> int:
    from flax_attn.runs.directory import read_config

    check_memory()
    # what a line can print
    check_text(str(args.run.absolute()), "the path of a run", "rename it, or set LC_ALL=C.UTF-8")
    read_config(args.run)  # before jax is there, so that a wrong path is told at once
    for text in args.text:
        check_text(text, "a text", "set the terminal to UTF-8, or give a file")
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.predicting import predict
    from flax_attn.commands.requests import Request

    request = Request(
        args.run,
        args.text,
        args.input,
        args.output,
        args.figure,
        args.json,
        args.beam,
        args.best,
        tuple(args.allow),
    )
    report(predict(request, wide_console()), args.json)
    return 0


def run_generate(args: argparse.Namespace) -> int:
    from flax_attn.runs.directory import read_config

    check_memory()
    check_text(str(args.run.absolute()), "the path of a run", "rename it, or set LC_ALL=C.UTF-8")
    check_text(args.prompt, "a prompt", "set the terminal to UTF-8")
    read_config(args.run)  # before jax is there, so that a wrong path is told at once
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.commands.generating import generate

    report(generate(args))
    return 0


def run_report(args: argparse.Namespace) -> int:
    from flax_attn.commands.reporting import report as write_report

    if args.model:
        check_memory()
    for path in (*args.runs, args.output):
        check_text(str(path.absolute()), "a path", "rename it, or set LC_ALL=C.UTF-8")
    report(write_report(args))
    return 0


def run_explore(args: argparse.Namespace) -> int:
    from flax_attn.runs.directory import read_config

    check_memory()
    for run in args.runs:
        check_text(str(run.absolute()), "the path of a run", "rename it, or set LC_ALL=C.UTF-8")
        read_config(run)  # before jax is there, so that a wrong path is told at once
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.commands.exploring import explore

    explore(args)
    return 0


def report(paths: list[Path], as_json: bool = False) -> None:
    """Says what was written, and beside JSON where it is not in the way."""
    for path in paths:
        print(f"wrote {escaped(str(path))}", file=sys.stderr if as_json else sys.stdout)


def run_compare(args: argparse.Namespace) -> int:
    from flax_attn.analysis.compare import compare
    from flax_attn.analysis.tables import wide_console

    report(compare(args.runs, args.output, wide_console()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
