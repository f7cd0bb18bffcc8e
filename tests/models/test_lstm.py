import chex
import jax
import numpy as np
import pytest

from flax_attn.models import LSTM, BiLSTM
from tests.models import variables

SIGNALS = np.random.default_rng(0).normal(size=(3, 100, 1)).astype(np.float32)


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
