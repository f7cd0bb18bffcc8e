"""The command `flax-attn`, also `python -m flax_attn`: training, predictions, texts, comparison."""

import argparse
import io
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import flax_attn
from flax_attn.errors import UsageError, escaped, one_line

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
    if "jax" in sys.modules:
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
        sys.stdout.flush()
        return code
    except UsageError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stdout = None
        return 0
    except OSError as error:
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
    """Prints the one line of an error and returns the exit code for it."""
    print(f"error: {escaped(message)}", file=sys.stderr)
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
    args, rest = make_parser().parse_known_args(arguments)
    if args.command == "train":
        args.rest = rest
        return args
    if rest and (args.command != "predict" or any(arg.startswith("-") for arg in rest)):
        refuse(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.text += rest
    return args


def check_text(text: str, what: str, advice: str) -> None:
    """Raises a UsageError for an argument with bytes that are not UTF-8, or for its locale not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"expected {what} in UTF-8, got {text[-60:]!a}; {advice}") from error


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flax-attn", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"flax-attn {flax_attn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    usage = "flax-attn train NAME[:quick] [--workdir DIR] [--manual_dir DIR] [--KEY=VALUE ...]"
    options = {"help": "train a config, or resume it", "allow_abbrev": False, "usage": usage}
    train = commands.add_parser("train", **options)
    predict = commands.add_parser("predict", help="predict with the model of a run")
    generate = commands.add_parser("generate", help="continue a text with a language model")
    compare = commands.add_parser("compare", help="compare the results of several runs")
    add_training(train)
    add_predicting(predict)
    add_generating(generate)
    compare.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    output = "directory for the figures (default: comparison)"
    compare.add_argument("--output", type=Path, default=Path("comparison"), help=output)
    reporting = commands.add_parser("report", help="write runs as one page for a browser")
    add_reporting(reporting)
    explore = commands.add_parser("explore", help="try a run in the browser")
    add_exploring(explore)
    for command in (parser, train, predict, generate, compare, reporting, explore):
        command.error = refuse  # argparse's own prints its usage before the line
    return parser


def add_training(train: argparse.ArgumentParser) -> None:
    """The flags of `train`; the keys of the config come to them."""
    # as `train.py` has it
    train.add_argument("--config", action="append", default=[], help=argparse.SUPPRESS)
    workdir = "the run directory (default: runs/NAME, or runs/NAME-quick)"
    train.add_argument("--workdir", type=Path, help=workdir)
    manual_dir = "a folder with one folder a data set (default: downloads)"
    train.add_argument("--manual_dir", type=Path, help=manual_dir)
    debug = "end at the first number that is not finite, and say where it arose"
    train.add_argument("--debug_nans", action="store_true", help=debug)
    joins = "join the other processes of the run: docs/scale-out.md"
    train.add_argument("--distributed", action="store_true", help=joins)
    sequence = "the number of devices that share each sequence, for a Transformer (default: 1)"
    train.add_argument("--sequence", type=int, default=1, help=sequence)
    timeout = "the seconds that one of several processes waits for the others (default: 300)"
    train.add_argument("--timeout", type=int, default=300, help=timeout)
    train.epilog = "Any key of the config is a flag: --num_epochs=3, --model.features=32."


def add_predicting(predict: argparse.ArgumentParser) -> None:
    """The arguments of `predict`."""
    run = "a run directory, such as runs/shapes_attention"
    predict.add_argument("run", type=Path, metavar="RUN", help=run)
    text = 'a text to classify, translate or continue, such as "The final starts next week."'
    predict.add_argument("text", nargs="*", help=text)
    source = "signals (.npy, .csv), texts one a line, images (.png, IDX)"
    predict.add_argument("--input", type=Path, help=source)
    output = "where predictions of signals go, .npy or .csv (default: INPUT with .predictions), "
    output += "or translations (default: printed)"
    predict.add_argument("--output", type=Path, help=output)
    figure = "also draw the predictions, and what the model attends to, into this file"
    predict.add_argument("--figure", type=Path, help=figure)
    as_json = "print classes or translations as JSON, with the attention"
    predict.add_argument("--json", action="store_true", help=as_json)
    beam = "of the search for translations (default: that of the run; 1 is greedy)"
    predict.add_argument("--beam", type=int, help=beam)
    best = "translations of each text, the best first (default: 1)"
    predict.add_argument("--best", type=int, default=1, help=best)
    allow = "a module of your own that the run may import"
    predict.add_argument("--allow", action="append", default=[], metavar="MODULE", help=allow)


def add_generating(generate: argparse.ArgumentParser) -> None:
    """The arguments of `generate`."""
    run = "a run directory, such as runs/shakespeare_char"
    generate.add_argument("run", type=Path, metavar="RUN", help=run)
    prompt = 'the beginning of the text, such as "ROMEO:" (default: none)'
    generate.add_argument("prompt", nargs="?", default="", metavar="PROMPT", help=prompt)
    length = "the number of tokens to write (default: 500)"
    generate.add_argument("--length", type=int, default=500, help=length)
    temperature = "below 1 safer, above 1 bolder, 0 the most probable (default: 0.8)"
    generate.add_argument("--temperature", type=float, default=0.8, help=temperature)
    top_k = "the number of most probable tokens to choose among; 0 for all (default: 40)"
    generate.add_argument("--top-k", type=int, default=40, help=top_k)
    generate.add_argument("--seed", type=int, default=0, help="decides the text (default: 0)")
    samples = "the number of texts (default: 1)"
    generate.add_argument("--samples", type=int, default=1, help=samples)
    figure = "also draw what the last token looks at into this file"
    generate.add_argument("--figure", type=Path, help=figure)
    allow = "a module of your own that the run may import"
    generate.add_argument("--allow", action="append", default=[], metavar="MODULE", help=allow)


def add_reporting(reporting: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    runs = "run directories, such as runs/shapes_attention"
    reporting.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=runs)
    output = "the file to write, or - for the terminal (default: report.html)"
    reporting.add_argument("-o", "--output", type=Path, default=Path("report.html"), help=output)
    no_model = "leave out the trained models, which else answer in the page"
    reporting.add_argument("--no-model", dest="model", action="store_false", help=no_model)


def add_exploring(explore: argparse.ArgumentParser) -> None:
    """The arguments of `explore`."""
    runs = "a run directory, or two that answer the same input"
    explore.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=runs)
    port = "the port of the page (default: the first free one from 8600 on)"
    explore.add_argument("--port", type=int, help=port)
    no_open = "print the address, and open no browser"
    explore.add_argument("--no-open", dest="open", action="store_false", help=no_open)
    allow = "a module of your own that the run may import"
    explore.add_argument("--allow", action="append", default=[], metavar="MODULE", help=allow)


def refuse(message: str) -> NoReturn:
    raise UsageError(f"{message}; see flax-attn --help")


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
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.predicting import predict
    from flax_attn.commands.requests import Request
    from flax_attn.commands.training import keep_compiled

    for text in args.text:
        check_text(text, "a text", "set the terminal to UTF-8, or give a file")
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
    keep_compiled()
    report(predict(request, wide_console()), args.json)
    return 0


def run_generate(args: argparse.Namespace) -> int:
    from flax_attn.runs.directory import read_config

    check_memory()
    check_text(str(args.run.absolute()), "the path of a run", "rename it, or set LC_ALL=C.UTF-8")
    check_text(args.prompt, "a prompt", "set the terminal to UTF-8")
    read_config(args.run)  # before jax is there, so that a wrong path is told at once
    from flax_attn.commands.generating import generate
    from flax_attn.commands.training import keep_compiled

    keep_compiled()
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
    from flax_attn.commands.exploring import explore
    from flax_attn.commands.training import keep_compiled

    keep_compiled()
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
