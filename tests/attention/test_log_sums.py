"""The logarithm of what softmax divides by, and attention to parts of the keys joined by it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import normal, run

QUERY, KEY, VALUE = normal(0, 2, 5, 3), normal(1, 2, 7, 3), normal(2, 2, 7, 4)
MASK = np.random.default_rng(3).random((2, 5, 7)) < 0.5
MASK[0, 1] = False
BIAS = normal(4, 5, 7)
sizes = pytest.mark.parametrize("chunk_size", [None, 3, 64])


@sizes
def test_it_is_the_logarithm_of_the_sum_over_visible_keys(chunk_size):
    scores = QUERY.astype(np.float64) @ KEY.astype(np.float64).swapaxes(1, 2) / np.sqrt(3) + BIAS
    with np.errstate(divide="ignore"):
        expected = np.log(np.where(MASK, np.exp(scores), 0).sum(axis=-1))
    logs = run(fa.log_sum_exp, QUERY, KEY, mask=MASK, bias=BIAS, chunk_size=chunk_size)
    assert logs[0, 1] == -np.inf
    np.testing.assert_allclose(logs, expected, atol=1e-5)


@sizes
def test_parts_of_the_keys_join_to_the_whole(chunk_size):
    """Gradients too."""

    def in_parts(query):
        parts = []
        for keys in (slice(0, 3), slice(3, 7)):
            options = {"mask": MASK[..., keys], "chunk_size": chunk_size}
            context = fa.attend(query, KEY[:, keys], VALUE[:, keys], **options).context
            parts.append((context, fa.log_sum_exp(query, KEY[:, keys], **options)))
        contexts, logs = (jnp.stack(arrays) for arrays in zip(*parts))
        shares = fa.masked_softmax(jnp.moveaxis(logs, 0, -1))
        return jnp.einsum("bqp,pbqe->bqe", shares, contexts)

    whole = functools.partial(lambda query: fa.attend(query, KEY, VALUE, mask=MASK).context)
    loss = lambda function: jax.value_and_grad(lambda query: jnp.sum(jnp.sin(function(query))))
    (value, gradient), (expected, expected_gradient) = (
        run(loss(function), QUERY) for function in (in_parts, whole)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-5)


@sizes
def test_a_nan_is_that_of_its_row_and_not_a_row_without_keys(chunk_size):
    query = QUERY.copy()
    query[0, 1] = np.nan
    logs = run(fa.log_sum_exp, query, KEY, chunk_size=chunk_size)
    np.testing.assert_array_equal(np.isnan(logs), np.isnan(query[..., 0]))


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_without_keys_it_is_minus_infinity(chunk_size):
    np.testing.assert_array_equal(
        fa.log_sum_exp(QUERY, KEY[:, :0], chunk_size=chunk_size), np.full((2, 5), -np.inf)
    )
