"""The command `flax-attn`, also `python -m flax_attn`: training, predictions, texts, comparison."""

import argparse
import importlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import flax_attn
from flax_attn import config_files
from flax_attn.errors import LONGEST, UsageError, escaped, one_line, shortened, unknown
from flax_attn.runs import shipped
from flax_attn.types import Options

PUBLISHED = "the folder of a published model, as transformers writes it"
TIMEOUT = 300  # seconds
Command = Callable[[argparse.Namespace], list[Path] | None]  # returns the paths that it wrote


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns 0, 2 after one line about bad input, or 130 after Ctrl-C."""
    arguments = sys.argv[1:] if argv is None else argv
    if "MPLBACKEND" in os.environ:  # a notebook sets its own, which need not be installed here
        os.environ["MPLBACKEND"] = "agg"
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that cannot show a character shows a question mark
            stream.reconfigure(errors="replace")  # pyright: ignore
    code = 1
    try:
        code = run(arguments)
    except Exception:
        if "--distributed" not in arguments:
            raise
        traceback.print_exc()
    if "--distributed" in arguments and "flax_attn.experiment.processes" in sys.modules:
        from flax_attn.experiment import processes

        processes.fail(code)  # a process that has joined the others must not wait for them
    return code


def run(arguments: Sequence[str]) -> int:
    """Runs the command, and turns errors into a line and a code."""
    try:
        try:
            args = parse(arguments)
            _, function, _ = COMMANDS[args.command]
            beside = sys.stderr if getattr(args, "as_json", False) else sys.stdout
            paths = call(function, args) if isinstance(function, str) else function(args)
            for written in paths or ():
                print(f"wrote {escaped(str(written))}", file=beside)
        finally:
            sys.stdout.flush()
        return 0
    except UsageError as error:
        return complain(str(error))
    except OSError as error:
        drop_output()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough, as `head` does
            return 0
        what = error.filename or "the output"
        return complain(f"cannot read or write {what} ({error.strerror or one_line(error)})")
    except (FloatingPointError, MemoryError, RuntimeError) as error:
        is_memory = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
        if not is_memory and not isinstance(error, FloatingPointError):
            raise
        advice = "; lower batch_size, num_seeds or model.features" if is_memory else ""
        return complain(f"{one_line(error)[:200]}{advice}")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def drop_output() -> None:
    """Drops what waits to be printed, where it cannot be: at its end, Python would try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str) -> int:
    """Prints the one line of an error and returns the exit code for it."""
    print(f"error: {shortened(escaped(message), LONGEST)}", file=sys.stderr)
    return 2


class Parser(argparse.ArgumentParser):
    """Parses arguments, and raises a UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments.

    Texts may also come behind the options, where argparse does not look, and so may the keys of a
    config.
    """
    if arguments[:1] == ["train"] and arguments[2:] in (["--help"], ["-h"]):
        from flax_attn.experiment.config import help_of

        print("keys, with their values; flax-attn train --help lists the other flags")
        print(help_of(arguments[1].removeprefix("--config="), shutil.get_terminal_size().columns))
        raise SystemExit(0)
    args, rest = make_parser().parse_known_args(arguments)
    if args.command in ("train", "evaluate"):
        args.rest = rest
    elif args.command == "predict" and not any(argument.startswith("-") for argument in rest):
        args.texts += rest
    elif rest:
        command, wrong = f"flax-attn {args.command}", shortened(" ".join(rest))
        raise UsageError(f"unrecognized arguments: {wrong}; see {command} --help")
    return args


def make_parser() -> Parser:
    parser = Parser(prog="flax-attn", description=__doc__, allow_abbrev=False)
    version = f"flax-attn {flax_attn.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True)
    usage = "flax-attn train NAME[:quick] [--workdir DIR] [--manual_dir DIR] [--KEY=VALUE ...]"
    for name, (add, _, what) in COMMANDS.items():
        options: Options = {"usage": usage, "allow_abbrev": False} if name == "train" else {}
        add(commands.add_parser(name, help=what, **options))
    return parser


def path(text: str) -> Path:
    """Converts an argument to a path. An empty variable would name the folder here."""
    if not text or "://" in text:
        raise argparse.ArgumentTypeError(f"expected a path on this machine, got {text!r}")
    return Path(text).expanduser()


def run_path(text: str) -> Path:
    """Converts an argument to the directory of a run, also of one that comes with the package."""
    return shipped.place(path(text))


