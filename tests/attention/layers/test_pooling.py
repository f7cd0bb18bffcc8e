"""Pooling of a sequence into one vector, or a few."""

import jax
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal, run

T, D = 7, 5


X = normal(0, 2, T, D)


@pytest.mark.parametrize("hidden", [None, 3])
def test_pooling_is_its_formula(hidden):
    layer = fa.AttentionPooling(hidden)
    variables = init(layer, X)
    p = jax.tree.map(np.asarray, variables["params"])
    h = X if hidden is None else np.tanh(X @ p["hidden"]["kernel"] + p["hidden"]["bias"])
    shares = np.exp(h @ p["energy"]["kernel"] + p["energy"]["bias"])
    weights = shares / shares.sum(axis=1, keepdims=True)
    attended = apply(layer, variables, X)
    np.testing.assert_allclose(attended.weights, weights[..., 0], atol=1e-6)
    np.testing.assert_allclose(attended.context, (weights * X).sum(axis=1), atol=1e-6)


def test_structured_self_attention_is_its_formula_and_its_penalty_is_squared():
    layer = fa.StructuredSelfAttention(3, 2)
    variables = init(layer, X)
    first, second = (
        np.asarray(variables["params"][name]["kernel"]) for name in ("hidden", "energies")
    )
    shares = np.exp(np.tanh(X @ first) @ second).swapaxes(1, 2)
    weights = shares / shares.sum(axis=-1, keepdims=True)
    attended = apply(layer, variables, X)
    np.testing.assert_allclose(attended.weights, weights, atol=1e-6)
    np.testing.assert_allclose(attended.context, weights @ X, atol=1e-5)
    expected = [np.linalg.norm(a @ a.T - np.eye(2)) ** 2 for a in weights]
    np.testing.assert_allclose(run(fa.diversity_penalty, attended.weights), expected, rtol=1e-5)
    pair = np.array([[[1.0, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 0, 1]]])
    np.testing.assert_allclose(run(fa.diversity_penalty, pair), [2, 0])
