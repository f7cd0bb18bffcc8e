"""What `flax-attn explore` opens: a page in the browser that asks a run."""

import argparse
import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flax_attn import published, tasks
from flax_attn.errors import escaped
from flax_attn.experiment import loading
from flax_attn.experiment.loading import Run
from flax_attn.explore.answers import Answers
from flax_attn.explore.server import Explorer, open_explorer
from flax_attn.page.report import page_of_published, report
from flax_attn.runs.reading import Record
from flax_attn.schema import require
from flax_attn.tasks.requests import warn

if TYPE_CHECKING:
    from flax_attn.explore.published import PublishedAnswers


def explore(args: argparse.Namespace) -> None:
    """Serves the page until Ctrl-C, which is raised as KeyboardInterrupt."""
    are_published = any(published.is_published(path) for path in args.runs)
    fit = len(args.runs) <= (1 if are_published else 2)
    require(fit, f"one run, two runs or one published model, got {len(args.runs)} paths")
    if are_published:
        return explore_published(args.runs[0], args.port, args.open)
    records = tasks.read_runs(args.runs)
    runs = [loading.load_run(record.path, warn, args.allow) for record in records]
    check_inputs(runs)
    explore_runs(records, runs, args.port, args.open)


def explore_runs(records: list[Record], runs: list[Run], port: int | None, opens: bool) -> None:
    """Serves the page of runs until Ctrl-C. `records` are what their directories hold."""
    names = " and ".join(record.name for record in records)
    serve(report(records, mode="explore"), [Answers(run) for run in runs], names, port, opens)


def explore_published(path: Path, port: int | None, opens: bool) -> None:
    """Serves the page of a published model until Ctrl-C."""
    from flax_attn.explore.published import PublishedAnswers, page_data  # with its families

    run = loading.load(path, warn)
    shown = page_data(run)
    serve(page_of_published(shown), [PublishedAnswers(run)], shown["name"], port, opens)


def serve(
    page: str,
    answers: "Sequence[Answers | PublishedAnswers]",
    names: str,
    port: int | None,
    opens: bool,
) -> None:
    """Serves a page until Ctrl-C, and compiles meanwhile what it asks first."""
    with open_explorer(port, page, answers) as server:
        for one in answers:
            server.pool.submit(one.warm)
        announce(server, names, opens)
        server.serve_forever()


def announce(server: Explorer, names: str, opens: bool) -> None:
    """Prints the address of a page, and opens it in a browser where one is wanted."""
    print(f"explore {escaped(names)} at {server.url} (Ctrl-C ends it)", flush=True)
    if opens and has_screen():
        # a browser may hold its caller up
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()


def check_inputs(runs: list[Run]) -> None:
    """Raises a UsageError for two runs on one kind of input whose inputs have other sizes."""
    shapes = [getattr(run.task.inputs, "shape", None) for run in runs]
    if len({run.task.name.partition("-")[0] for run in runs}) == 1:
        got = " and ".join(map(str, shapes))
        require(len(set(shapes)) == 1, f"two runs that take the same input, got {got}")


def has_screen() -> bool:
    """Returns whether a browser would have a window. Else it would take the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
