"""A recurrent cell that weighs its input series."""

import flax.linen as nn
import jax
import numpy as np

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal

T, D = 7, 5


X = normal(0, 2, T, D)


def test_input_attention_cell_is_its_equations_and_runs_over_a_sequence():
    cell, carry = fa.InputAttentionCell(3, 2, alpha=4.0), normal(5, 2, 3)
    variables = init(cell, carry, X[:, 0])
    p = jax.tree.map(np.asarray, variables["params"])
    x, h = X[:, 0], carry
    a = 1 / (
        1
        + np.exp(
            -(
                h @ p["state_gate"]["kernel"]
                + x @ p["input_gate"]["kernel"]
                + p["input_gate"]["bias"]
            )
        )
    )
    g = np.exp(4 * a) / np.exp(4 * a).sum(axis=-1, keepdims=True)
    new = np.tanh(h @ p["state"]["kernel"] + (x * g) @ p["input"]["kernel"] + p["input"]["bias"])
    state, attended = apply(cell, variables, carry, x)
    np.testing.assert_allclose(state, new, atol=1e-6)
    np.testing.assert_allclose(attended.weights, g, atol=1e-6)
    np.testing.assert_allclose(attended.context, new @ p["output"]["kernel"], atol=1e-6)
    outputs = apply(nn.RNN(cell), {"params": {"cell": variables["params"]}}, X)
    assert outputs.context.shape == (2, T, 2)
    assert outputs.weights.shape == (2, T, D)
    _, first = apply(cell, variables, np.zeros_like(carry), x)
    np.testing.assert_allclose(outputs.weights[:, 0], first.weights, atol=1e-6)


def test_a_gate_of_n_is_at_most_e_over_e_plus_n_minus_1():
    cell, carry = fa.InputAttentionCell(3, 2), np.zeros((2, 3), np.float32)
    large = np.tile(np.where(np.arange(D) == 2, 1e4, -1e4).astype(np.float32), (2, 1))
    params = init(cell, carry, large)["params"]
    gates = params["input_gate"] | {"kernel": np.eye(D, dtype=np.float32)}
    _, attended = apply(cell, {"params": params | {"input_gate": gates}}, carry, large)
    np.testing.assert_allclose(attended.weights[:, 2], np.e / (np.e + D - 1), rtol=1e-5)
