import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.training.metrics import Mean, accumulate, compute, squared_error


def test_masked_rows_count_nothing():
    outputs, targets = jnp.array([[1.0, 2.0], [9.0, 9.0], [0.0, 0.0]]), jnp.array([[0.0, 0.0], [0.0, 0.0], [0.0, 4.0]])
    error = squared_error(outputs, targets, jnp.array([True, False, True]))
    assert float(error.compute()) == (1 + 4 + 0 + 16) / 4


def test_uneven_batches_add_up_to_the_whole():
    x, y = jax.random.normal(jax.random.key(0), (2, 12, 3))
    whole = squared_error(x, y, jnp.ones(12, bool)).compute()
    mask = jnp.array([[True] * 5, [True] * 5, [True] * 2 + [False] * 3])
    padded = jnp.pad(x, ((0, 3), (0, 0)), constant_values=7.0).reshape(3, 5, 3), jnp.pad(y, ((0, 3), (0, 0))).reshape(3, 5, 3)
    batches = jax.vmap(squared_error)(*padded, mask)
    np.testing.assert_allclose(compute(accumulate({"mse": batches}))["mse"], whole, rtol=1e-6)


def test_adding_leaves_joins_means():
    joined = jax.tree.map(jnp.add, Mean(jnp.float32(6), jnp.float32(2)), Mean(jnp.float32(3), jnp.float32(1)))
    assert float(joined.compute()) == 3.0
