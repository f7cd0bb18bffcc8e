"""Rows and measures of several seeds."""

import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import results

BEFORE = [{"epoch": 3, "seed": seed, "mse": 0.5 + seed} for seed in (0, 1)]


def test_a_seed_that_has_stopped_has_its_last_row_again():
    now = [{"epoch": 4, "seed": seed, "mse": 9.0} for seed in (0, 1)]
    earlier = [row | {"epoch": 2, "mse": 7.0} for row in BEFORE]
    repeated = results.repeat_last(now, np.array([True, False]), earlier + BEFORE)
    assert repeated == [{"epoch": 4, "seed": 0, "mse": 0.5}, now[1]]


def test_the_deviation_is_that_of_a_sample():
    assert results.summarize_values([1.0, 3.0]) == {
        "mean": 2.0,
        "std": pytest.approx(2**0.5),
        "values": [1.0, 3.0],
    }
    assert results.summarize_values([4.0])["std"] == 0.0


def test_a_summary_is_of_the_seeds_at_its_places():
    scores = {"test": {"mse": jnp.array([1.0, jnp.nan, 3.0])}}
    assert results.summarize("last/", scores, [0, 2])["last/test/mse"]["values"] == [1.0, 3.0]


def test_what_is_not_finite_is_named():
    results.check_finite(BEFORE)
    bad = [BEFORE[0], BEFORE[1] | {"mse": float("nan")}]
    assert results.finite_seeds(bad).tolist() == [True, False]
    with pytest.raises(UsageError, match="mse is nan in epoch 3 of seed 1"):
        results.check_finite(bad)
