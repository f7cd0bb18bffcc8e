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
    PatchAttention,
    RNNAttention,
    StructuredAttention,
)
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
