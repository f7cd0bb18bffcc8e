import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import masked_softmax


def test_keras_cases():
    scores = jnp.array([[1.0, 2, 5, 1], [1, 1, 1, 1], [3, 1, 2, 4]])
    mask = jnp.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    expected = [[0.268941, 0.731059, 0, 0], [0, 0, 0, 0], [0.236883, 0.032059, 0.087144, 0.643914]]
    np.testing.assert_allclose(masked_softmax(scores, mask), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("scores", "mask", "expected"),
    [
        ([1, 2, 5], [1, 0, 1], [0.01798621, 0, 0.98201382]),
        ([0, 2, 3, 4], [1, 0, 1, 1], [0.01321289, 0, 0.26538793, 0.72139918]),
        ([0, 2, 3, 4], [0, 0, 0, 0], [0, 0, 0, 0]),
        ([1, 1, 1e5], [1, 1, 0], [0.5, 0.5, 0]),
    ],
)
def test_allennlp_cases(scores, mask, expected):
    np.testing.assert_allclose(masked_softmax(jnp.array(scores, jnp.float32), jnp.array(mask, bool)), expected, atol=1e-6)


@pytest.mark.parametrize("hidden", [1e4, jnp.nan, jnp.inf, -jnp.inf])
def test_masked_entries_are_never_read(hidden):
    scores, mask = jnp.array([0.5, hidden, 1.5]), jnp.array([True, False, True])
    plain = masked_softmax(jnp.array([0.5, 1.5]))
    np.testing.assert_allclose(masked_softmax(scores, mask)[jnp.array([0, 2])], plain, rtol=1e-6)
    gradient = jax.grad(lambda s: masked_softmax(s, mask)[0])(scores)
    assert gradient[1] == 0
    assert np.isfinite(gradient).all()


def test_empty_row_has_gradient_zero():
    gradient = jax.grad(lambda s: masked_softmax(s, jnp.zeros(3, bool)).sum())(jnp.array([1.0, 1e4, -2.0]))
    np.testing.assert_array_equal(gradient, 0)


def test_half_precision_is_normalised_in_float32():
    scores = jnp.array([11.0, 11.0, 11.0, 11.0], jnp.float16)  # exp(11) overflows float16
    weights = masked_softmax(scores)
    assert weights.dtype == jnp.float32
    np.testing.assert_allclose(weights, 0.25)