def add_train(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("--config", action="append", default=[], help=argparse.SUPPRESS)  # as `train.py` has it
    flag("--workdir", type=path, help="the run directory (default: runs/NAME, or runs/NAME-quick)")
    flag("--manual_dir", type=path, help="a folder of data sets (default: they are downloaded)")
    flag("--twin", action="store_true", help="also train the model without learned weights")
    flag("--last", action="store_true", help="print the figures of the last epoch, too")
    flag("--debug_nans", action="store_true", help="stop at the first NaN, and say where it arose")
    either = parser.add_mutually_exclusive_group().add_argument
    either("--distributed", action="store_true", help="join the other processes: docs/scale-out.md")
    either("--explore", action="store_true", help="follow the training on a page in the browser")
    add_page(parser)
    flag("--sequence", type=int, default=1, help="devices that share each sequence (default: 1)")
    waits = f"seconds that a process waits for the others (default: {TIMEOUT})"
    flag("--timeout", type=int, default=TIMEOUT, help=waits)
    parser.epilog = "Any key of the config is a flag: --num_epochs=3, --model.features=32."
    plain = parser.format_help
    width = shutil.get_terminal_size().columns - 2
    # the configs are read where help is asked for
    parser.format_help = lambda: f"{plain()}\nconfigs:\n{config_files.listed(width)}\n"


def add_predict(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("run", type=run_path, metavar="RUN", help=f"a run directory, or {PUBLISHED}")
    flag("texts", nargs="*", default=[], metavar="text", help="to classify, translate or continue")
    source = "signals (.npy, .csv), a table with texts (.csv, .tsv), a text in each line of another"
    source += " file, or images (.png, a folder, IDX)"
    flag("--input", type=path, dest="source", metavar="FILE", help=source)
    output = "the file for predictions of signals (.npy, .csv) or of a table (default for both: "
    output += "INPUT with .predictions), or for translations (default: printed)"
    flag("--output", type=path, metavar="FILE", help=output)
    flag("--figure", type=path, help="also draw predictions and attention into this file")
    flag("--json", action="store_true", dest="as_json", help="print JSON, with the attention")
    flag("--why", action="store_true", help="also print which words mattered")
    flag("--beam", type=int, help="the beam of translations (default: the run's; 1 is greedy)")
    best = "translations of each text (default: 1)"
    flag("--best", type=int, default=1, dest="num_best", metavar="BEST", help=best)
    add_allow(parser)


def run_predict(args: argparse.Namespace) -> list[Path] | None:
    for text in args.texts:
        if Path(text).suffix and os.path.isfile(text):
            raise UsageError(f"expected a text, got the file {text}; give one file by --input")
    return call("predicting.predict", args)


def add_words(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("run", type=run_path, metavar="RUN", help=f"a run on texts in classes, or {PUBLISHED}")
    source = "a table with texts (.csv, .tsv), or a text in each line (default: the test split)"
    flag("--input", type=path, dest="source", metavar="FILE", help=source)
    flag("--manual_dir", type=path, help="the folder that the data set of the run was read from")
    texts, words = "the most texts, evenly from all", "the number of words for each class"
    flag("--texts", type=int, default=500, dest="num_texts", help=f"{texts} (default: 500)")
    flag("--words", type=int, default=10, dest="num_words", help=f"{words} (default: 10)")
    flag("--json", action="store_true", dest="as_json", help="print JSON")
    add_allow(parser)
    parser.set_defaults(texts=[])


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("run", type=run_path, metavar="RUN", help="a run directory")
    source = "a file with labels, as the run was trained on, or of one's own data of that kind"
    flag("file", metavar="FILE", help=source)
    flag("--json", action="store_true", dest="as_json", help="print JSON")
    add_allow(parser)
    parser.epilog = "Keys of the data are flags, such as --data.label_column=NAME."


def add_generate(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("run", type=run_path, metavar="RUN", help=f"a run directory, or {PUBLISHED}")
    flag("prompt", nargs="?", default="", metavar="PROMPT", help="the beginning, such as ROMEO:")
    flag("--length", type=int, default=500, help="the number of tokens to write (default: 500)")
    temperature = "below 1 likely tokens are likelier; 0: the likeliest alone (default: 0.8)"
    flag("--temperature", type=float, default=0.8, help=temperature)
    flag("--top-k", type=int, default=40, help="choose among the k likeliest; 0: all (default: 40)")
    flag("--seed", type=int, default=0, help="the same seed gives the same text (default: 0)")
    flag("--samples", type=int, default=1, help="the number of texts (default: 1)")
    flag("--figure", type=path, help="also draw what the last token attends to into this file")
    add_allow(parser)


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=run_path, nargs="+", metavar="RUN")
    output = "directory for the figures (default: comparison)"
    parser.add_argument("--output", type=path, default=Path("comparison"), help=output)


def run_compare(args: argparse.Namespace) -> list[Path]:
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.comparing import compare

    return compare(args.runs, args.output, wide_console())


def add_report(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    runs = "run directories, or a file of attention weights (.npz)"
    flag("runs", type=run_path, nargs="+", metavar="RUN", help=runs)
    output = "the file to write, or - for the terminal (default: report.html)"
    flag("-o", "--output", type=path, default=Path("report.html"), help=output)
    flag("--no-model", dest="model", action="store_false", help="leave out the trained models")


def add_explore(parser: argparse.ArgumentParser) -> None:
    runs = f"a run directory, or two of one kind, which answer the same input; or {PUBLISHED}"
    parser.add_argument("runs", type=run_path, nargs="+", metavar="RUN", help=runs)
    add_page(parser)
    add_allow(parser)


def add_demo(parser: argparse.ArgumentParser) -> None:
    which = f"{' or '.join(shipped.NAMES)} (default: {shipped.NAMES[0]})"
    parser.add_argument("names", nargs="*", metavar="NAME", help=which)
    add_page(parser)
    parser.set_defaults(allow=[])


def run_demo(args: argparse.Namespace) -> list[Path] | None:
    for name in set(args.names) - set(shipped.NAMES):
        raise UsageError(unknown("demo", name, shipped.NAMES))
    args.runs = [shipped.unpacked(name) for name in dict.fromkeys(args.names or shipped.NAMES[:1])]
    return call("exploring.explore", args)


def add_export(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    run = f"a run directory, such as runs/shapes_attention, or {PUBLISHED}"
    flag("run", type=run_path, metavar="RUN", help=run)
    folder = "the folder to write: the prediction as a program, the parameters, and export.json"
    flag("folder", type=path, metavar="FOLDER", help=folder)
    platform = "also write a program for this platform, such as tpu, with its kernels"
    flag("--platform", action="append", default=[], metavar="PLATFORM", help=platform)
    flag("--rows", type=int, default=1, help="rows that such a program takes (default: 1)")
    weights = "return the attention weights of a language model or of a published model, too"
    flag("--weights", action="store_true", help=weights)
    add_allow(parser)


def run_export(args: argparse.Namespace) -> list[Path]:
    start(args.run)
    from flax_attn.experiment.exporting import export
    from flax_attn.experiment.loading import load
    from flax_attn.tasks.requests import warn

    loaded = load(args.run, warn, allow=tuple(args.allow))
    return [export(loaded, args.folder, args.platform, args.rows, args.weights)]


def add_page(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a page that is served."""
    port = "the port of the page (default: the first free one from 8600 on)"
    parser.add_argument("--port", type=int, help=port)
    no_open = "print the address of the page, and open no browser"
    parser.add_argument("--no-open", dest="open", action="store_false", help=no_open)


def add_allow(parser: argparse.ArgumentParser) -> None:
    """Adds the flag for modules of the user's own."""
    allow = "a module of your own that the run may import"
    parser.add_argument("--allow", action="append", default=[], metavar="MODULE", help=allow)


def start(*runs: Path) -> None:
    """Starts JAX for runs, whose paths are checked before: JAX takes seconds."""
    from flax_attn.published import is_published
    from flax_attn.runs.directory import read_config

    for directory in runs:
        if not is_published(directory):
            read_config(directory)
    from flax_attn.commands.training import prepare_jax

    prepare_jax()


def call(name: str, args: argparse.Namespace) -> list[Path] | None:
    """Calls a function of `flax_attn.commands`, `module.function`, imported when it is called."""
    if args.command not in STARTERS:
        start(*(args.runs if hasattr(args, "runs") else [args.run]))
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"flax_attn.commands.{module}"), function)(args)


COMMANDS: dict[str, tuple[Callable[..., None], str | Command, str]] = {
    "train": (add_train, "training.run_command", "train a config, or resume it"),
    "predict": (add_predict, run_predict, "predict with the model of a run"),
    "evaluate": (add_evaluate, "evaluating.evaluate", "measure a run on a file with labels"),
    "words": (add_words, "predicting.print_words", "list the words that decided for each class"),
    "generate": (add_generate, "generating.generate", "continue a text with a language model"),
    "compare": (add_compare, run_compare, "compare the results of several runs"),
    "report": (add_report, "reporting.report", "write runs, or weights, as one page for a browser"),
    "explore": (add_explore, "exploring.explore", "try a run in the browser"),
    "demo": (add_demo, run_demo, "try trained models in the browser at once"),
    "export": (add_export, run_export, "write a model for programs without flax_attn"),
}
STARTERS = ("train", "report")  # commands that start JAX themselves, if they need it

if __name__ == "__main__":
    sys.exit(main())
