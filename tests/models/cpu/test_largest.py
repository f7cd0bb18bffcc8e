import jax
import numpy as np
import pytest

from flax_attn.models.cpu import largest


def test_the_largest_are_found_by_blocks():
    scores = np.random.default_rng(2).normal(size=(3, 150)).astype(np.float32)
    scores[1, :145] = -np.inf  # fewer than are wanted, and what fills up the last block beside them
    best, places = jax.jit(largest.top_k, static_argnums=1)(scores, 9)
    np.testing.assert_array_equal(best, -np.sort(-scores)[:, :9])
    np.testing.assert_array_equal(np.take_along_axis(scores, np.asarray(places), axis=1), best)


@pytest.mark.parametrize("size", [20, largest.FEW + 20])
def test_the_largest_and_their_equals_are_marked(size):
    rng = np.random.default_rng(3)
    scores = rng.integers(8, size=(5, size)).astype(np.float32)
    scores[1, 2:], scores[2], scores[3] = -np.inf, np.nan, rng.permutation(size)
    is_among = jax.jit(largest.is_among, static_argnums=1)
    for k in 1, 4, size:
        expected = ~(scores < -np.sort(-scores)[:, [k - 1]])  # True for NaN
        np.testing.assert_array_equal(is_among(scores, k), expected)
