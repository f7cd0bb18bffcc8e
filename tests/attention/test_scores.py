import jax.numpy as jnp
import numpy as np

from flax_attn.attention import bilinear, dot, scaled_dot

A = jnp.array([[[0.0, 0, 0], [4, 5, 6]], [[-7, -8, -9], [10, 11, 12]]])
B = jnp.array([[[1.0, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 12]]])


def test_dot():
    np.testing.assert_allclose(dot(A, B), [[[0, 0], [32, 77]], [[-194, -266], [266, 365]]])


def test_scaled_dot_divides_by_the_root_of_the_width():
    np.testing.assert_allclose(scaled_dot(A, B), np.asarray(dot(A, B)) / np.sqrt(3), rtol=1e-5)


def test_bilinear_takes_keys_of_another_width():
    kernel = jnp.array([[-0.3, 0.5, 1.0], [2.0, -1.0, 0.0]])
    query, key = jnp.array([[1.0, 1.0], [2.0, 2.0]]), jnp.eye(3)
    np.testing.assert_allclose(bilinear(query, key, kernel=kernel), [[1.7, -0.5, 1.0], [3.4, -1.0, 2.0]], rtol=1e-5)
