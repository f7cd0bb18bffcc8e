"""Curves over the epochs, as runs are read."""

import numpy as np

from flax_attn.runs import reading


def make_run(seeds=2):
    rows = [
        {"epoch": e, "seed": s, "step": 10 * e}
        | {"valid/mse": 1.0 / (e + 1 + s), "test/mse": 2.0 / (e + 1 + s)}
        | ({"train/mse": 0.5} if e else {})
        for e in range(4)
        for s in range(seeds)
    ]
    config = {"task": "regression", "data": {"task": "by_shape"}}
    return reading.Record("some run", None, config, rows, {}, {})  # pyright: ignore


def test_curves_and_late_median():
    run = make_run()
    steps, values = reading.curve(run.rows, "train/mse")
    np.testing.assert_array_equal(steps, [10, 20, 30])
    assert values.shape == (2, 3)
    late = reading.late_median(run.rows, "valid/mse", epochs=2)
    np.testing.assert_allclose(late, np.median([1 / 3, 1 / 4, 1 / 4, 1 / 5]))
    trained = [1 / (e + 1 + s) for e in (1, 2, 3) for s in (0, 1)]
    np.testing.assert_allclose(reading.late_median(run.rows, "valid/mse"), np.median(trained))
