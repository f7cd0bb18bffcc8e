import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import CNN, LSTM, BiLSTM, CNNAttention, ResidualAttention
from flax_attn.models.recurrent import RecurrentLayer
from tests.models import variables
from tests.models.test_convolution import naive

SIGNALS = np.random.default_rng(0).normal(size=(3, 100, 1)).astype(np.float32)
PARAMETERS = {
    CNN(): 62_337,
    CNNAttention(): 58_177,
    ResidualAttention(): 95_169,
    LSTM(): 130_660,
    BiLSTM(): 34_433,
}
by_model = functools.partial(pytest.mark.parametrize, ids=lambda value: type(value).__name__)


@functools.cache
def compiled(model):
    """Outputs and attention on signals of the given parameters."""
    return jax.jit(lambda drawn, signals: model.apply(drawn, signals))


@by_model("model", PARAMETERS)
def test_parameters(model):
    params = jax.eval_shape(model.init, jax.random.key(0), SIGNALS)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == PARAMETERS[model]


@by_model("model", PARAMETERS)
def test_outputs_have_the_shape_of_the_inputs(model):
    outputs, aux = compiled(model)(variables.draw(model, SIGNALS), SIGNALS)
    chex.assert_equal_shape([outputs, SIGNALS])
    assert np.isfinite(outputs).all()
    assert set(aux) <= {"attention"}


@pytest.mark.full
@by_model("model", PARAMETERS)
def test_outputs_are_the_same_under_jit_and_eager(model):
    drawn = variables.draw(model, SIGNALS)
    np.testing.assert_allclose(
        model.apply(drawn, jnp.asarray(SIGNALS))[0], compiled(model)(drawn, SIGNALS)[0], atol=1e-5
    )


def depends_on(model, position):
    """Which inputs the output at a position depends on, seen by its gradient, rounding apart."""
    drawn = jax.jit(model.init)(jax.random.key(0), SIGNALS[:1])
    gradient = jax.jit(jax.grad(lambda x: model.apply(drawn, x)[0][0, position, 0]))(SIGNALS[:1])
    size = np.abs(np.asarray(gradient[0, :, 0]))
    return np.flatnonzero(size > 1e-5 * size.max())


@pytest.mark.full
def test_a_cnn_sees_21_points_and_attention_sees_all():
    seen = depends_on(CNN(features=8), 50)
    assert (seen.min(), seen.max()) == (40, 60)
    assert len(depends_on(CNNAttention(features=8, key_features=12), 50)) == 100
    seen = depends_on(BiLSTM(features=8), 50)  # farther, and less the farther
    assert seen.min() < 40 and seen.max() > 60  # noqa: PT018


def test_attention_without_positions_is_blind_to_order_and_with_them_is_not():
    """A bump moved far from the borders moves the output with it, unless the model knows where it
    is.
    """
    bump = np.zeros((3, 100, 1), np.float32)
    bump[0, 30:36] = 2.0
    moved = np.roll(bump, 31, axis=1)
    for positions, same in ((False, True), (True, False)):
        model = CNNAttention(binary_positions=positions)
        drawn = variables.draw(model, bump)
        here, there = (np.asarray(compiled(model)(drawn, x)[0])[0, :, 0] for x in (bump, moved))
        assert np.allclose(here[25:41], there[56:72], atol=1e-5) is same


def test_residual_attention_is_its_equation():
    model = ResidualAttention(features=4, kernel_size=3, key_features=3, num_attentions=2)
    signals = SIGNALS[:2, :23]
    drawn = variables.draw(model, signals)
    outputs, aux = compiled(model)(drawn, signals)
    p, relu = (
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), drawn["params"]),
        lambda x: np.maximum(x, 0),
    )
    same_convolution = lambda x, q: naive(x[None], q["kernel"])[0] + q["bias"]
    block = lambda x, q: relu(
        x + same_convolution(relu(same_convolution(x, q["conv1"])), q["conv2"])
    )
    for row, signal in enumerate(np.asarray(signals, np.float64)):
        x = block(relu(same_convolution(signal, p["conv_in"])), p["block0"])
        for i in (1, 2):
            query, key, value = (
                x @ p[f"attention{i}"][f"{name}_kernel"] for name in ("query", "key", "value")
            )
            shares = np.exp(query @ key.T / np.sqrt(3))
            weights = shares / shares.sum(axis=-1, keepdims=True)
            np.testing.assert_allclose(aux["attention"][f"attention{i}"][row], weights, atol=1e-4)
            x = block(relu(x + weights @ value), p[f"block{i}"])
        np.testing.assert_allclose(
            outputs[row], same_convolution(x, p["conv_out"]), rtol=1e-3, atol=1e-3
        )


def test_attention_weights_are_returned_and_sum_to_one():
    model = CNNAttention()
    _, aux = compiled(model)(variables.draw(model, SIGNALS), SIGNALS)
    weights = np.asarray(aux["attention"]["attention"])
    chex.assert_shape(weights, (3, 100, 100))
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


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
