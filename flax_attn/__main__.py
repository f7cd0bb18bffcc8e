"""The command `flax-attn`, also `python -m flax_attn`: training, predictions, texts, comparison."""

import argparse
import functools
import io
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import flax_attn
from flax_attn import config_files
from flax_attn.errors import (
    LONGEST,
    UsageError,
    cannot_print,
    escaped,
    one_line,
    shortened,
    unknown,
)
from flax_attn.files import check_here, check_no_address
from flax_attn.runs import shipped
from flax_attn.types import Options, UserInput

PUBLISHED = "the folder of a published model, as transformers writes it"
TIMEOUT = 300  # seconds
# argparse's words, and ours
ARGPARSE = {
    "ignored explicit argument": "expected no value, got",
    "invalid int value:": "expected a whole number, got",
    "invalid float value:": "expected a number, such as 0.8, got",
}
LEAST_MEMORY = 2_000_000_000  # bytes, in which a small run trains on two cores


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    The code is 0, or 2 for bad input, with one line on standard error.
    """
    if sys.stderr is None:  # print would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open as long as the program
    if "MPLBACKEND" in os.environ:  # matplotlib would look for it, and no window is opened
        os.environ["MPLBACKEND"] = "agg"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show a character shows a question mark
            stream.reconfigure(errors="replace")
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
        commands = {
            "train": run_train,
            "predict": run_predict,
            "words": run_words,
            "generate": run_generate,
            "compare": run_compare,
            "report": run_report,
            "explore": run_explore,
            "export": run_export,
            "demo": run_demo,
        }
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
        if not error.filename:
            cannot_print()  # if so, leaves what waits
        what = error.filename or "the output"
        return complain(f"cannot read or write {what} ({error.strerror or one_line(error)})")
    except RecursionError:
        return complain("expected files that are not nested so deep; restore them")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = one_line(error)[:120]
        return complain(f"out of memory ({reason}); lower batch_size, num_seeds or model.features")
    except KeyboardInterrupt:
        say_last("stopped")
        return 130


def complain(message: str) -> int:
    """Prints the one line of an error and returns the exit code for it.

    Of a line that is too long, the beginning and the end are printed: what to do is at the end.
    """
    say_last(f"error: {shortened(escaped(message), LONGEST)}")
    return 2


def say_last(line: str) -> None:
    """Prints a line on standard error, where that can be written. The exit code tells, too."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = None  # to write the rest of it at the end would change the code


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
    if arguments[:1] == ["train"] and arguments[2:] in (["--help"], ["-h"]):
        from flax_attn.experiment.config import help_of

        print("keys, with their values; flax-attn train --help lists the other flags")
        print(help_of(arguments[1].removeprefix("--config="), shutil.get_terminal_size().columns))
        raise SystemExit(0)
    for argument in arguments:
        if "\0" in argument:
            refuse(f"expected arguments without NUL characters, got {argument[:60]!r}")
    try:
        args, rest = make_parser(__doc__, flax_attn.__version__).parse_known_args(arguments)
    except SystemExit:  # --help and --version end here
        print(end="", flush=True)
        raise
    if args.command is None and not rest:
        refuse("the following arguments are required: command")
    if args.command == "train":
        args.rest = rest
        return args
    if rest and (args.command != "predict" or any(arg.startswith("-") for arg in rest)):
        command = f"flax-attn {args.command}" if args.command else "flax-attn"
        wrong = [arg for arg in rest if arg.startswith("-")] or rest
        refuse(f"unrecognized arguments: {shortened(' '.join(wrong))}", command)
    if rest:
        args.text += rest
    if "run" in args:
        args.run = shipped.place(args.run)
    if "runs" in args:
        args.runs = [shipped.place(run) for run in args.runs]
    return args


