"""Runs on one page: what they hold, and their models, which answer in it."""

import html
from collections.abc import Iterable
from pathlib import Path

from flax_attn import kinds
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.loading import Model, Run, of_record
from flax_attn.explore.live import live
from flax_attn.fields import check_number
from flax_attn.files import expanded
from flax_attn.page.report import report, with_own_names
from flax_attn.runs import shipped
from flax_attn.runs.reading import Record
from flax_attn.types import JsonObject

HEIGHT = 720  # pixels of a page in a notebook


class Page:
    """A page that a notebook shows in a frame of its own, without kernel and network.

    Attributes:
        html: the whole page.
        height: of the frame, in pixels.
    """

    def __init__(self, text: str, height: int = HEIGHT):
        self.html, self.height = text, height

    def _repr_html_(self) -> str:
        """The frame. It may run the script of the page, and reach nothing outside it."""
        return (
            f'<iframe sandbox="allow-scripts" title="report" width="100%" height="{self.height}" '
            f'style="border: 0" srcdoc="{html.escape(self.html)}"></iframe>'
        )


def show(*runs: str | Path | Run | Model, model: bool = True, height: int = HEIGHT) -> Page:
    """Runs as a page in a notebook.

    Args:
        runs: run directories, or runs that are loaded.
        model: whether the trained models are in the page and answer there.
        height: of the frame, in pixels.

    Raises:
        UsageError: a run that is not finished or is damaged.
    """
    if not runs:
        raise UsageError("expected a run, such as show('runs/shapes_attention'), got none")
    check_number("height", height)
    paths = [
        own.path if isinstance(own, Model) else shipped.place(expanded(own, "a run"))
        for own in runs
    ]
    return Page(page_of([kinds.read(path) for path in paths], model), height)


def page_of(records: list[Record], model: bool = True) -> str:
    """The page of some runs, with their models where they can answer in it.

    Raises:
        UsageError: a run whose model or data are damaged.
    """
    records = with_own_names(records)
    if not model:
        return report(records)
    models, notes = living(records)
    return report(records, models, notes=notes)


def living(records: Iterable[Record]) -> tuple[dict[str, JsonObject], dict[str, str]]:
    """Of runs by name their models as JSON, and a line on each that cannot answer in a page."""
    models, notes = {}, {}
    for record in records:
        try:
            models[record.name] = live(of_record(record))
        except UsageError as error:
            notes[record.name] = f"The model does not answer in this page: {one_line(error)}."
    return models, notes
