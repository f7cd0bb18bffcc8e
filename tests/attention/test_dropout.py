"""Dropout of weights drops the same ones, whole or in blocks."""

import jax
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention.normalizers import drop
from tests.attention.compiled import normal, run

X, RNG = normal(0, 2, 7, 4), jax.random.key(2)


def test_dropout_of_a_block_is_that_of_the_whole():
    weights, rng = np.ones((3, 2, 8, 6), np.float32), jax.random.key(0)
    rows, columns = np.arange(8), np.arange(6)
    whole = run(drop, weights, 0.25, rng, rows, columns)
    block = run(drop, weights[:, :, 2:5, 4:], 0.25, rng, rows[2:5], columns[4:])
    np.testing.assert_array_equal(block, whole[:, :, 2:5, 4:])
    many = run(drop, np.ones((4, 100, 100), np.float32), 0.25, rng, np.arange(100), np.arange(100))
    assert abs((many > 0).mean() - 0.75) < 0.01
    kept = many > 0
    for other in (np.roll(kept, 1, axis=0), np.roll(kept, 1, axis=1), np.roll(kept, 1, axis=2)):
        # neighbours along every axis are independent
        assert abs((kept & other).mean() - 0.75**2) < 0.01


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_dropout_in_double_precision(chunk_size):
    with jax.enable_x64(True):
        context = run(
            fa.attend,
            *[X.astype(np.float64)] * 3,
            dropout_rate=0.3,
            dropout_rng=RNG,
            chunk_size=chunk_size,
        ).context
        assert context.dtype == np.float64
    single = run(fa.attend, X, X, X, dropout_rate=0.3, dropout_rng=RNG).context
    np.testing.assert_allclose(context, single, atol=1e-5)  # the same weights are dropped
