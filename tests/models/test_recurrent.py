import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn.models import recurrent
from flax_attn.models.cpu import recurrence
from flax_attn.models.recurrent import CELLS, Recurrent, RecurrentLayer
from tests.models import variables

SIGNALS = np.random.default_rng(1).normal(size=(7, 2, 3)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive(cell, params, inputs, features):
    """The equations of PyTorch's cells, a step at a time."""
    w, u, b, c = (
        np.asarray(params[key], np.float64)
        for key in ("input_kernel", "recurrent_kernel", "input_bias", "recurrent_bias")
    )
    h, outputs = np.zeros(features), []
    memory = np.zeros(features)
    for x in np.asarray(inputs, np.float64):
        a, r = x @ w + b, h @ u + c
        if cell == "rnn":
            h = np.tanh(a + r)
        elif cell == "gru":
            reset, update = np.split(sigmoid(a[: 2 * features] + r[: 2 * features]), 2)
            new = np.tanh(a[2 * features :] + reset * r[2 * features :])
            h = (1 - update) * new + update * h
        else:
            i, f, g, o = np.split(a + r, 4)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(memory)
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_cells_equal_their_equations_whatever_stands_behind_the_end(cell, reverse):
    layer = RecurrentLayer(cell, 5, reverse)
    drawn = variables.draw(layer, SIGNALS)
    outputs, state = jax.tree.map(
        np.asarray, jax.jit(layer.apply)(drawn, SIGNALS, lengths=np.array([7, 4], np.int32))
    )
    for row, length in enumerate([7, 4]):
        steps = SIGNALS[:length, row]
        expected = naive(cell, drawn["params"], steps[::-1] if reverse else steps, 5)
        assert_allclose(outputs[:length, row], expected[::-1] if reverse else expected, atol=1e-5)
        assert_array_equal(outputs[length:, row], 0)
        assert_allclose(state[0][row], expected[-1], atol=1e-5)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_a_recurrent_layer_are_those_of_its_loop(cell, use_bias, monkeypatch):
    """The kernel's gradient is made outside the loop; JAX differentiates the loop as it stands, in
    both directions and past ends.
    """
    x, lengths = (
        np.random.default_rng(0).normal(size=(7, 3, 4)).astype(np.float32),
        np.array([7, 3, 0]),
    )
    state = (np.full((3, 5), 0.3, np.float32),) * CELLS[cell].num_states
    layers = [
        RecurrentLayer(cell, 5, reverse=reverse, use_bias=use_bias) for reverse in (False, True)
    ]
    drawn = [variables.draw(layer, x, state) for layer in layers]

    def loss(drawn, x, state, lengths):
        outputs = [layer.apply(params, x, state, lengths) for layer, params in zip(layers, drawn)]
        return sum((leaf**2).sum() for leaf in jax.tree.leaves(outputs))

    gradient = lambda: jax.jit(jax.value_and_grad(lambda *args: loss(*args), argnums=(0, 1, 2)))(
        drawn, x, state, lengths
    )
    ours = gradient()
    monkeypatch.setattr(recurrent, "recur", lambda *arguments: recurrence.run(*arguments)[:2])
    chex.assert_trees_all_close(ours, gradient(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_dropout_is_between_layers_alone(num_layers):
    inputs = jnp.asarray(np.swapaxes(SIGNALS, 0, 1))
    layers = Recurrent("rnn", 5, num_layers, dropout_rate=0.5)
    apply = functools.partial(layers.apply, variables.draw(layers, inputs))
    options = {"capture_intermediates": True, "mutable": ["intermediates"]}
    outputs, inside = jax.jit(lambda: apply(inputs, **options))()
    train = lambda key: apply(inputs, train=True, rngs={"dropout": key}, **options)
    # another program, so the last digits may differ
    dropped, beside = jax.jit(train)(jax.random.key(0))
    assert np.allclose(dropped, outputs, atol=1e-5) == (num_layers == 1)
    first, same = (own["intermediates"]["layer1"]["__call__"][0][0] for own in (inside, beside))
    assert_allclose(same, first, atol=1e-5)


def test_both_directions_are_joined_and_layers_stacked():
    layer = Recurrent("gru", 5, num_layers=2, bidirectional=True)
    outputs, shapes = jax.eval_shape(
        layer.init_with_output, jax.random.key(3), np.zeros((2, 7, 3), np.float32)
    )
    assert outputs.shape == (2, 7, 10)
    assert set(shapes["params"]) == {"forward1", "backward1", "forward2", "backward2"}
