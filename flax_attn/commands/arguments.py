"""The commands and their arguments."""

import argparse
from pathlib import Path
from typing import NoReturn

from flax_attn.errors import UsageError


def make_parser(description: str | None, version: str) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="flax-attn", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"flax-attn {version}")
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
    manual_dir = "a folder with one folder for each data set (default: data sets are downloaded)"
    train.add_argument("--manual_dir", type=Path, help=manual_dir)
    debug = "end at the first number that is not finite, and say where it arose"
    train.add_argument("--debug_nans", action="store_true", help=debug)
    joins = "join the other processes of the run: docs/scale-out.md"
    train.add_argument("--distributed", action="store_true", help=joins)
    sequence = "the number of devices that share each sequence, for a Transformer (default: 1)"
    train.add_argument("--sequence", type=int, default=1, help=sequence)
    timeout = "how many seconds a process waits for the others (default: 300)"
    train.add_argument("--timeout", type=int, default=300, help=timeout)
    train.epilog = "Any key of the config is a flag: --num_epochs=3, --model.features=32."


def add_predicting(predict: argparse.ArgumentParser) -> None:
    """The arguments of `predict`."""
    run = "a run directory, such as runs/shapes_attention"
    predict.add_argument("run", type=Path, metavar="RUN", help=run)
    text = 'a text to classify, translate or continue, such as "The final starts next week."'
    predict.add_argument("text", nargs="*", help=text)
    source = "signals (.npy, .csv), a text in each line, images (.png, IDX)"
    predict.add_argument("--input", type=Path, help=source)
    output = "the file for predictions of signals, .npy or .csv (default: INPUT with "
    output += ".predictions), or for translations (default: printed)"
    predict.add_argument("--output", type=Path, help=output)
    figure = "also draw the predictions, and what the model attends to, into this file"
    predict.add_argument("--figure", type=Path, help=figure)
    as_json = "print classes or translations as JSON, with the attention"
    predict.add_argument("--json", action="store_true", help=as_json)
    beam = "the beam of the search for translations (default: that of the run; 1 is greedy)"
    predict.add_argument("--beam", type=int, help=beam)
    best = "the number of translations to print for each text (default: 1)"
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
    temperature = "the lower, the more probable the tokens; 0: the most probable (default: 0.8)"
    generate.add_argument("--temperature", type=float, default=0.8, help=temperature)
    top_k = "the number of most probable tokens to choose among; 0 for all (default: 40)"
    generate.add_argument("--top-k", type=int, default=40, help=top_k)
    seed = "the same seed gives the same text (default: 0)"
    generate.add_argument("--seed", type=int, default=0, help=seed)
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
    no_model = "leave out the trained models, which otherwise answer in the page"
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
