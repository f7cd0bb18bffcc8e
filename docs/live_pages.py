"""Writes the live pages of the site, reports whose model answers in the page, from shipped runs."""

from pathlib import Path

from docs.ship import unpacked
from flax_attn import tasks
from flax_attn.explore.showing import page_of

FOLDER = Path(__file__).parent / "live"
# the runs of `docs.ship` by the names of the pages, which lessons link to
PAGES = {
    "dates": "dates",
    "induction": "induction",
    "names": "names",
    "series_input_attention": "series",
    "shapes_attention": "shapes",
}


def write() -> None:
    """Writes all live pages into `docs/live`."""
    FOLDER.mkdir(exist_ok=True)
    for name, run in PAGES.items():
        with unpacked(run) as path:
            page = page_of(tasks.read_runs([path]))
        (FOLDER / f"{name}.html").write_text(page, encoding="utf-8")