def check_text(text: str, what: str, advice: str) -> None:
    """Raises a UsageError for an argument with bytes that are not UTF-8, or for its locale not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"expected {what} in UTF-8, got {text[-60:]!a}; {advice}") from error


def run_train(args: argparse.Namespace) -> int:
    from flax_attn.commands.training import run_command

    is_name = bool(args.rest) and not args.rest[0].startswith("-")
    names, rest = args.config + args.rest[:is_name], args.rest[is_name:]
    folder = args.workdir or Path("runs")
    for argument in (*rest, str(folder.absolute())):
        check_text(argument, "arguments", "rename, or set LC_ALL=C.UTF-8")
    check_memory()
    train = "flax-attn train"
    timeout = TIMEOUT if args.timeout is None else args.timeout
    if timeout < 1:
        refuse(f"expected --timeout of at least 1 second, got {timeout}", train)
    if args.timeout is not None and not args.distributed:
        refuse("expected --timeout beside --distributed alone", train)
    wait = timeout if args.distributed else None
    if args.explore and args.distributed:
        refuse("expected --explore in one process, got --distributed, too", train)
    options = {"debug_nans": args.debug_nans, "sequence": args.sequence}
    for flag, is_set in (("--port", args.port is not None), ("--no-open", not args.open)):
        if is_set and not args.explore:
            refuse(f"expected {flag} beside --explore alone", train)
    options |= {"explore": args.open if args.explore else None, "port": args.port}
    return run_command(names, rest, args.workdir, args.manual_dir, options, wait)


def check_run(run: Path, takes_published: bool = False) -> None:
    """Raises a UsageError for what is no run, before JAX is there, so that it is told at once."""
    from flax_attn.published import is_published
    from flax_attn.runs.directory import read_config

    check_memory()
    check_text(str(run.absolute()), "the path of a run", "rename it, or set LC_ALL=C.UTF-8")
    if not (takes_published and is_published(run)):
        read_config(run)


def run_predict(args: argparse.Namespace) -> int:
    check_run(args.run, takes_published=True)
    for text in args.text:
        check_text(text, "a text", "set the terminal to UTF-8, or give a file")
        if Path(text).suffix and os.path.isfile(text):
            advice = "give it by --input"
            if args.input is not None:
                advice = "give one --input, as a folder of pictures, or predict file by file"
            raise UsageError(f"expected a text, got the file {text}; {advice}")
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.predicting import predict
    from flax_attn.kinds.requests import Request

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
        args.why,
    )
    report(predict(request, wide_console()), args.json)
    return 0


def run_words(args: argparse.Namespace) -> int:
    check_run(args.run, takes_published=True)
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.predicting import tell_words
    from flax_attn.files import expanded
    from flax_attn.kinds.requests import Request

    folder = None if args.manual_dir is None else expanded(args.manual_dir)
    request = Request(
        args.run,
        [],
        args.input,
        as_json=args.json,
        allow=tuple(args.allow),
        manual_dir=folder,
        num_texts=args.texts,
        num_words=args.words,
    )
    tell_words(request, wide_console())
    return 0


def run_generate(args: argparse.Namespace) -> int:
    check_text(args.prompt, "a prompt", "set the terminal to UTF-8")
    check_run(args.run, takes_published=True)
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
    for run in args.runs:
        check_run(run, takes_published=True)
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.commands.exploring import explore

    explore(args)
    return 0


def run_export(args: argparse.Namespace) -> int:
    from flax_attn.runs.directory import read_config

    check_memory()
    for path in (args.run, args.folder):
        check_text(str(path.absolute()), "a path", "rename it, or set LC_ALL=C.UTF-8")
    read_config(args.run)  # before jax is there, so that a wrong path is told at once
    from flax_attn.commands.training import prepare_jax

    prepare_jax()
    from flax_attn.experiment.exporting import check_folder, export
    from flax_attn.experiment.loading import load
    from flax_attn.kinds.requests import warn

    check_folder(args.folder)
    run = load(args.run, warn, allow=tuple(args.allow))
    report([export(run, args.folder, args.platform, args.rows)])
    return 0


def run_demo(args: argparse.Namespace) -> int:
    for name in args.names:
        if name not in shipped.NAMES:
            opens = f", or flax-attn explore {escaped(name)}" if Path(name).is_dir() else ""
            others = [demo for demo in shipped.NAMES if demo not in args.names]
            raise UsageError(unknown("demo", name, others or shipped.NAMES) + opens)
    args.runs = [shipped.unpacked(name) for name in dict.fromkeys(args.names or shipped.NAMES)]
    return run_explore(args)


def report(paths: list[Path], as_json: bool = False) -> None:
    """Says what was written, and beside JSON where it is not in the way."""
    for path in paths:
        print(f"wrote {escaped(str(path))}", file=sys.stderr if as_json else sys.stdout)


def run_compare(args: argparse.Namespace) -> int:
    from flax_attn.analysis.tables import wide_console
    from flax_attn.commands.comparing import compare

    report(compare(args.runs, args.output, wide_console()))
    return 0


def make_parser(description: str | None, version: str) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="flax-attn", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"flax-attn {version}")
    commands = parser.add_subparsers(dest="command")
    usage = "flax-attn train NAME[:quick] [--workdir DIR] [--manual_dir DIR] [--KEY=VALUE ...]"
    options = {"help": "train a config, or resume it", "allow_abbrev": False, "usage": usage}
    train = commands.add_parser("train", **options)
    predict = commands.add_parser("predict", help="predict with the model of a run")
    words = commands.add_parser("words", help="list the words that decided for each class")
    generate = commands.add_parser("generate", help="continue a text with a language model")
    compare = commands.add_parser("compare", help="compare the results of several runs")
    add_training(train)
    add_predicting(predict)
    add_words(words)
    add_generating(generate)
    compare.add_argument("runs", type=path, nargs="+", metavar="RUN")
    output = "directory for the figures (default: comparison)"
    compare.add_argument("--output", type=path, default=Path("comparison"), help=output)
    reporting = commands.add_parser(
        "report", help="write runs, or weights, as one page for a browser"
    )
    add_reporting(reporting)
    explore = commands.add_parser("explore", help="try a run in the browser")
    add_exploring(explore)
    demo = commands.add_parser("demo", help="try trained models in the browser at once")
    add_demo(demo)
    exporting = commands.add_parser("export", help="write a run for programs without flax_attn")
    add_exporting(exporting)
    for command in (parser, *commands.choices.values()):
        # argparse's own prints its usage before the line
        command.error = functools.partial(refuse, command=command.prog)
    return parser


class Once(argparse.Action):
    """Stores the value of a flag that is refused twice, where one might think it takes several."""

    was_set = False

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: UserInput,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None and self.was_set:
            raise UsageError(f"expected {option_string} once, got it twice; leave one out")
        self.was_set = True
        setattr(namespace, self.dest, values)


def add_training(train: argparse.ArgumentParser) -> None:
    """The flags of `train`; the keys of the config come to them."""
    # as `train.py` has it
    train.add_argument("--config", action="append", default=[], help=argparse.SUPPRESS)
    workdir = "the run directory (default: runs/NAME, or runs/NAME-quick)"
    train.add_argument("--workdir", type=path, help=workdir)
    manual_dir = "a folder with one folder for each data set (default: data sets are downloaded)"
    train.add_argument("--manual_dir", type=data_folder, help=manual_dir)
    debug = "end at the first number that is not finite, and say where it arose"
    train.add_argument("--debug_nans", action="store_true", help=debug)
    joins = "join the other processes of the run: docs/scale-out.md"
    train.add_argument("--distributed", action="store_true", help=joins)
    explore = "open a page in the browser that follows the training, and asks the model"
    train.add_argument("--explore", action="store_true", help=explore)
    add_page(train)
    sequence = "the number of devices that share each sequence, for a Transformer (default: 1)"
    train.add_argument("--sequence", type=int, default=1, help=sequence)
    timeout = f"how many seconds a process waits for the others (default: {TIMEOUT})"
    train.add_argument("--timeout", type=int, help=timeout)
    train.epilog = "Any key of the config is a flag: --num_epochs=3, --model.features=32."
    without_configs = train.format_help

    def format_help() -> str:  # the configs are read where help is asked for
        width = shutil.get_terminal_size().columns - 2
        return f"{without_configs()}\nconfigs:\n{config_files.listed(width)}\n"

    train.format_help = format_help


def add_predicting(predict: argparse.ArgumentParser) -> None:
    """The arguments of `predict`."""
    run = f"a run directory, such as runs/shapes_attention, or {PUBLISHED}"
    predict.add_argument("run", type=path, metavar="RUN", help=run)
    text = 'a text to classify, translate or continue, such as "The final starts next week."'
    predict.add_argument("text", nargs="*", default=[], help=text)
    source = (
        "signals (.npy, .csv), a table with texts (.csv, .tsv), a text in each line of another "
    )
    source += "file, or images (.png, a folder, IDX)"
    predict.add_argument("--input", type=path, action=Once, help=source)
    output = "the file for predictions of signals, .npy or .csv, or for a table with predictions "
    output += "(default for both: INPUT with .predictions), or for translations (default: printed)"
    predict.add_argument("--output", type=path, help=output)
    figure = "also draw the predictions, and what the model attends to, into this file"
    predict.add_argument("--figure", type=path, help=figure)
    as_json = "print classes or translations as JSON, with the attention"
    predict.add_argument("--json", action="store_true", help=as_json)
    why = "also say which words mattered: what the class loses without each"
    predict.add_argument("--why", action="store_true", help=why)
    beam = "the beam of the search for translations (default: that of the run; 1 is greedy)"
    predict.add_argument("--beam", type=int, help=beam)
    best = "the number of translations to print for each text (default: 1)"
    predict.add_argument("--best", type=int, default=1, help=best)
    add_allow(predict)


def add_words(words: argparse.ArgumentParser) -> None:
    """The arguments of `words`."""
    run = f"a run on texts in classes, or {PUBLISHED}"
    words.add_argument("run", type=path, metavar="RUN", help=run)
    source = "a table with texts (.csv, .tsv), or a text in each line (default: the test split)"
    words.add_argument("--input", type=path, action=Once, help=source)
    manual_dir = "the folder that the data set of the run was read from"
    words.add_argument("--manual_dir", type=data_folder, help=manual_dir)
    texts = "the largest number of texts, evenly from all (default: 500)"
    words.add_argument("--texts", type=int, default=500, help=texts)
    most = "the number of words for each class (default: 10)"
    words.add_argument("--words", type=int, default=10, help=most)
    words.add_argument("--json", action="store_true", help="print JSON")
    add_allow(words)


def add_generating(generate: argparse.ArgumentParser) -> None:
    """The arguments of `generate`."""
    run = f"a run directory, such as runs/shakespeare_char, or {PUBLISHED}"
    generate.add_argument("run", type=path, metavar="RUN", help=run)
    prompt = 'the beginning of the text, such as "ROMEO:" (default: none)'
    generate.add_argument("prompt", nargs="?", default="", metavar="PROMPT", help=prompt)
    length = "the number of tokens to write (default: 500)"
    generate.add_argument("--length", type=int, default=500, help=length)
    temperature = "the lower, the more probable the tokens; 0: the most probable (default: 0.8)"
    generate.add_argument("--temperature", type=float, default=0.8, help=temperature)
    top_k = "the number of most probable tokens to choose among; 0 for all (default: 40)"
    generate.add_argument("--top-k", type=int, default=40, help=top_k)
    seed = "the same seed gives the same text (default: 0)"
    generate.add_argument("--seed", type=int, default=0, help=seed)
    samples = "the number of texts (default: 1)"
    generate.add_argument("--samples", type=int, default=1, help=samples)
    figure = "also draw what the last token looks at into this file"
    generate.add_argument("--figure", type=path, help=figure)
    add_allow(generate)


def add_reporting(reporting: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    runs = "run directories, such as runs/shapes_attention, or a file of attention weights (.npz)"
    reporting.add_argument("runs", type=path, nargs="+", metavar="RUN", help=runs)
    output = "the file to write, or - for the terminal (default: report.html)"
    reporting.add_argument("-o", "--output", type=path, default=Path("report.html"), help=output)
    no_model = "leave out the trained models, which otherwise answer in the page"
    reporting.add_argument("--no-model", dest="model", action="store_false", help=no_model)


def add_exploring(explore: argparse.ArgumentParser) -> None:
    """The arguments of `explore`."""
    runs = "a run directory, or two; two of one kind answer the same input. "
    runs += f"Or {PUBLISHED}"
    explore.add_argument("runs", type=path, nargs="+", metavar="RUN", help=runs)
    add_page(explore)
    add_allow(explore)


def add_demo(demo: argparse.ArgumentParser) -> None:
    """The arguments of `demo`, which explores runs that come with the package."""
    which = f"{' or '.join(shipped.NAMES)} (default: both)"
    demo.add_argument("names", nargs="*", metavar="NAME", help=which)
    demo.set_defaults(allow=[])
    add_page(demo)


def add_exporting(exporting: argparse.ArgumentParser) -> None:
    """The arguments of `export`."""
    run = "a run directory, such as runs/shapes_attention"
    exporting.add_argument("run", type=path, metavar="RUN", help=run)
    folder = "the folder to write: the prediction as a program, the parameters, and export.json"
    exporting.add_argument("folder", type=path, metavar="FOLDER", help=folder)
    platform = "also write a program for this platform, such as tpu, with its kernels"
    options: Options = {"action": "append", "default": [], "metavar": "PLATFORM"}
    exporting.add_argument("--platform", help=platform, **options)
    rows = "the number of rows that such a program takes (default: 1)"
    exporting.add_argument("--rows", type=int, default=1, help=rows)
    add_allow(exporting)


def add_page(command: argparse.ArgumentParser) -> None:
    """Adds the flags of a page that is served."""
    port = "the port of the page (default: the first free one from 8600 on)"
    command.add_argument("--port", type=port_number, help=port)
    no_open = "print the address of the page, and open no browser"
    command.add_argument("--no-open", dest="open", action="store_false", help=no_open)


def add_allow(command: argparse.ArgumentParser) -> None:
    """Adds the flag for modules of the user's own."""
    allow = "a module of your own that the run may import"
    options: Options = {"action": "append", "type": module, "default": [], "metavar": "MODULE"}
    command.add_argument("--allow", help=allow, **options)


