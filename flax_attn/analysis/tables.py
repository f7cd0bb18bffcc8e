"""Tables of results for the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flax_attn.errors import counted, escaped
from flax_attn.runs.reading import Record, late_median
from flax_attn.runs.results import Summary

COLUMNS = ("parameters", "seeds", "steps", "minutes", "kept", "last", "median of last 10")
# shown where all runs that are compared have them
FURTHER = ("test/f1", "test/exact_match", "test/bleu", "test/chrf")


def wide_console() -> Console:
    """Returns a console as wide as the terminal, or wide enough for every table without one."""
    console = Console()
    return console if console.is_terminal else Console(width=130)


def print_results(summary: Summary, reference: dict[str, float], console: Console) -> None:
    """Prints the metrics of a run, beside the figures of the recipe where there are any."""
    seeds = summary["seeds"]
    title = f"{summary['config']}: {summary['model']}, {summary['parameters']:,} parameters, "
    title += f"{summary['steps']:,} steps, {counted(len(seeds), 'seed')}, "
    title += f"{summary['train_seconds'] / 60:.1f} minutes of training"
    console.print(escaped(title), style="bold", highlight=False, markup=False, soft_wrap=True)
    metrics = summary["metrics"].items()
    columns = {"mean": {name: f"{measure['mean']:.4g}" for name, measure in metrics}}
    if len(seeds) > 1:
        columns["std"] = {name: f"{measure['std']:.2g}" for name, measure in metrics}
    rows = lambda name: [column.get(name) for column in columns.values()]
    last = [name for name in columns["mean"] if name.startswith("last/")]
    is_kept = all(rows(name) == rows(name.removeprefix("last/")) for name in last)
    names = [name for name in columns["mean"] if not is_kept or name not in last]
    if tutorial := {name: f"{reference[name]:.4g}" for name in names if name in reference}:
        columns["tutorial"] = tutorial
    table = Table("metric")
    for column in columns:
        table.add_column(column, justify="right")
    for name in names:
        table.add_row(Text(escaped(name)), *(cell or "-" for cell in rows(name)))
    console.print(table)
    for signature in summary.get("signatures", ()):
        console.print(escaped(signature), highlight=False, markup=False, soft_wrap=True)


def print_comparison(runs: list[Record], console: Console) -> None:
    """Prints one row a run: size, time, and the test metric, kept, last, and the late median."""
    measured = f"test/{runs[0].measured}"
    title = Text(escaped(f"{measured}, mean ± std over seeds"))
    table = Table(title=title, title_justify="left", title_style="bold")
    further = [name for name in FURTHER if all(name in run.summary["metrics"] for run in runs)]
    for column in ("run", *COLUMNS, *further):
        table.add_column(column, justify="left" if column == "run" else "right", overflow="fold")
    for run in runs:
        metrics, seeds = run.summary["metrics"], len(run.summary["seeds"])
        best, last = metrics[measured], metrics.get(f"last/{measured}", metrics[measured])
        std = lambda metric, many=seeds > 1: f" ± {metric['std']:.1g}" if many else ""
        shown = [f"{metric['mean']:.4g}{std(metric)}" for metric in (best, last)]
        shown += [f"{late_median(run.sound_rows, measured):.4g}"]
        shown += [f"{metrics[name]['mean']:.4g}{std(metrics[name])}" for name in further]
        sizes = f"{run.summary['parameters']:,}", str(seeds), f"{run.summary['steps']:,}"
        counts = [*sizes, f"{run.summary['train_seconds'] / 60:.1f}"]
        table.add_row(Text(escaped(run.name)), *counts, *shown)
    console.print(table)
