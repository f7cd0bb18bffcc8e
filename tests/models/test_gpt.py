"""A GPT: a step with the cache is the same as all at once, and nothing comes from the future."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.models import GPT
from flax_attn.models.gpt import gelu
from flax_attn.models.language import logits_of
from tests.models.variables import draw

SMALL = {"vocabulary_size": 11, "max_length": 12, "features": 8, "num_heads": 4, "num_blocks": 2}
MODELS = {
    "learned": GPT(**SMALL),
    "rotary": GPT(**SMALL, positions="rotary"),
    "window": GPT(**SMALL, positions="rotary", window=3),
    "grouped heads": GPT(**SMALL, num_key_heads=2),
    "all": GPT(**SMALL, positions="rotary", window=4, num_key_heads=1),
}
TOKENS = jnp.asarray(np.random.default_rng(0).integers(2, 11, (3, 12)), jnp.int32)

SOME = ("learned", "all")  # together they have every part


@pytest.mark.parametrize("name", SOME)
def test_every_step_with_the_cache_is_the_same_as_all_at_once(name):
    model, variables = MODELS[name], draw(MODELS[name], TOKENS)
    whole, _ = jax.jit(model.apply)(variables, TOKENS)
    decode = jax.jit(
        lambda tokens, caches, lengths: model.apply(
            variables, tokens, caches, lengths, method="decode"
        )
    )
    lengths = np.array([5, 3, 1])
    caches = model.apply(variables, 3, method="start")
    logits, caches = decode(TOKENS[:, :5], caches, lengths)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(logits[row, :length], whole[row, :length], atol=1e-5)
    for step in range(7):
        at = lengths + step
        logits, caches = decode(TOKENS[np.arange(3), at][:, None], caches, np.ones(3, np.int32))
        np.testing.assert_allclose(logits[:, 0], whole[np.arange(3), at], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_token_changes_nothing_before_it_and_beyond_the_window(name):
    model, variables = MODELS[name], draw(MODELS[name], TOKENS)
    logits = jax.jit(lambda tokens: model.apply(variables, tokens)[0])
    other = TOKENS.at[:, 4].set(TOKENS[:, 4] % 9 + 2)
    same = np.isclose(logits(TOKENS), logits(other), atol=1e-7).all(axis=(0, 2))
    reach = model.num_blocks * (model.window - 1) if model.window else 12
    expected = (np.arange(12) < 4) | (np.arange(12) > 4 + reach)
    np.testing.assert_array_equal(same, expected)


def test_weights_are_there_on_request_and_change_nothing():
    model, variables = MODELS["window"], draw(MODELS["window"], TOKENS)
    apply = jax.jit(model.apply, static_argnames="need_weights")
    plain, without = apply(variables, TOKENS)
    looked, aux = apply(variables, TOKENS, need_weights=True)
    np.testing.assert_allclose(plain, looked, atol=1e-5)
    assert without["attention"] == {}
    assert list(aux["attention"]) == ["block0", "block1"]
    for weights in aux["attention"].values():
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
        distance = np.arange(12)[:, None] - np.arange(12)
        assert (weights[:, :, (distance < 0) | (distance > 2)] == 0).all()


def test_the_sizes_of_nano_gpt_have_its_parameters():
    model = GPT(vocabulary_size=65, max_length=64)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 64), jnp.int32))
    # 12 d^2 of each block, its 13 d of biases and scales, two tables and the last norm
    expected = 4 * (12 * 128**2 + 13 * 128) + (65 + 64) * 128 + 2 * 128
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == expected == 809_856


def test_dropout_is_for_training_alone():
    model = GPT(**SMALL, dropout_rate=0.5)
    variables = draw(model, TOKENS)
    plain, _ = jax.jit(model.apply)(variables, TOKENS)
    train = jax.jit(lambda key: model.apply(variables, TOKENS, train=True, rngs={"dropout": key}))
    first, second = (train(jax.random.key(i))[0] for i in range(2))
    assert np.abs(plain - first).max() > 0.01 < np.abs(first - second).max()


def test_dropout_drops_embeddings_too():
    model = GPT(**SMALL | {"num_blocks": 0}, dropout_rate=0.5)
    variables = draw(model, TOKENS)
    train = lambda key: model.apply(variables, TOKENS, train=True, rngs={"dropout": key})[0]
    plain, _ = model.apply(variables, TOKENS)
    assert np.abs(plain - train(jax.random.key(0))).max() > 0.01


def test_unknown_positions_are_told():
    with pytest.raises(ValueError, match=r"positions of .*'learned', 'rotary'.*, got 'none'"):
        GPT(**SMALL, positions="none").init(jax.random.key(0), TOKENS)


def test_gelu_is_the_exact_one():
    exact = [-0.15865525, 0, 0.84134475]  # that by tanh differs by 1.5e-4
    np.testing.assert_allclose(gelu(jnp.array([-1.0, 0.0, 1.0])), exact, rtol=1e-6)


def test_what_a_text_is_predicted_by_drops_nothing():
    model = GPT(**SMALL, dropout_rate=0.5)
    variables = draw(model, TOKENS)
    expected, _ = GPT(**SMALL).apply(variables, TOKENS)
    logits = logits_of(model, variables["params"], TOKENS)
    np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_embeddings_begin_small_as_in_gpt_2():
    """The logits are products with them, so the first loss is that of guessing."""
    model = GPT(**SMALL | {"vocabulary_size": 300, "features": 64})
    embedding = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]["embedding"]["embedding"]
    np.testing.assert_allclose(np.std(embedding), 0.02, rtol=0.05)
