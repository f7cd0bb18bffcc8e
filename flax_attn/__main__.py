"""The command `flax-attn`, also `python -m flax_attn`: training, predictions and comparisons."""

import argparse
import io
import sys
from pathlib import Path
from typing import NoReturn

import flax_attn
from flax_attn.errors import UsageError


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    The code is 0, or 2 for bad input, with one line on standard error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that cannot show a character shows a question mark
    try:
        args = parse(argv)
        return {"train": run_train, "predict": run_predict, "compare": run_compare}[args.command](
            args
        )
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stdout = None
        return 0
    except OSError as error:
        print(f"error: cannot read or write {error.filename} ({error.strerror})", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The arguments.

    Texts may also come behind the options, where argparse does not look, and so may overrides.
    """
    args, rest = make_parser().parse_known_args(argv)
    if args.command == "train":
        args.rest = rest
        return args
    if rest and (args.command != "predict" or any(arg.startswith("-") for arg in rest)):
        refuse(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        args.text += rest
    return args


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flax-attn", description=__doc__)
    parser.add_argument("--version", action="version", version=f"flax-attn {flax_attn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    usage = "flax-attn train NAME[:quick] [--workdir DIR] [--manual_dir DIR] [--KEY=VALUE ...]"
    options = {"help": "train a config, or resume it", "allow_abbrev": False, "usage": usage}
    train = commands.add_parser("train", **options)
    predict = commands.add_parser("predict", help="predict with the model of a run")
    compare = commands.add_parser("compare", help="compare the results of several runs")
    add_training(train)
    add_predicting(predict)
    compare.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    output = "directory for the figures (default: comparison)"
    compare.add_argument("--output", type=Path, default=Path("comparison"), help=output)
    for command in (parser, train, predict, compare):
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
    train.epilog = "Any key of the config is a flag: --num_epochs=3, --model.features=32."


def add_predicting(predict: argparse.ArgumentParser) -> None:
    """The arguments of `predict`."""
    run = "a run directory, such as runs/shapes_attention"
    predict.add_argument("run", type=Path, metavar="RUN", help=run)
    text = (
        'a text to classify or translate, such as "The final tennis tournament starts next week."'
    )
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


def refuse(message: str) -> NoReturn:
    raise UsageError(f"{message}; see flax-attn --help")


def run_train(args: argparse.Namespace) -> int:
    from flax_attn.commands.training import (
        run_command,
    )  # jax comes later, so that a typing error is told at once

    is_name = bool(args.rest) and not args.rest[0].startswith("-")
    names, rest = args.config + args.rest[:is_name], args.rest[is_name:]
    return run_command(names, rest, args.workdir, args.manual_dir)


def run_predict(args: argparse.Namespace) -> int:
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.predicting import predict
    from flax_attn.commands.requests import Request
    from flax_attn.commands.training import keep_compiled

    for text in args.text:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"expected a text in UTF-8, got {text[:60]!a}; set the terminal to UTF-8, or give "
                f"a file"
            ) from error
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


def report(paths: list[Path], as_json: bool = False) -> None:
    """Says what was written, and beside JSON where it is not in the way."""
    for path in paths:
        print(f"wrote {path}", file=sys.stderr if as_json else sys.stdout)


def run_compare(args: argparse.Namespace) -> int:
    from flax_attn.analysis.compare import compare
    from flax_attn.analysis.tables import wide_console

    for path in compare(args.runs, args.output, wide_console()):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
