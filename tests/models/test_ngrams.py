"""The classifier of words, character n-grams and pairs: padding changes nothing, and each part is
heard.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn.models import NGramAttention
from flax_attn.models.ngrams import sum_over_root
from tests.models.variables import draw

SMALL = {
    "vocabulary_size": 7,
    "num_classes": 3,
    "embedding_features": 5,
    "features": 4,
    "attention_features": 3,
    "num_hops": 2,
}
MODELS = {
    "GRU, n-grams": NGramAttention(**SMALL, num_ngrams=11),
    "convolution and RNN, n-grams, pairs": NGramAttention(
        **SMALL, num_ngrams=11, num_pairs=6, encoders=("convolution", "rnn")
    ),
}
rng = np.random.default_rng(0)
LENGTHS = np.array([5, 2, 1, 0])
PRESENT = np.arange(5) < LENGTHS[:, None]
TEXTS = {
    "tokens": np.where(PRESENT, rng.integers(1, 7, (4, 5)), 0),
    "lengths": LENGTHS,
    "pairs": np.where(np.arange(5) < LENGTHS[:, None] - 1, rng.integers(1, 6, (4, 5)), 0),
    "ngrams": np.where(PRESENT[..., None], rng.integers(0, 11, (4, 5, 3)), 0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_longer_padding_changes_no_output_and_no_gradient(name):
    longer = {
        key: array
        if key == "lengths"
        else np.pad(array, ((0, 0), (0, 3), *[(0, 0)] * (array.ndim - 2)))
        for key, array in TEXTS.items()
    }
    function = jax.jit(
        jax.value_and_grad(lambda v, inputs: jnp.sum(jnp.sin(MODELS[name].apply(v, inputs)[0])))
    )
    drawn = draw(MODELS[name], TEXTS)
    chex.assert_trees_all_close(function(drawn, longer), function(drawn, TEXTS), atol=1e-6)
    attention = jax.jit(MODELS[name].apply)(drawn, longer)[1]["attention"]
    of_pairs = ["hops_words", "hops_pairs"] if MODELS[name].num_pairs else []
    assert set(attention) == {*(f"hops_{encoder}" for encoder in MODELS[name].encoders), *of_pairs}
    for weights in map(np.asarray, attention.values()):
        assert weights.shape == (4, 2, 8)
        assert_array_equal(weights[1, :, 2:], 0)
        assert_array_equal(weights[3], 0)
    whole = [attention[key] for key in attention if key not in of_pairs] + (
        [sum(attention[key] for key in of_pairs)] if of_pairs else []
    )
    for weights in whole:
        assert_allclose(weights[:3].sum(axis=-1), 1, atol=1e-6)


def test_convolutions_are_named_by_how_many_words_they_read():
    params = draw(MODELS["convolution and RNN, n-grams, pairs"], TEXTS)["params"]
    kernels = {name: part["kernel"].shape for name, part in params.items() if name[-1].isdigit()}
    assert kernels == {f"convolution{width}": (width, 5, 4) for width in (2, 3, 4)}


@pytest.mark.parametrize("name", MODELS)
def test_every_part_is_heard_and_what_is_unknown_is_not(name):
    logits = jax.jit(lambda v, inputs: MODELS[name].apply(v, inputs)[0])
    drawn = draw(MODELS[name], TEXTS)
    apply = functools.partial(logits, drawn)
    texts = TEXTS | {"tokens": np.where(PRESENT, 2, 0), "pairs": np.where(TEXTS["pairs"] > 0, 2, 0)}
    heard = apply(texts)
    changes = [("tokens", 3), ("ngrams", 4)] + ([("pairs", 3)] if MODELS[name].num_pairs else [])
    for key, other in changes:
        changed = texts | {key: np.where(texts[key] > 0, other, 0)}
        assert np.abs(apply(changed) - heard)[0].max() > 1e-3, key
    unknown = [
        texts | {"tokens": np.where(PRESENT, 1, 0), "pairs": pairs}
        for pairs in (0 * TEXTS["pairs"], np.minimum(TEXTS["pairs"], 1))
    ]
    assert_array_equal(apply(unknown[0]), apply(unknown[1]))
    params = drawn["params"]
    silent = {
        **params,
        "words": {
            "embedding": params["words"]["embedding"] * np.array([1, 100, *[1] * 5])[:, None]
        },
    }
    assert_array_equal(logits({"params": silent}, unknown[0]), apply(unknown[0]))


def test_a_text_of_one_word_keeps_it_when_words_are_dropped():
    model = MODELS["GRU, n-grams"].clone(
        word_dropout_rate=0.9, embedding_dropout_rate=0.0, dropout_rate=0.0
    )
    train = jax.jit(
        lambda v, texts, key: model.apply(v, texts, train=True, rngs={"dropout": key})[0]
    )
    drawn = draw(MODELS["GRU, n-grams"], TEXTS)
    outputs = np.stack([train(drawn, TEXTS, jax.random.key(i)) for i in range(5)])
    expected = np.asarray(jax.jit(model.apply)(drawn, TEXTS)[0])
    assert_allclose(outputs[:, 2], np.broadcast_to(expected[2], (5, 3)), atol=1e-6)
    assert np.abs(outputs[:, 0] - expected[0]).max() > 1e-3


def test_a_sum_over_the_root_of_their_number_keeps_the_variance():
    mask = np.array([[True] * 4, [False] * 4])
    assert_allclose(sum_over_root(jnp.ones((2, 4, 3)), jnp.asarray(mask)), [[2.0] * 3, [0.0] * 3])
