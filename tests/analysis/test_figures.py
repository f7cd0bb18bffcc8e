import matplotlib.pyplot as plt
import numpy as np

from flax_attn.analysis import losses, shapes
from flax_attn.runs import reading

SIGNAL = np.arange(100.0)
MARKS = {"centers": np.array([10.0, 30, 50, 80]), "heights": np.ones(4), "widths": np.array([6.0, 7, 8, 9])}


def texts(figure):
    return {ax.get_xlabel() for ax in figure.axes} | {ax.get_ylabel() for ax in figure.axes}


def test_attention_map_has_keys_across_and_queries_up():
    weights = np.zeros((100, 100))
    weights[70, 20] = 1.0  # query 70 attends to key 20
    figure = shapes.attention_map(SIGNAL, weights, MARKS, "title")
    heat = figure.axes[0]
    image = heat.images[0]
    left, _, bottom, _ = image.get_extent()
    row, column = np.unravel_index(np.argmax(image.get_array()), (100, 100))
    assert image.origin == "lower"
    assert (left + (column + 0.5), bottom + (row + 0.5)) == (20.0, 70.0)
    assert {"key: the position that is attended to", "query: the position that attends"} <= texts(figure)
    marked = {(line.get_marker(), float(line.get_xdata()[0])) for line in heat.lines if line.get_ydata()[0] == 1.02}
    assert marked == {("^", 10.0), ("^", 30.0), ("s", 50.0), ("s", 80.0)}
    plt.close(figure)


def make_run(seeds=2):
    rows = [
        {"epoch": e, "seed": s, "step": 10 * e, "valid/mse": 1.0 / (e + 1 + s), "test/mse": 2.0 / (e + 1 + s)}
        | ({"train/mse": 0.5} if e else {})
        for e in range(4)
        for s in range(seeds)
    ]
    return reading.Record("some run", None, {"task": "regression", "data": {"task": "by_shape"}}, rows, {}, {})  # pyright: ignore


def test_loss_curves_are_logarithmic_with_a_band_over_seeds():
    figure = losses.loss_curves([make_run()])
    (ax,) = figure.axes
    assert ax.get_yscale() == "log"
    assert {line.get_label() for line in ax.lines} == {"train", "valid", "test"}
    assert len(ax.collections) == 3
    valid = next(line for line in ax.lines if line.get_label() == "valid")
    np.testing.assert_allclose(valid.get_ydata(), [(1 / (e + 1) + 1 / (e + 2)) / 2 for e in range(4)])
    assert texts(figure) == {"training step", "mean squared error (normalised units)"}
    assert figure.get_suptitle() == "some run, mean and range over 2 seeds"
    plt.close(figure)


def test_curves_and_late_median():
    run = make_run()
    steps, values = reading.curve(run.rows, "train/mse")
    np.testing.assert_array_equal(steps, [10, 20, 30])
    assert values.shape == (2, 3)
    np.testing.assert_allclose(reading.late_median(run.rows, "valid/mse", epochs=2), np.median([1 / 3, 1 / 4, 1 / 4, 1 / 5]))
    trained = [1 / (e + 1 + s) for e in (1, 2, 3) for s in (0, 1)]
    np.testing.assert_allclose(reading.late_median(run.rows, "valid/mse"), np.median(trained))
