"""Run directories as one page that needs nothing else."""

import html
import json
from collections.abc import Iterable, Mapping
from string import Template

import numpy as np

from flax_attn.errors import escaped
from flax_attn.page.data import run_data, safe
from flax_attn.page.joining import FOLDER, digest, join
from flax_attn.runs.reading import Record, curve
from flax_attn.types import JsonObject

MAIN, STILL = "main.mjs", "still.mjs"  # the script of runs that can be tried, and of others
VIEWS = "inputs", "targets"  # the folders of what a task is made of
PUBLISHED = "published.mjs"  # the view of models that are no runs
STYLES = ("page.css", "try.css")
# Nothing is loaded but the script and the style of the page. The explorer's page also asks the
# server that sent it; a worker is made from text that the page has.
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
    "script-src {script}; style-src {style}; worker-src blob:; connect-src {server}"
)


def report(
    runs: list[Record],
    live: Mapping[str, JsonObject] | None = None,
    mode: str = "report",
    notes: Mapping[str, str] | None = None,
) -> str:
    """Returns the page of one or several runs, as HTML. Equal runs give equal pages.

    By the name of a run, `live` has its model as JSON, which answers in the page, and `notes` a
    line such as why it does not. In the modes "explore" and "follow" the local server answers, for
    a run that is finished or trains.
    """
    live, notes = live or {}, notes or {}
    is_tried = bool(live) or mode != "report"
    runs = with_own_names(runs)
    shown = [run_data(run, live.get(run.name), notes.get(run.name)) for run in runs]
    script = script_of([(run["input"], run["target"]) for run in shown], is_tried)
    return filled(shown, script, mode, is_tried, title(shown), "\n".join(map(still, runs)))


def page_of_published(shown: JsonObject) -> str:
    """Returns the page of a published model, which the local server answers."""
    why = "This page asks the model with JavaScript, which is off here."
    return page_without_run(shown, [PUBLISHED, MAIN], "explore", why)


def page_without_run(shown: JsonObject, modules: list[str], mode: str, why: str) -> str:
    """Returns the page of what is no run; `why` is shown without JavaScript."""
    title = f"{shown['name']}: {shown['sentence']}"
    without = f"<h2>{written(title)}</h2>\n<p>{why}</p>"
    return filled([shown], join(modules), mode, True, title, without)


def filled(
    shown: list[JsonObject], script: str, mode: str, is_tried: bool, title: str, without: str
) -> str:
    """Returns the page of data; `without` is HTML that is shown without JavaScript."""
    text = json.dumps(safe({"mode": mode, "runs": shown}), allow_nan=False, separators=(",", ":"))
    styles = STYLES if is_tried else STYLES[:1]
    style = "".join((FOLDER / name).read_text(encoding="utf-8") for name in styles)
    server = "'none'" if mode == "report" else "'self'"
    policy = POLICY.format(script=digest(script), style=digest(style), server=server)
    return Template((FOLDER / "page.html").read_text(encoding="utf-8")).substitute(
        policy=policy,
        title=html.escape(escaped(title)),
        style=style,
        still=without,
        data=text.replace("<", "\\u003c"),
        script=script,
    )


def script_of(tasks: Iterable[tuple[str, str]], is_tried: bool) -> str:
    """Joins the script of a page that shows runs of tasks, each an input and a target."""
    parts = {f"{folder}/{name}.mjs" for task in tasks for folder, name in zip(VIEWS, task)}
    return join([*sorted(parts), MAIN if is_tried else STILL])


def with_own_names(runs: list[Record]) -> list[Record]:
    """Returns the runs; those of equal names have their path as a name."""
    names = [run.name for run in runs]
    return [run if names.count(run.name) == 1 else run._replace(name=str(run.path)) for run in runs]


def title(shown: list[JsonObject]) -> str:
    """Returns what the page says, in one line."""
    if len(shown) == 1:
        name = f"Attention in {shown[0]['name']}" if shown[0]["attention"] else shown[0]["name"]
        return escaped(f"{name}, {shown[0]['sentence']}")
    said = (f"{run['name']}: {run['sentence']}" for run in shown)
    return escaped(f"{len(shown)} runs: {'; '.join(said)}")


def still(run: Record) -> str:
    """Returns a run for a browser without JavaScript: its results and one curve."""
    rows = "".join(
        f"<tr><th>{written(name)}</th><td>{metric['mean']:.4g}</td>"
        f"<td>{metric['std']:.2g}</td></tr>"
        for name, metric in run.summary["metrics"].items()
    )
    return (
        f"<h2>{written(run.name)}</h2>\n"
        "<p>This page draws its pictures with JavaScript, which is off here. "
        "These are the results.</p>\n"
        f"{drawn_curve(run)}\n"
        f"<table><tr><th>metric</th><th>mean</th><th>deviation over seeds</th></tr>{rows}</table>"
    )


def drawn_curve(run: Record) -> str:
    """Draws the test metric of a run against the step, as an SVG."""
    steps, values = curve(run.sound_rows, f"test/{run.measured}")
    if len(steps) < 2:
        return ""
    mean = values.mean(axis=0)
    finite = np.isfinite(mean)
    low, high = (float(pick(mean[finite], initial=0)) for pick in (np.min, np.max))
    x = 10 + 380 * (steps - steps[0]) / (steps[-1] - steps[0] or 1)
    y = 130 - 110 * (mean - low) / (high - low or 1)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[finite], y[finite]))
    first, last = (f"{value:.3g}" for value in (mean[0], mean[-1]))
    sentence = f"test {written(run.measured)} goes from {first} to {last}"
    return (
        f'<svg role="img" aria-label="{sentence}" width="400" height="150" viewBox="0 0 400 150">'
        f'<polyline points="{points}" fill="none" stroke="#0069a6" stroke-width="2"/></svg>'
        f"<p>{sentence}</p>"
    )


def written(text: str) -> str:
    """Returns a text as HTML shows it."""
    return html.escape(escaped(text))
