"""Runs on one page: what they hold, and their models, which answer in it. Also any weights."""

import html
from collections.abc import Iterable
from pathlib import Path
from typing import overload

from flax_attn import schema, tasks
from flax_attn.errors import UsageError, check_no_result, one_line
from flax_attn.experiment.loading import Model, Run, load_run
from flax_attn.explore.live import live
from flax_attn.files import expanded
from flax_attn.page.report import report, with_own_names
from flax_attn.page.saving import write
from flax_attn.page.weights import are_weights, page_of_weights
from flax_attn.runs import shipped
from flax_attn.runs.reading import Record
from flax_attn.types import JsonObject, Mask, Tokens, UserInput, Weights

HEIGHT = 720  # pixels of a page in a notebook


class Page:
    """A page that a notebook shows in a frame of its own, without kernel and network.

    Attributes:
        html: the whole page.
        height: of the frame, in pixels.
        saves: whether the frame lets the page save pictures as files.
    """

    def __init__(self, text: str, height: int = HEIGHT, saves: bool = False):
        self.html, self.height, self.saves = text, height, saves

    def save(self, path: str | Path) -> Path:
        """Writes the page into a file, whole, and returns its path.

        Raises:
            UsageError: a name without .html, or a file that cannot be written.
        """
        file = expanded(path)
        write(self.html, file, "a page")
        return file

    def _repr_html_(self) -> str:
        """Returns the frame, which runs the script of the page and reaches nothing outside it."""
        sandbox = "allow-scripts allow-downloads" if self.saves else "allow-scripts"
        return (
            f'<iframe sandbox="{sandbox}" title="report" width="100%" height="{self.height}" '
            f'style="border: 0" srcdoc="{html.escape(self.html)}"></iframe>'
        )


@overload
def show(*runs: str | Path | Run | Model, model: bool = True, height: int = HEIGHT) -> Page: ...


@overload
def show(
    weights: Weights,
    /,
    *,
    rows: Tokens | None = None,
    columns: Tokens | None = None,
    mask: Mask | None = None,
    title: str = "",
    height: int = HEIGHT,
) -> Page: ...


@overload
def show(
    weights: Weights,
    rows: Tokens | None,
    columns: Tokens | None = None,
    /,
    *,
    mask: Mask | None = None,
    title: str = "",
    height: int = HEIGHT,
) -> Page: ...


def show(
    *runs: UserInput,
    rows: UserInput = None,
    columns: UserInput = None,
    mask: UserInput = None,
    title: str = "",
    model: bool = True,
    height: int = HEIGHT,
) -> Page:
    """Shows runs, or attention weights of any model, as a page in a notebook.

    `show(run)` takes run directories, or runs that are loaded. `show(weights, rows, columns)` takes
    arrays of JAX, PyTorch, Keras or NumPy. `show(...).save("page.html")` writes the page.

    Args:
        runs: run directories, or runs that are loaded. Or weights `(q, k)`, `(heads, q, k)` or
            `(layers, heads, q, k)`; or a dict of layers by name, or a list of layers, each
            `(q, k)`, `(heads, q, k)` or `(1, heads, q, k)`.
        rows: `(q,)` tokens of the queries; their indices where None.
        columns: `(k,)` tokens of the keys; where None, `rows` if there are as many, else indices.
        mask: boolean, broadcasts to the weights; True = may be attended. Where None, keys are taken
            for masked to which every head gives exactly 0: all behind the query, or those that
            no query attends to.
        title: the name of a page of weights.
        model: whether the trained models of runs are in the page and answer there.
        height: of the frame, in pixels.

    Raises:
        UsageError: a run that is not finished or is damaged; weights of another shape or infinite;
            tokens or a mask that do not fit them.
    """
    schema.convert("height", height, schema.PositiveInt)
    schema.convert("model", model, bool)
    beside = {"rows": rows, "columns": columns, "mask": mask}
    if runs:
        check_no_result("weights", runs[0])
    if runs and are_weights(runs[0]):
        weights, *tokens = runs
        beside |= dict(zip(("rows", "columns"), tokens, strict=False))
        return Page(page_of_weights(weights, **beside, title=title), height, saves=True)
    if not runs or title or any(value is not None for value in beside.values()):
        raise UsageError(
            "expected a run, such as show('runs/shapes_attention'), or weights with rows, columns, "
            "mask and title"
        )
    paths = [
        run.path if isinstance(run, Model) else shipped.place(expanded(run, "a run"))
        for run in runs
    ]
    return Page(page_of(tasks.read_runs(paths), model), height)


def page_of(records: list[Record], model: bool = True) -> str:
    """Returns the page of some runs, with their models where they can answer in it."""
    records = with_own_names(records)
    if not model:
        return report(records)
    models, notes = living(records)
    return report(records, models, notes=notes)


def living(records: Iterable[Record]) -> tuple[dict[str, JsonObject], dict[str, str]]:
    """Returns models of runs by name as JSON, and a line on each that cannot answer in a page."""
    models, notes = {}, {}
    for record in records:
        try:
            models[record.name] = live(load_run(record.path))
        except UsageError as error:
            notes[record.name] = f"This model does not answer in a page, because {one_line(error)}."
    return models, notes
