import jax
import numpy as np

from flax_attn.models import largest


def test_the_largest_are_found_by_blocks():
    scores = np.random.default_rng(2).normal(size=(3, 150)).astype(np.float32)
    scores[1, :145] = -np.inf  # fewer than are wanted, and what fills up the last block beside them
    best, places = jax.jit(largest.top_k, static_argnums=1)(scores, 9)
    np.testing.assert_array_equal(best, -np.sort(-scores)[:, :9])
    np.testing.assert_array_equal(np.take_along_axis(scores, np.asarray(places), axis=1), best)
