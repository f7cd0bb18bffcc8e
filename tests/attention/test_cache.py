"""Decoding gives what the causal pass gives for all tokens at once, with rotary positions too."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention import masks
from flax_attn.attention.cache import append, empty_cache
from tests.attention.compiled import apply, init, run
from tests.attention.decoding import CUTS, MEMORY, B, D, T, X, decoded, in_rows, wholes

ROTARY = {
    "all features": {"rotary": True},
    "some features, grouped heads": {
        "rotary": True,
        "rotary_features": 4,
        "num_key_heads": 1,
        "rotary_max_period": 100.0,
    },
    "normalised": {"rotary": True, "query_key_norm": True},
}


# any two of options, cuts and sizes of blocks meet
CASES = [
    (options, cuts, size)
    for i, options in enumerate(ROTARY)
    for j, cuts in enumerate(CUTS)
    for k, size in enumerate((None, 4))
    if (i + j + k) % 2 == 0
]


@functools.cache
def causal(options, chunk_size):
    """What the causal pass computes."""
    layer = fa.MultiHeadAttention(3, chunk_size=chunk_size, **ROTARY[options])
    return apply(layer, init(layer, X), X, causal=True).context


@pytest.mark.parametrize(("options", "cuts", "chunk_size"), CASES)
def test_rotary_decodes_what_the_causal_pass_computes(options, cuts, chunk_size):
    layer = fa.MultiHeadAttention(3, chunk_size=chunk_size, **ROTARY[options])
    variables = init(layer, X)
    expected = causal(options, None)
    np.testing.assert_allclose(causal(options, chunk_size), expected, atol=1e-5)
    context, cache = decoded(layer, variables, CUTS[cuts], layer.init_cache(D, (B,), T + 2))
    np.testing.assert_allclose(context, expected, atol=1e-5)
    np.testing.assert_array_equal(cache.length, T)


def test_rotary_after_prompts_of_different_lengths():
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables = init(layer, X)
    contexts = in_rows(layer, variables, layer.init_cache(D, (B,), T))
    for context, whole in zip(contexts, wholes(layer, variables), strict=True):
        np.testing.assert_allclose(context, whole, atol=1e-5)


def test_rotary_is_the_rotation_of_the_projections():
    layer, plain = (
        fa.MultiHeadAttention(3, rotary=True, rotary_features=6),
        fa.MultiHeadAttention(3),
    )
    variables = init(layer, X)
    params = jax.tree.map(np.asarray, variables["params"])

    def turned(name):
        heads = (
            np.einsum("btd,dhe->bhte", X, params[name]["kernel"]) + params[name]["bias"][:, None]
        )
        return np.concatenate([run(fa.rotary, heads[..., :6]), heads[..., 6:]], axis=-1)

    scores = turned("query") @ turned("key").swapaxes(-1, -2) / np.sqrt(8)
    expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(apply(layer, variables, X).weights, expected, atol=1e-5)
    assert np.abs(apply(plain, variables, X).weights - expected).max() > 0.01


def test_a_shift_of_all_positions_changes_no_weight():
    """A query at `query_offset` and a key that has as many keys before it, which lengths of
    segments hide.
    """
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables = init(layer, X)
    expected = apply(layer, variables, X, X).weights
    before = np.concatenate([MEMORY, X], axis=1)
    segments = {
        "query_segments": np.ones((B, T), int),
        "key_segments": np.repeat([[0] * 5 + [1] * T], B, axis=0),
    }
    shifted = apply(layer, variables, X, before, query_offset=5, **segments).weights
    np.testing.assert_allclose(shifted[..., 5:], expected, atol=1e-5)
    offsets = apply(layer, variables, X, before, query_offset=np.array([5, 3]), **segments).weights[
        ..., 5:
    ]
    np.testing.assert_allclose(offsets[0], expected[0], atol=1e-5)
    assert np.abs(offsets[1] - expected[1]).max() > 0.01


def test_a_cached_memory_counts_from_0_as_the_memory_does():
    layer, lengths = fa.MultiHeadAttention(3, rotary=True), np.array([5, 3])
    variables = init(layer, X, MEMORY)
    expected = apply(layer, variables, X, MEMORY, key_lengths=lengths, query_offset=2)
    cache = layer.init_cache(D, (B,), 6)
    for part, real in ((slice(0, 2), 2), (slice(2, 5), lengths - 2)):
        cache = apply(
            layer,
            variables,
            cache,
            MEMORY[:, part],
            lengths=np.broadcast_to(real, B),
            method="extend",
        )
    np.testing.assert_allclose(
        apply(layer, variables, X, cache=cache, query_offset=2).context, expected.context, atol=1e-5
    )


def test_rotary_in_the_blocks_of_a_transformer():
    heads = lambda: fa.MultiHeadAttention(3, rotary=True, num_key_heads=1)
    block = fa.DecoderBlock(heads(), heads(), fa.FeedForward(17))
    variables, far = (
        init(block, X, MEMORY),
        lambda q, k: abs(jnp.subtract(*masks.aligned(q, k))) > 1,
    )
    full = apply(block, variables, X, MEMORY, window=(3, 0), memory_mask=far).context
    for cache in (heads().init_cache(D, (B,), T), heads().init_cache(D, (B,), window=(3, 0))):
        step = jax.jit(
            lambda x, cache: block.apply(
                variables, x, jnp.asarray(MEMORY), window=(3, 0), memory_mask=far, cache=cache
            )
        )
        for first, last in ((0, 5), (5, 6), (6, 11)):
            outputs = step(X[:, first:last], cache)
            cache = outputs.cache
            np.testing.assert_allclose(outputs.context, full[:, first:last], atol=1e-5)
    encoder = fa.EncoderBlock(heads(), fa.FeedForward(17))
    reversed_outputs = apply(encoder, init(encoder, X), X[:, ::-1]).context[:, ::-1]
    assert np.abs(reversed_outputs - apply(encoder, init(encoder, X), X).context).max() > 0.01


def test_the_real_tokens_of_each_row_are_appended_and_nothing_else():
    cache = empty_cache((2,), max_length=4, num_heads=1, key_features=2, value_features=3)
    tokens = np.arange(1.0, 7).reshape(2, 3, 1, 1)
    key, value = jnp.tile(tokens, 2), jnp.tile(-tokens, 3)
    cache = append(cache, key, value, lengths=np.array([1, 3]))
    np.testing.assert_array_equal(cache.length, [1, 3])
    np.testing.assert_array_equal(cache.key[:, 0, :, 0], [[1, 0, 0, 0], [4, 5, 6, 0]])
    np.testing.assert_array_equal(cache.value[:, 0, :, 2], [[-1, 0, 0, 0], [-4, -5, -6, 0]])
    last = jax.jit(append)(cache, key[:, :2], value[:, :2])  # the second row has room for one
    np.testing.assert_array_equal(last.key[0, 0, :, 0], [1, 1, 2, 0])
    assert np.isnan(last.key[1]).all()
    assert np.isnan(last.value[1]).all()
    with pytest.raises(ValueError, match="at most the 4 tokens"):
        append(cache, key[:, :2], value[:, :2])
