"""Local attention: windows that are fixed, and windows that are learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal, run

T, D = 7, 5


X = normal(0, 2, T, D)


def test_local_attention_sees_its_window_and_nothing_else():
    layer = fa.LocalAttention(1, fa.no_score)
    weights = apply(layer, {}, X, X, key_lengths=np.array([T, 4])).weights
    for row, length in enumerate((T, 4)):
        near = np.array(
            [[abs(q - k) <= 1 and k < length for k in range(T)] for q in range(T)], float
        )
        np.testing.assert_allclose(
            weights[row], near / np.maximum(near.sum(axis=1, keepdims=True), 1), atol=1e-6
        )


def test_predictive_local_attention_is_its_formula_and_learns_where_to_look():
    layer, lengths = fa.PredictiveLocalAttention(2, 3, fa.dot), np.array([T, 4])
    variables = init(layer, X, X)
    hidden, position = (
        np.asarray(variables["params"][name]["kernel"]) for name in ("hidden", "place")
    )
    x = X.astype(np.float64)
    center = lengths[:, None] / (1 + np.exp(-np.tanh(x @ hidden) @ position))[..., 0]
    attended = apply(layer, variables, X, X, key_lengths=lengths)
    for b in range(2):
        for q in range(T):
            keys = [k for k in range(lengths[b]) if abs(k - center[b, q]) <= 2]
            shares = np.exp([x[b, q] @ x[b, k] for k in keys])
            weights = shares / shares.sum() * np.exp([-((k - center[b, q]) ** 2) / 2 for k in keys])
            np.testing.assert_allclose(attended.weights[b, q, keys], weights, atol=1e-5)
            np.testing.assert_allclose(attended.weights[b, q].sum(), weights.sum(), atol=1e-5)
    gradient = run(jax.grad(lambda v, x: jnp.sum(layer.apply(v, x, x).context ** 2)), variables, X)[
        "params"
    ]
    assert np.abs(gradient["place"]["kernel"]).max() > 1e-3


@pytest.mark.parametrize("layer", [fa.LocalAttention, fa.PredictiveLocalAttention])
def test_both_drop_weights_in_training(layer):
    options = {} if layer is fa.LocalAttention else {"features": 3}
    made, x = layer(reach=2, score=fa.dot, dropout_rate=0.5, **options), jnp.asarray(X)
    variables = init(made, x, x)
    dropped = [
        made.apply(variables, x, x, train=True, rngs={"dropout": jax.random.key(i)}).context
        for i in range(2)
    ]
    assert np.abs(dropped[0] - dropped[1]).max() > 0.01
    plain = made.apply(variables, x, x).context
    np.testing.assert_array_equal(made.clone(dropout_rate=0.0).apply(variables, x, x)[0], plain)
