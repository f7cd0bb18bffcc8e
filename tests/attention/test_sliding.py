"""A cache that slides decodes what the windowed pass computes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import apply, init
from tests.attention.decoding import CUTS, B, D, T, X, decoded, in_rows, wholes

WINDOW = (3, 0)


TERMS = {
    "window alone": {},
    "bias of distance": {"bias": fa.alibi(3)},
    "bias of heads and keys": {
        "bias": lambda q, k: 0.3 * jnp.arange(3.0)[:, None, None] * (k[None] % 4)
    },
    "bias of positions": {"bias": lambda q, k: jnp.sin(1.0 * q) * jnp.cos(1.0 * k)},
    "mask of keys": {"mask": lambda q, k: k % 3 != 1},
    "mask of pairs": {"mask": lambda q, k: (q - k) % 2 == 0},
    "mask of queries": {"mask": lambda q, k: q != 4},
    "mask of rows": {"mask": lambda q, k: k[None, None] >= jnp.array([0, 3]).reshape(2, 1, 1, 1)},
}


LAYERS = {
    "plain": {},
    "rotary": {"rotary": True, "rotary_features": 4, "num_key_heads": 1},
    "rotary in blocks": {"rotary": True, "chunk_size": 2},
}


def pairs_of(rows, columns, some_rows, column):
    """Pairs of values, those of these rows or of this column."""
    return [(a, b) for a in rows for b in columns if a in some_rows or b == column]


@functools.cache
def windowed(terms):
    """What the windowed pass computes."""
    layer = fa.MultiHeadAttention(3, rotary=True)
    options = {"causal": True, "window": WINDOW, **TERMS[terms]}
    return apply(layer, init(layer, X), X, **options).context


ALL_CUTS = [*CUTS, "parts longer than the window"]
OF_PAIRS = ("bias of positions", "mask of pairs")


@pytest.mark.parametrize(
    ("terms", "cuts"), pairs_of(TERMS, ALL_CUTS, OF_PAIRS, "a prompt and tokens")
)
def test_a_sliding_cache_decodes_what_the_windowed_pass_computes(terms, cuts):
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=WINDOW)
    assert cache.key.shape == (B, 3, 4, 8)
    context, cache = decoded(
        layer, variables, CUTS.get(cuts, [5, 6]), cache, window=WINDOW, **TERMS[terms]
    )
    np.testing.assert_allclose(context, windowed(terms), atol=1e-5)
    np.testing.assert_array_equal(cache.length, T)


@pytest.mark.parametrize(
    ("options", "left"), pairs_of(LAYERS, [0, 1, 3, 20], ["rotary in blocks"], 3)
)
def test_a_sliding_cache_after_prompts_of_different_lengths(options, left):
    layer = fa.MultiHeadAttention(3, **LAYERS[options])
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=(left, 0))
    terms = {"window": (left, 0), "bias": fa.alibi(3), "mask": lambda q, k: k != 3}
    contexts = in_rows(layer, variables, cache, **terms)
    for context, whole in zip(contexts, wholes(layer, variables, **terms), strict=True):
        np.testing.assert_allclose(context, whole, atol=1e-5)


def test_a_smaller_window_than_the_sliding_cache_was_made_for():
    layer = fa.MultiHeadAttention(3)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=(5, 0))
    expected = apply(layer, variables, X, causal=True, window=(2, None))
    context, _ = decoded(layer, variables, CUTS["a prompt and tokens"], cache, window=(2, None))
    np.testing.assert_allclose(context, expected.context, atol=1e-5)


def test_the_weights_of_a_sliding_cache_are_on_its_last_tokens_and_the_new_ones():
    layer = fa.MultiHeadAttention(3)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=WINDOW)
    full = apply(layer, variables, X, causal=True, window=WINDOW).weights
    first, cache = apply(layer, variables, X[:, :2], cache, window=WINDOW, method="decode")
    np.testing.assert_allclose(first.weights[..., 3:], full[:, :, :2, :2], atol=1e-6)
    np.testing.assert_array_equal(first.weights[..., :3], 0)
    (_, weights), _ = apply(layer, variables, X[:, 2:5], cache, window=WINDOW, method="decode")
    assert weights.shape == (B, 3, 3, 3 + 3)
    np.testing.assert_allclose(weights[..., 1:], full[:, :, 2:5, :5], atol=1e-6)
    np.testing.assert_array_equal(weights[..., 0], 0)


def test_a_step_of_a_sliding_cache_costs_the_same_after_any_number_of_tokens():
    """No array of a step has more than the window and its tokens."""
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=(7, 0))
    program = jax.jit(
        lambda x, cache: layer.apply(variables, x, cache, window=(7, 0), method="decode")
    )
    _, cache = program(X[:, :1], cache._replace(length=jnp.full(B, 1_000_000)))
    assert sum(leaf.size for leaf in jax.tree.leaves(cache)) == 2 * B * 8 * D + B
    assert program._cache_size() == 1
    memory = program.lower(X[:, :1], cache).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2**15


def test_too_many_tokens_under_jit_fill_a_row_with_nan():
    layer = fa.MultiHeadAttention(3)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=WINDOW)
    attended, cache = apply(
        layer, variables, X[:, :2], cache, lengths=np.array([1, 3]), window=WINDOW, method="decode"
    )
    for array in (attended.context, cache.key, cache.value):
        assert np.isfinite(array[0]).all()
        assert np.isnan(array[1]).all()
