"""The commands that predict, and that list the words which mattered."""

import argparse
from pathlib import Path

from flax_attn import platforms, published
from flax_attn.analysis.tables import wide_console
from flax_attn.experiment import loading
from flax_attn.runs.directory import read_config
from flax_attn.schema import require
from flax_attn.tasks import terminal
from flax_attn.tasks.requests import Load, Request, warn
from flax_attn.tasks.task import Task


def predict(args: argparse.Namespace) -> list[Path]:
    """Predicts what the arguments ask for. Returns the paths of what was written.

    Raises a UsageError for an option or inputs that are not of the task. Nothing is written then.
    """
    request = Request.of(args)
    task, name, load = opened(request)
    is_plain = request.beam is None and request.num_best == 1
    require(task.takes_beam or is_plain, "--beam and --best beside a run on translation alone")
    if request.why:
        check_words(task, name)
    if len(request.texts) > 1 and all(len(text.split()) == 1 for text in request.texts):
        warn(f"note: {len(request.texts)} texts of one word; one of several words stands in quotes")
    if (products := platforms.products()) != "float32":
        warn(
            f"note: float32 is multiplied in {products} on this {platforms.current()}; "
            "JAX_DEFAULT_MATMUL_PRECISION=highest multiplies in float32"
        )
    return task.respond(request, load, wide_console())


def print_words(args: argparse.Namespace) -> list[Path]:
    """Prints which words mattered. Errors are those of `predict`."""
    request = Request.of(args)
    are_some = min(request.num_texts, request.num_words) > 0
    require(are_some, "--texts and --words to be whole numbers above 0")
    task, name, load = opened(request)
    check_words(task, name)
    terminal.words(request, load, wide_console())
    return []


def opened(request: Request) -> tuple[type[Task], str, Load]:
    """Returns the task of a run or a published model, a name for its data, and what loads it."""
    load = lambda: loading.load(request.run, warn, allow=tuple(request.allow))
    if published.is_published(request.run):
        model = load()
        return type(model.task), request.run.name, lambda: model
    config, _ = loading.parted(read_config(request.run), request.allow)
    return config.task, config.values["data"]["name"], load


def check_words(task: type[Task], name: str) -> None:
    """Raises a UsageError for a task without classes of texts."""
    require(task.tells_why, f"a run on texts in classes, such as text_csv, got one on {name}")
