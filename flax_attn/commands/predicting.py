"""The command that predicts."""

from pathlib import Path

from rich.console import Console

from flax_attn import platforms, published, schema
from flax_attn.errors import UsageError
from flax_attn.experiment import loading
from flax_attn.files import check_data_folder
from flax_attn.kinds import ALL
from flax_attn.kinds.requests import Load, Request, warn
from flax_attn.kinds.task import Task


def predict(request: Request, console: Console) -> list[Path]:
    """Answers a request. Returns the paths of what was written.

    Raises:
        UsageError: no run, an option that is not for its kind of task, inputs that are not of its
            kind, or a place that cannot be written. Nothing is written then.
    """
    kind, of, load = opened(request)
    if not kind.takes_beam and (request.beam is not None or request.num_best != 1):
        raise UsageError(
            "expected no --beam and no --best, which are for a run on translation alone"
        )
    if request.why and not kind.tells_why:
        raise no_words(of)
    if not kind.in_terminal:
        *names, last = [shown.name for shown in ALL if shown.in_terminal]
        raise UsageError(
            f"expected a run on {', '.join(names)} or {last}, got one on {of}; from Python, "
            f"flax_attn.load(run).predict takes arrays"
        )
    if len(request.texts) > 1 and all(len(text.split()) == 1 for text in request.texts):
        warn(f"note: {len(request.texts)} texts of one word; one of several words stands in quotes")
    if (products := platforms.products()) != "float32":
        warn(
            f"note: float32 is multiplied in {products} on this {platforms.current()}; "
            "JAX_DEFAULT_MATMUL_PRECISION=highest multiplies in float32"
        )
    return kind.respond(request, load, console)


def tell_words(request: Request, console: Console) -> None:
    """Prints which words mattered. Errors are those of `predict`."""
    kind, of, load = opened(request)
    if not kind.tells_why:
        raise no_words(of)
    if request.manual_dir is not None and request.source is not None:
        raise UsageError("expected --manual_dir or --input, got both; leave one out")
    check_data_folder("--manual_dir", request.manual_dir)
    for name, number in (("--texts", request.num_texts), ("--words", request.num_words)):
        schema.convert(name, number, schema.PositiveInt)
    kind.tell_words(request, load, console)


def opened(request: Request) -> tuple[type[Task], str, Load]:
    """The kind of a run or a published model, what it is on, and what loads it.

    Raises:
        UsageError: neither.
    """
    load = lambda: loading.load(request.run, warn, allow=request.allow)
    if published.is_published(request.run):
        model = load()
        return type(model.task), request.run.name, lambda: model
    config, _ = loading.read_values(request.run, request.allow)
    return config.kind, config.values["data"]["name"], load


def no_words(of: str) -> UsageError:
    """The error for what does not say which words mattered."""
    return UsageError(
        f"expected a run on texts in classes, such as text_csv, to say which words mattered, "
        f"got one on {of}"
    )