def port_number(text: str) -> int:
    """A port. Raises an ArgumentTypeError for what can be none."""
    if not (text.isascii() and text.isdecimal() and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"expected 0 to 65535, got {shortened(text)!r}")
    return int(text)


def module(name: str) -> str:
    """The name of a module. Raises an ArgumentTypeError for what can be none."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise argparse.ArgumentTypeError(
            f"expected a module such as my_models, got {shortened(name)!r}"
        )
    return name


def path(text: str) -> Path:
    """A path. Raises an ArgumentTypeError for an empty text, which would name the folder here, and
    for an address.
    """
    if not text:
        raise argparse.ArgumentTypeError(
            "expected a path, got an empty text (is a variable empty?)"
        )
    try:
        check_no_address(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def data_folder(text: str) -> Path:
    """The path of a folder of data sets. Raises an ArgumentTypeError for a file."""
    folder = path(text)
    if os.path.isfile(folder):
        raise argparse.ArgumentTypeError(f"expected a folder, got the file {text}")
    return folder


def refuse(message: str, command: str = "flax-attn") -> NoReturn:
    for words, ours in ARGPARSE.items():
        message = message.replace(words, ours, 1)
    raise UsageError(f"{message}; see {command} --help")


if __name__ == "__main__":
    sys.exit(main())
