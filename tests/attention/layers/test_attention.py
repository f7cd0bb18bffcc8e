"""The attention layer with any score, and hard attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal


def test_additive_attention_averages_values_where_all_keys_are_equal():
    """Keys all equal, values 0 to 39, the first 1 and 6 of them real: the mean of the values."""
    query, key = normal(0, 2, 1, 20), np.ones((2, 10, 2), np.float32)
    value = np.tile(np.arange(40, dtype=np.float32).reshape(1, 10, 4), (2, 1, 1))
    layer = fa.Attention(fa.AdditiveScore(8), dropout_rate=0.1)
    mask = np.arange(10) < np.array([[[1]], [[6]]])
    variables = init(layer, query, key, value, mask=mask)
    attended = apply(layer, variables, query, key, value, mask=mask)
    np.testing.assert_allclose(attended.context[:, 0], [[0, 1, 2, 3], [10, 11, 12, 13]], atol=1e-5)
    kernels = jax.tree.map(jnp.shape, variables["params"]["score"])
    assert kernels == {"query_kernel": (20, 8), "key_kernel": (2, 8), "vector": (8,)}
    trained = apply(
        layer,
        variables,
        query,
        key,
        value,
        mask=mask,
        train=True,
        rngs={"dropout": jax.random.key(3)},
    )
    np.testing.assert_array_equal(trained.weights, attended.weights)


def test_hard_attention_takes_the_likeliest_and_draws_in_training():
    layer, query, key = (
        fa.HardAttention(fa.dot),
        np.ones((1, 2000, 1)),
        np.log([[[0.2], [0.5], [0.3]]]),
    )
    assert (apply(layer, {}, query, key).weights[0, :, 1] == 1).all()
    drawn = apply(layer, {}, query, key, train=True, rngs={"sample": jax.random.key(0)}).weights
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_allclose(drawn[0].mean(axis=0), [0.2, 0.5, 0.3], atol=0.04)


@pytest.mark.parametrize("train", [False, True])
def test_the_temperature_of_hard_attention_is_that_of_its_gradient(train):
    """The gradient is that of softmax at the temperature. What is chosen stays."""
    arrays = normal(0, 1, 5, 3), normal(1, 1, 7, 3), normal(2, 1, 7, 2)
    query, key, value = map(jnp.asarray, arrays)

    def attended(temperature, query):
        rngs = {"sample": jax.random.key(0)} if train else {}
        layer = fa.HardAttention(temperature=temperature)
        return layer.apply({}, query, key, value, train=train, rngs=rngs).context.sum()

    cold, warm = (
        jax.jit(jax.value_and_grad(functools.partial(attended, temperature)))(query)
        for temperature in (0.01, 2.0)
    )
    np.testing.assert_allclose(cold[0], warm[0], rtol=1e-5)
    assert np.abs(cold[1] - warm[1]).max() > 0.01
    if not train:
        soft = lambda query: fa.attend(query / 2, key, value).context.sum()
        np.testing.assert_allclose(warm[1], jax.grad(soft)(query), atol=1e-6)
