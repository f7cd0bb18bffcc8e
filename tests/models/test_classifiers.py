"""Classifiers and the layers they are made of: published sizes, padding that changes nothing, cells
as loops.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import (
    MLP,
    GRUAttention,
    InputAttentionRNN,
    PatchAttention,
    PatchTransformer,
    RNNAttention,
    StructuredAttention,
    recurrent,
)
from flax_attn.models.images import cut_patches
from flax_attn.models.initializers import INITIALIZATIONS
from flax_attn.models.recurrent import CELLS, Recurrent, RecurrentLayer
from tests.models import variables

IMAGES = np.random.default_rng(0).uniform(size=(3, 28, 28)).astype(np.float32)
TEXTS = {
    "tokens": jnp.array([[2, 3, 4, 5, 6], [6, 5, 0, 0, 0], [0, 0, 0, 0, 0]]),
    "lengths": jnp.array([5, 2, 0]),
}
SMALL = {
    "vocabulary_size": 7,
    "num_classes": 3,
    "embedding_features": 5,
    "features": 4,
    "dropout_rate": 0.5,
}
TEXT_MODELS = {
    "RNN": RNNAttention(**SMALL),
    "LSTM, two layers, both directions": RNNAttention(
        **SMALL, cell="lstm", num_layers=2, bidirectional=True, initialization="flax"
    ),
    "GRU attention": GRUAttention(**SMALL),
    "structured": StructuredAttention(**SMALL, num_hops=2),
}
IMAGE_MODELS = {
    "MLP": MLP(10),
    "patches": PatchAttention(10),
    "Transformer": PatchTransformer(10, 7, 8, 2, 1, 8),
}
SIGNALS = np.random.default_rng(1).normal(size=(7, 2, 3)).astype(np.float32)


@functools.cache
def evaluate(name):
    """A function of parameters and texts: `((loss, (logits, aux)), gradient)` without dropout,
    compiled.
    """

    def loss(params, inputs):
        logits, aux = TEXT_MODELS[name].apply({"params": params}, inputs)
        return jnp.sum(jnp.sin(logits[:2])), (logits, aux)

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


@pytest.mark.parametrize(
    ("model", "inputs", "count"),
    [
        (MLP(10), IMAGES, 623_290),
        (PatchAttention(10), IMAGES, 15_200),
        (RNNAttention(5_000, 4), TEXTS, 542_873),
        (GRUAttention(16_585, 3), TEXTS, 1_877_639),
    ],
    ids=["mnist_mlp", "mnist_attention", "ag_news", "sst"],
)
def test_published_sizes(model, inputs, count):
    params = jax.eval_shape(model.init, jax.random.key(0), inputs)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_a_longer_padding_changes_no_output_and_no_gradient(name):
    params = variables.draw(TEXT_MODELS[name], TEXTS)["params"]
    longer = {
        "tokens": np.pad(TEXTS["tokens"], ((0, 0), (0, 3)), constant_values=4),
        "lengths": TEXTS["lengths"],
    }
    (value, (logits, aux)), gradient = evaluate(name)(params, longer)
    (expected, _), expected_gradient = evaluate(name)(params, TEXTS)
    chex.assert_trees_all_close((value, gradient), (expected, expected_gradient), atol=1e-6)
    assert np.isfinite(logits).all()
    (weights,) = map(np.asarray, aux["attention"].values())
    np.testing.assert_array_equal(weights[1, ..., 2:], 0)
    np.testing.assert_array_equal(weights[2], 0)
    np.testing.assert_allclose(weights[0].reshape(-1, 8)[0].sum(), 1, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", TEXT_MODELS)
def test_a_text_does_not_see_the_others(name):
    model = TEXT_MODELS[name]
    drawn = variables.draw(model, TEXTS)
    together, _ = jax.jit(model.apply)(drawn, TEXTS)
    alone, _ = jax.jit(model.apply)(
        drawn, {"tokens": TEXTS["tokens"][1:2, :2], "lengths": TEXTS["lengths"][1:2]}
    )
    np.testing.assert_allclose(together[1:2], alone, atol=1e-6)


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_dropout_is_on_in_training_alone(name):
    drawn = variables.draw(TEXT_MODELS[name], TEXTS)
    train = jax.jit(
        lambda drawn, key: TEXT_MODELS[name].apply(drawn, TEXTS, train=True, rngs={"dropout": key})[
            0
        ]
    )
    outputs = [np.asarray(train(drawn, jax.random.key(i)))[0] for i in (0, 1)]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-4
    without = jax.jit(TEXT_MODELS[name].clone(dropout_rate=0.0).apply)
    np.testing.assert_allclose(
        evaluate(name)(drawn["params"], TEXTS)[0][1][0], without(drawn, TEXTS)[0], atol=1e-6
    )


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_to_logits(name):
    model = IMAGE_MODELS[name]
    logits = jax.jit(model.apply)(variables.draw(model, IMAGES), IMAGES)[0]
    assert logits.shape == (3, 10)
    assert np.isfinite(logits).all()


@pytest.mark.full
@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_to_logits_under_jit_and_eager(name):
    model = IMAGE_MODELS[name]
    drawn = variables.draw(model, IMAGES)
    np.testing.assert_allclose(
        model.apply(drawn, jnp.asarray(IMAGES))[0],
        jax.jit(model.apply)(drawn, IMAGES)[0],
        atol=1e-5,
    )


def test_patches_are_cut_row_by_row():
    image = jnp.asarray(np.arange(24.0).reshape(1, 4, 6))
    patches = np.asarray(cut_patches(image, 2))
    np.testing.assert_array_equal(patches[0, 1], [2, 3, 8, 9])
    np.testing.assert_array_equal(patches[0, 3], [12, 13, 18, 19])
    with pytest.raises(ValueError, match="patch_size that divides 4 and 6 pixels, got 4"):
        cut_patches(image, 4)


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
        np.testing.assert_allclose(
            outputs[:length, row], expected[::-1] if reverse else expected, atol=1e-5
        )
        np.testing.assert_array_equal(outputs[length:, row], 0)
        np.testing.assert_allclose(state[0][row], expected[-1], atol=1e-5)


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
        found = [layer.apply(each, x, state, lengths) for layer, each in zip(layers, drawn)]
        return sum((leaf**2).sum() for leaf in jax.tree.leaves(found))

    gradient = lambda: jax.jit(jax.value_and_grad(lambda *args: loss(*args), argnums=(0, 1, 2)))(
        drawn, x, state, lengths
    )
    ours = gradient()
    in_a_loop = lambda *arguments: recurrent.run(CELLS[cell].step, *arguments)[:2]
    monkeypatch.setitem(CELLS, cell, CELLS[cell]._replace(recur=in_a_loop))
    chex.assert_trees_all_close(ours, gradient(), rtol=1e-5, atol=1e-5)


def test_both_directions_are_joined_and_layers_stacked():
    layer = Recurrent("gru", 5, num_layers=2, bidirectional=True)
    outputs, found = jax.eval_shape(
        layer.init_with_output, jax.random.key(3), np.zeros((2, 7, 3), np.float32)
    )
    assert outputs.shape == (2, 7, 10)
    assert set(found["params"]) == {"forward1", "backward1", "forward2", "backward2"}


def test_initialisations_are_pytorchs_and_flaxs():
    torch, flax = INITIALIZATIONS["torch"], INITIALIZATIONS["flax"]
    key = jax.random.key(0)
    kernel = torch.kernel(key, (400, 50))
    assert 0.045 < np.abs(kernel).max() <= 0.05
    np.testing.assert_allclose(np.std(torch.embedding(key, (300, 300))), 1, atol=0.02)
    recurrent = flax.recurrent_kernel(4)(key, (4, 12))
    for gate in np.split(np.asarray(recurrent), 3, axis=1):
        np.testing.assert_allclose(gate @ gate.T, np.eye(4), atol=1e-5)
    np.testing.assert_allclose(np.std(flax.kernel(key, (400, 50))), 0.05, atol=0.003)


def test_input_attention_weighs_the_series_of_each_step():
    model = InputAttentionRNN(4)
    outputs, aux = jax.jit(model.apply)(variables.draw(model, SIGNALS), SIGNALS)
    assert outputs.shape == (7, 2, 1)
    np.testing.assert_allclose(
        np.asarray(aux["attention"]["input"]).sum(axis=-1), np.ones((7, 2)), atol=1e-5
    )
