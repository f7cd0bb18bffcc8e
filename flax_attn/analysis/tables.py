"""Tables of results for the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flax_attn.errors import counted, escaped
from flax_attn.runs.reading import Record, late_median
from flax_attn.runs.results import Summary

FURTHER = (
    "test/f1",
    "test/exact_match",
    "test/bleu",
    "test/chrf",
)  # shown where all runs that are compared have them


def wide_console() -> Console:
    """A console as wide as the terminal. Without a terminal, every table fits."""
    console = Console()
    return console if console.is_terminal else Console(width=130)


def print_results(summary: Summary, reference: dict[str, float], console: Console) -> None:
    """The metrics of a run, beside the figures of the tutorial's recipe where there are any.

    Those of the last epoch are left out where they are those of the kept one.
    """
    seeds = summary["seeds"]
    title = f"{summary['config']}: {summary['model']}, {summary['parameters']:,} parameters, "
    title += f"{summary['steps']:,} steps, {counted(len(seeds), 'seed')}, "
    title += f"{summary['train_seconds'] / 60:.1f} minutes of training"
    console.print(escaped(title), style="bold", highlight=False, markup=False, soft_wrap=True)
    rows = {
        name: [f"{metric['mean']:.4g}", f"{metric['std']:.2g}" if len(seeds) > 1 else ""]
        for name, metric in summary["metrics"].items()
    }
    last = [name for name in rows if name.startswith("last/")]
    if all(rows[name] == rows.get(name.removeprefix("last/")) for name in last):
        rows = {name: row for name, row in rows.items() if name not in last}
    cells = [
        [*row, f"{reference[name]:.4g}" if name in reference else ""] for name, row in rows.items()
    ]
    columns = zip(("mean", "std", "tutorial"), zip(*cells))
    shown = {name: column for name, column in columns if any(column)}
    table = Table("metric")
    for name in shown:
        table.add_column(name, justify="right")
    for name, row in zip(rows, zip(*shown.values())):
        table.add_row(Text(escaped(name)), *(cell or "-" for cell in row))
    console.print(table)
    for signature in summary.get("signatures", ()):
        console.print(escaped(signature), highlight=False, markup=False, soft_wrap=True)


def print_comparison(runs: list[Record], console: Console) -> None:
    """Prints one row a run.

    A row has size, time, and the test error or accuracy: kept, last, and the median of the last 10
    epochs.
    """
    measured = f"test/{runs[0].measured}"
    title = Text(escaped(f"{measured}, mean ± std over seeds"))
    table = Table(title=title, title_justify="left", title_style="bold")
    further = [name for name in FURTHER if all(name in run.summary["metrics"] for run in runs)]
    for column in (
        "run",
        "parameters",
        "seeds",
        "steps",
        "minutes",
        "kept",
        "last",
        "median of last 10",
        *further,
    ):
        table.add_column(column, justify="left" if column == "run" else "right", overflow="fold")
    for run in runs:
        metrics, seeds = run.summary["metrics"], len(run.summary["seeds"])
        kept, last = metrics[measured], metrics.get(f"last/{measured}", metrics[measured])
        show = lambda metric, many=seeds > 1: (
            f"{metric['mean']:.4g}" + (f" ± {metric['std']:.1g}" if many else "")
        )
        counts = [
            f"{run.summary['parameters']:,}",
            str(seeds),
            f"{run.summary['steps']:,}",
            f"{run.summary['train_seconds'] / 60:.1f}",
        ]
        shown = [
            show(kept),
            show(last),
            f"{late_median(run.sound_rows, measured):.4g}",
            *(show(metrics[name]) for name in further),
        ]
        table.add_row(Text(escaped(run.name)), *counts, *shown)
    console.print(table)
