"""Tables of results for the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flax_attn.errors import counted, escaped
from flax_attn.runs.reading import Record, late_median
from flax_attn.runs.results import SPLITS, Summary

COLUMNS = ("parameters", "seeds", "steps", "minutes", "kept", "last", "median of last 10")
# shown where all runs that are compared have them
FURTHER = ("test/f1", "test/exact_match", "test/bleu", "test/chrf")


def wide_console() -> Console:
    """Returns a console as wide as the terminal, or wide enough for every table without one."""
    console = Console()
    return console if console.is_terminal else Console(width=130)


def print_results(
    summary: Summary, reference: dict[str, float], console: Console, last: bool = False
) -> None:
    """Prints a row for each metric of a run, with a column for each split that has it.

    Beside them stand those of a `reference`, figures of a tutorial by `split/metric`; and with
    `last`, or where the tutorial has such, those of the last epoch.
    """
    seeds, metrics = summary["seeds"], summary["metrics"]
    title = f"{summary['config']}: {summary['model']}, {summary['parameters']:,} parameters, "
    title += f"{summary['steps']:,} steps, {counted(len(seeds), 'seed')}, "
    title += f"{summary['train_seconds'] / 60:.1f} minutes of training"
    console.print(escaped(title), style="bold", highlight=False, markup=False, soft_wrap=True)
    last = last or any(name.startswith("last/") for name in reference)
    shown = {}  # texts by metric and column
    for name, measure in metrics.items():
        column, metric = split_name(name)
        if last or not column.startswith("last"):
            std = f" ± {measure['std']:.2g}" if len(measure["values"]) > 1 else ""
            shown.setdefault(metric, {})[column] = f"{measure['mean']:.4g}{std}"
    for name, figure in reference.items():
        column, metric = split_name(name)
        shown.setdefault(metric, {})["tutorial" if column == "test" else f"tutorial, {column}"] = (
            f"{figure:.4g}"
        )
    columns = list(dict.fromkeys(column for row in shown.values() for column in row))
    table = Table("metric")
    for column in columns:
        table.add_column(column.replace("/", " "), justify="right")
    for metric, row in shown.items():
        table.add_row(Text(escaped(metric)), *(row.get(column, "-") for column in columns))
    console.print(table)
    for signature in summary.get("signatures", ()):
        console.print(escaped(signature), highlight=False, markup=False, soft_wrap=True)


def split_name(name: str) -> tuple[str, str]:
    """Splits the name of a metric, such as `last/test/macro/f1`, behind that of its split."""
    split = next(split for split in SPLITS if f"{split}/" in name)
    head, _, metric = name.partition(f"{split}/")
    return head + split, metric


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
