import chex
import jax
import numpy as np
import pytest

from flax_attn.models import LSTM, BiLSTM
from flax_attn.models.recurrent import RecurrentLayer
from tests.models import variables

SIGNALS = np.random.default_rng(0).normal(size=(3, 100, 1)).astype(np.float32)


def naive_lstm(params, x):
    """One step at a time, gate by gate, in the order i, f, g, o."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    sigmoid = lambda z: 1 / (1 + np.exp(-z))
    n = p["recurrent_kernel"].shape[0]
    hidden, memory, outputs = np.zeros(n), np.zeros(n), []
    for step in np.asarray(x, np.float64):
        z = (
            step @ p["input_kernel"]
            + p["input_bias"]
            + hidden @ p["recurrent_kernel"]
            + p["recurrent_bias"]
        )
        i, f, g, o = z[:n], z[n : 2 * n], z[2 * n : 3 * n], z[3 * n :]
        memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(memory)
        outputs.append(hidden)
    return np.stack(outputs)


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm_layer_equals_the_steps(reverse):
    x, zeros = SIGNALS.reshape(100, 3)[:7], np.zeros(5, np.float32)
    layer = RecurrentLayer("lstm", 5, reverse=reverse)
    drawn = variables.draw(layer, x, (zeros, zeros))
    outputs, (last, _) = jax.jit(layer.apply)(drawn, x, (zeros, zeros))
    expected = naive_lstm(drawn["params"], x[::-1] if reverse else x)
    np.testing.assert_allclose(outputs, expected[::-1] if reverse else expected, atol=1e-5)
    np.testing.assert_allclose(last, expected[-1], atol=1e-5)


def test_lstm_carries_its_state_from_batch_to_batch():
    model = LSTM(features=5)
    signals = np.random.default_rng(1).normal(size=(6, 100, 1)).astype(np.float32)
    drawn = jax.jit(model.init)(jax.random.key(0), signals)
    chex.assert_trees_all_equal(drawn["carry"], jax.tree.map(np.zeros_like, drawn["carry"]))
    apply = jax.jit(lambda drawn, signals: model.apply(drawn, signals, mutable=["carry"]))
    (whole, _), _ = apply(drawn, signals)
    (first, _), carry = apply(drawn, signals[:3])
    (second, _), _ = apply(drawn | carry, signals[3:])
    np.testing.assert_allclose(np.concatenate([first, second]), whole, atol=1e-5)


def test_no_gradient_flows_through_the_carry():
    model = LSTM(features=5)
    drawn = variables.draw(model, SIGNALS)

    def through_the_carry(params, carry, signals):
        _, updates = model.apply({"params": params, "carry": carry}, signals, mutable=["carry"])
        return sum(leaf.sum() for leaf in jax.tree.leaves(updates))

    gradient = jax.jit(jax.grad(through_the_carry))(drawn["params"], drawn["carry"], SIGNALS)
    chex.assert_trees_all_equal(gradient, jax.tree.map(np.zeros_like, drawn["params"]))


@pytest.mark.parametrize(("model", "bound"), [(BiLSTM(8), 1 / 4), (LSTM(16), 1 / 4)])
def test_the_last_layer_begins_as_pytorchs(model, bound):
    """A bias is within `1 / sqrt(n)` of 0 for the `n` numbers that the layer reads."""
    inputs = jax.numpy.asarray(SIGNALS[:, :1])
    init = jax.jit(lambda key: model.init(key, inputs)["params"]["dense"]["bias"])
    biases = np.array([init(jax.random.key(i)) for i in range(40)])
    assert 0.88 * bound < np.abs(biases).max() <= bound
