"""Errors and losses, drawn."""

import numpy as np
import pytest

from flax_attn.analysis import losses
from flax_attn.runs import reading
from tests.runs.test_reading import make_run


def labels(figure):
    return {ax.get_xlabel() for ax in figure.axes} | {ax.get_ylabel() for ax in figure.axes}


def tick_labels(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def squared_run():
    """A run whose errors span more than a factor of ten."""
    run = make_run()
    return run._replace(rows=[row | {"valid/mse": row["valid/mse"] ** 2} for row in run.rows])


def test_the_error_has_plain_numbers_and_a_log_scale_only_over_a_factor_of_ten():
    losses_of_news = [1.3905, 1.372, 1.356]
    rows = [
        {"epoch": e, "seed": 0, "step": e, "valid/loss": loss, "valid/accuracy": accuracy}
        for e, (loss, accuracy) in enumerate(zip(losses_of_news, (0.25, 0.3, 0.45)))
    ]
    summary = {"measured": "accuracy", "metrics": {"valid/accuracy": {"mean": 0.375}}}
    run = reading.Record("news", None, {}, rows, {}, summary)  # pyright: ignore
    figure = losses.loss_curves([run])
    figure.canvas.draw()
    ax = figure.axes[0]
    assert ax.get_yscale() == "linear"
    assert ax.yaxis.get_offset_text().get_text() == ""
    assert {"1.360", "1.380"} <= set(tick_labels(ax.yaxis))
    assert figure.get_suptitle() == "news: validation accuracy 0.25 at first, 0.375 as kept"
    for largest, scale in ((9.9, "linear"), (10.0, "log")):
        ends = [row | {"valid/loss": loss} for row, loss in zip(rows, (largest, 2.0, 1.0))]
        (ax, _) = losses.loss_curves([run._replace(rows=ends)]).axes
        assert ax.get_yscale() == scale
    figure = losses.loss_curves([squared_run()])
    figure.canvas.draw()
    assert {"0.1", "0.2", "0.5", "1"} <= set(tick_labels(figure.axes[0].yaxis))


def test_loss_curves_are_logarithmic_with_a_band_over_seeds():
    figure = losses.loss_curves([squared_run()])
    (ax,) = figure.axes
    assert ax.get_yscale() == "log"
    of_label = {line.get_label(): line for line in ax.lines}
    assert set(of_label) == {"training, mean over each epoch", "validation, after each epoch"}
    assert len(ax.collections) == 2
    valid = of_label["validation, after each epoch"]
    means = [(1 / (e + 1) ** 2 + 1 / (e + 2) ** 2) / 2 for e in range(4)]
    np.testing.assert_allclose(valid.get_ydata(), means)
    assert labels(figure) == {"training step", "mean squared error (normalised units)"}
    said = "some run: validation error 0.625 at first, 0.125 as kept"
    assert figure.get_suptitle() == f"{said}\nmean and range over 2 seeds"


def test_a_seed_that_diverged_has_no_curve():
    run = make_run()
    run = run._replace(summary=run.summary | {"diverged": {"0": {"epoch": 2}}})
    figure = losses.loss_curves([run])
    (valid,) = [line for line in figure.axes[0].lines if "validation" in str(line.get_label())]
    np.testing.assert_allclose(valid.get_ydata(), [1 / (e + 2) for e in range(4)])
    assert "seeds" not in figure.get_suptitle()


@pytest.mark.parametrize(("measured", "best"), [("mse", "low"), ("accuracy", "high")])
def test_the_title_of_several_runs_names_the_one_that_kept_the_best(measured, best):
    kept, runs = {"low": 0.1, "high": 0.6}, []
    for name, value in kept.items():
        scores = {f"valid/{measured}": 0.7 - value, "valid/loss": 1.0}  # of the last epoch
        rows = [{"epoch": epoch, "seed": 0, "step": epoch} | scores for epoch in range(2)]
        summary = {"measured": measured, "metrics": {f"valid/{measured}": {"mean": value}}}
        runs.append(reading.Record(name, None, {}, rows, {}, summary))  # pyright: ignore
    said = {"mse": "the lowest validation error", "accuracy": "the highest validation accuracy"}
    assert losses.loss_curves(runs).get_suptitle() == f"{best} has {said[measured]}, {kept[best]}"


def test_what_a_run_is_known_by_and_the_accuracy_stand_beside_its_error():
    for measured, names in (
        ("mse", ("mse",)),
        ("loss", ("loss", "accuracy")),
        ("accuracy", ("loss", "accuracy")),
        ("mae", ("mse", "mae")),
        ("own", ("loss", "own")),
    ):
        row = {"epoch": 0, "seed": 0, "step": 0} | {f"valid/{name}": 1.0 for name in names}
        run = reading.Record("run", None, {}, [row], {}, {"measured": measured})  # pyright: ignore
        assert losses.metrics_of([run]) == names
