"""The command that predicts."""

from pathlib import Path

from rich.console import Console

from flax_attn import platforms
from flax_attn.errors import UsageError
from flax_attn.experiment import loading
from flax_attn.fields import check_number
from flax_attn.kinds import ALL
from flax_attn.kinds.requests import Request, warn
from flax_attn.kinds.task import Task
from flax_attn.types import JsonObject


def predict(request: Request, console: Console) -> list[Path]:
    """Answers a request. Returns the paths of what was written.

    Raises:
        UsageError: no run, an option that is not for its kind of task, inputs that are not of its
            kind, or a place that cannot be written. Nothing is written then.
    """
    config, _ = loading.read_values(request.run, request.allow)
    if not config.kind.takes_beam and (request.beam is not None or request.num_best != 1):
        raise UsageError("expected --beam and --best for a run on translation alone")
    if request.why:
        check_why(config.kind, config.values)
    if not config.kind.in_terminal:
        *names, last = [kind.name for kind in ALL if kind.in_terminal]
        raise UsageError(
            f"expected a run on {', '.join(names)} or {last}, got one on "
            f"{config.values['data']['name']}"
        )
    if (products := platforms.products()) != "float32":
        warn(
            f"note: float32 is multiplied in {products} on this {platforms.current()}; "
            "JAX_DEFAULT_MATMUL_PRECISION=highest multiplies in float32"
        )
    load = lambda: loading.load(request.run, warn, allow=request.allow)
    return config.kind.respond(request, load, console)


def tell_words(request: Request, console: Console) -> None:
    """Prints which words mattered. Errors are those of `predict`."""
    config, _ = loading.read_values(request.run, request.allow)
    check_why(config.kind, config.values)
    for name, number in (("--texts", request.num_texts), ("--words", request.num_words)):
        check_number(name, number)
    load = lambda: loading.load(request.run, warn, allow=request.allow)
    config.kind.tell_words(request, load, console)


def check_why(kind: type[Task], values: JsonObject) -> None:
    """Raises a UsageError for a kind of task that does not say which words mattered."""
    if not kind.tells_why:
        raise UsageError(
            f"expected a run on texts in classes, such as text_csv, to say which words mattered, "
            f"got one on {values['data']['name']}"
        )
