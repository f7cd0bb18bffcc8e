"""Loss curves, the same for every task."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, ScalarFormatter

from flax_attn.analysis.drawing import BLUE, CYCLE, SKY, Picture, styled
from flax_attn.runs.reading import Record, curve

LABELS = {
    "mse": "mean squared error (normalised units)",
    "loss": "cross-entropy",
    "mae": "mean absolute error",
    "accuracy": "accuracy",
}
OF_SPLIT = {"train": SKY, "valid": BLUE}
LABEL_OF = {"train": "training, mean over each epoch", "valid": "validation, after each epoch"}
DOTS = "os^Dv"
SCORES = {"mse": "error", "mae": "error"}  # in titles; other metrics have their own name


@styled
def loss_curves(runs: list[Record]) -> Figure:
    """Draws training and validation error over the step, the mean over seeds in a band.

    An accuracy, or another primary metric of a run, stands beside it.
    """
    metrics = metrics_of(runs)
    figure = Picture(figsize=(8.3, 4.4 if len(metrics) == 1 else 3.9), layout="constrained")
    axes = figure.subplots(1, len(metrics), squeeze=False)
    for metric, ax in zip(metrics, axes[0]):
        draw_curves(ax, runs, metric)
    scale_errors(axes[0, 0])  # an error comes first
    num_seeds = max(len({row["seed"] for row in run.sound_rows}) for run in runs)
    band = f"\nmean and range over {num_seeds} seeds" if num_seeds > 1 else ""
    figure.suptitle((outcome(runs[0]) if len(runs) == 1 else best(runs)) + band)
    return figure


def metrics_of(runs: list[Record]) -> tuple[str, ...]:
    """Returns the metrics with curves: those with a label, and the primary metric of each run."""
    names = {name.split("/")[-1] for run in runs for row in run.rows for name in row}
    labelled = [name for name in LABELS if name in names]
    return tuple(dict.fromkeys([*labelled, *(run.measured for run in runs)]))


def kept(run: Record) -> float | None:
    """Returns the validation score of the kept parameters, the mean over seeds."""
    measure = run.summary["metrics"].get(f"valid/{run.measured}")
    return None if measure is None else measure["mean"]


def outcome(run: Record) -> str:
    """Returns how the validation score of a run changed up to the kept epoch, as a title."""
    _, values = curve(run.sound_rows, f"valid/{run.measured}")  # (seeds, epochs)
    if (end := kept(run)) is None or not values.size:
        return run.name
    score, start = SCORES.get(run.measured, run.measured), values[:, 0].mean()
    return f"{run.name}: validation {score} {start:.3g} at first, {end:.3g} as kept"


def best(runs: list[Record]) -> str:
    """Returns which of several runs has kept the best validation score, as a title."""
    scores = {run.name: score for run in runs if (score := kept(run)) is not None}
    if len(scores) < len(runs):
        return "training and validation error"
    metric = runs[0].measured
    pick, extreme = (max, "highest") if metric == "accuracy" else (min, "lowest")
    name = pick(scores, key=scores.__getitem__)
    score = SCORES.get(metric, metric)
    return f"{name} has the {extreme} validation {score}, {scores[name]:.3g}"


def error_on_test(runs: list[Record]) -> str:
    """Returns the lowest test error of regressions, the mean over seeds, as a title."""
    errors = {run.name: run.summary["metrics"]["test/mse"]["mean"] for run in runs}
    name = min(errors, key=errors.__getitem__)
    error = "mean squared error" if len(runs) == 1 else "the lowest mean squared error"
    return f"{name} has {error} {errors[name]:.3g} on test data"


def scale_errors(ax: Axes) -> None:
    """Sets a log scale where the curves span a factor of 10, with plain numbers."""
    least, most = ax.dataLim.minposy, ax.dataLim.ymax  # of all curves and bands
    if most < 10 * least:
        ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        return
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    if most < 1000 * least:  # few powers of ten: two more numbers between them
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def draw_curves(ax: Axes, runs: list[Record], metric: str) -> None:
    """Draws training and validation of every run, in a colour and dots of its own."""
    for number, run in enumerate(runs):
        for split, line in (("train", ":"), ("valid", "-")):
            steps, values = curve(run.sound_rows, f"{split}/{metric}")
            if not values.size:
                continue
            colour = CYCLE[number % len(CYCLE)] if len(runs) > 1 else OF_SPLIT[split]
            label = LABEL_OF[split] if len(runs) == 1 else f"{run.name}, {LABEL_OF[split]}"
            style = {"ms": 4, "lw": 1.7, "label": label}
            if len(runs) > 1:
                style |= {"marker": DOTS[number % len(DOTS)], "markevery": max(len(steps) // 8, 1)}
            elif len(steps) == 1:  # a line through one point is not seen
                style |= {"marker": "o"}
            ax.plot(steps, values.mean(axis=0), line, color=colour, **style)  # values (seeds, n)
            if len(values) > 1:
                least, most = values.min(axis=0), values.max(axis=0)
                ax.fill_between(steps, least, most, color=colour, alpha=0.2, lw=0)
    ax.set_xlabel("training step")
    ax.set_ylabel(LABELS.get(metric, metric))
    ax.grid(axis="y", which="both", alpha=0.2)
    ax.legend(fontsize=9)
