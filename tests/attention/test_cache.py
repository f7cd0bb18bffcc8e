"""Decoding gives what the causal pass gives for all tokens at once: rotary positions, and caches
that slide.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention import masks
from tests.attention.compiled import apply, init, normal, run

B, T, D = 2, 11, 24
X, MEMORY = normal(0, B, T, D), normal(1, B, 5, D)
LENGTHS = np.array([6, 2])  # of two prompts

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
CUTS = {"at once": [T], "token by token": [1] * T, "a prompt and tokens": [6, 1, 1, 3]}


def decoded(layer, variables, cuts, cache, **options):
    """The contexts of all tokens, decoded in parts of these sizes."""
    step = jax.jit(lambda x, cache: layer.apply(variables, x, cache, method="decode", **options))
    contexts, start = [], 0
    for size in cuts:
        attended, cache = step(X[:, start : start + size], cache)
        contexts, start = [*contexts, attended.context], start + size
    return np.concatenate(contexts, axis=1), cache


def in_rows(layer, variables, cache, **options):
    """The contexts of each row after prompts of `LENGTHS`: the first tokens of X, then tokens one
    by one from index 6 on.
    """
    step = jax.jit(
        lambda x, cache, lengths=None: layer.apply(
            variables, x, cache, lengths=lengths, method="decode", **options
        )
    )
    (context, _), cache = step(X[:, :6], cache, LENGTHS)
    contexts = [[context[row, :length]] for row, length in enumerate(LENGTHS)]
    for t in range(6, T):
        (context, _), cache = step(X[:, t : t + 1], cache)
        for row in range(B):
            contexts[row].append(context[row])
    return [np.concatenate(parts) for parts in contexts]


def sequences():
    """What `in_rows` decodes, a sequence for each row."""
    return [
        np.concatenate([X[[row], :length], X[[row], 6:]], axis=1)
        for row, length in enumerate(LENGTHS)
    ]


@pytest.mark.parametrize("options", ROTARY)
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_rotary_decodes_what_the_causal_pass_computes(options, cuts, chunk_size):
    layer = fa.MultiHeadAttention(3, chunk_size=chunk_size, **ROTARY[options])
    variables = init(layer, X)
    expected = apply(fa.MultiHeadAttention(3, **ROTARY[options]), variables, X, causal=True).context
    np.testing.assert_allclose(apply(layer, variables, X, causal=True).context, expected, atol=1e-5)
    found, cache = decoded(layer, variables, CUTS[cuts], layer.init_cache(D, (B,), T + 2))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(cache.length, T)


def test_rotary_after_prompts_of_different_lengths():
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables = init(layer, X)
    for found, sequence in zip(
        in_rows(layer, variables, layer.init_cache(D, (B,), T)), sequences()
    ):
        np.testing.assert_allclose(
            found, apply(layer, variables, sequence, causal=True).context[0], atol=1e-5
        )


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


# A cache that slides.

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


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("cuts", [*CUTS, "parts longer than the window"])
def test_a_sliding_cache_decodes_what_the_windowed_pass_computes(terms, cuts):
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=WINDOW)
    assert cache.key.shape == (B, 4, 3, 8)
    expected = apply(layer, variables, X, causal=True, window=WINDOW, **TERMS[terms]).context
    found, cache = decoded(
        layer, variables, CUTS.get(cuts, [5, 6]), cache, window=WINDOW, **TERMS[terms]
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(cache.length, T)


@pytest.mark.parametrize("options", LAYERS)
@pytest.mark.parametrize("left", [0, 1, 3, 20])
def test_a_sliding_cache_after_prompts_of_different_lengths(options, left):
    layer = fa.MultiHeadAttention(3, **LAYERS[options])
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=(left, 0))
    terms = {"window": (left, 0), "bias": fa.alibi(3), "mask": lambda q, k: k != 3}
    for found, sequence in zip(in_rows(layer, variables, cache, **terms), sequences()):
        np.testing.assert_allclose(
            found, apply(layer, variables, sequence, causal=True, **terms).context[0], atol=1e-5
        )


def test_a_smaller_window_than_the_sliding_cache_was_made_for():
    layer = fa.MultiHeadAttention(3)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=(5, 0))
    expected = apply(layer, variables, X, causal=True, window=(2, None))
    found, _ = decoded(layer, variables, CUTS["a prompt and tokens"], cache, window=(2, None))
    np.testing.assert_allclose(found, expected.context, atol=1e-5)


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


def test_mistakes_with_a_sliding_cache_are_told():
    layer = fa.MultiHeadAttention(3)
    variables, cache, x = (
        init(layer, X),
        layer.init_cache(D, (B,), window=WINDOW),
        jnp.asarray(X[:, :2]),
    )
    decode = lambda **options: layer.apply(variables, x, cache, method="decode", **options)
    for error, said, call in (
        (ValueError, r"at most 3 keys to the left, .* got window=None", lambda: decode()),
        (
            ValueError,
            r"at most 3 keys to the left, .* got window=\(4, 0\)",
            lambda: decode(window=(4, 0)),
        ),
        (
            ValueError,
            r"at most 3 keys to the left, .* got window=\(None, 0\)",
            lambda: decode(window=(None, 0)),
        ),
        (
            ValueError,
            r"mask to be a function of positions .* shape \(2, 5\)",
            lambda: decode(window=WINDOW, mask=jnp.ones((2, 5), bool)),
        ),
        (TypeError, "boolean mask", lambda: decode(window=WINDOW, mask=lambda q, k: q - k)),
        (
            ValueError,
            r"lengths of at most the 2 tokens .* got 3",
            lambda: decode(window=WINDOW, lengths=jnp.array([3, 1])),
        ),
        (TypeError, "SlidingCache", lambda: layer.apply(variables, x, cache=cache)),
        (
            ValueError,
            r"left bound for a sliding cache, got \(None, 0\)",
            lambda: layer.init_cache(D, (B,), window=(None, 0)),
        ),
        (
            ValueError,
            "max_length or window for a cache, got neither",
            lambda: layer.init_cache(D, (B,)),
        ),
    ):
        with pytest.raises(error, match=said):
            call()


def test_too_many_tokens_under_jit_fill_a_row_with_nan():
    layer = fa.MultiHeadAttention(3)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=WINDOW)
    attended, cache = apply(
        layer, variables, X[:, :2], cache, lengths=np.array([1, 3]), window=WINDOW, method="decode"
    )
    for array in (attended.context, cache.key, cache.value):
        assert np.isfinite(array[0]).all()
        assert np.isnan(array[1]).all()


def test_mask_functions_of_sliding_caches_have_the_positions_of_masks():
    layer = fa.MultiHeadAttention(3)
    variables, cache = init(layer, X), layer.init_cache(D, (B,), window=WINDOW)
    found, _ = decoded(layer, variables, [4, 7], cache, window=WINDOW, mask=masks.causal)
    np.testing.assert_allclose(
        found, apply(layer, variables, X, causal=True, window=WINDOW).context, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rotary": True, "key_features": 9}, "even number of features, got 3"),
        ({"rotary": True, "rotary_features": 3}, "even number of features, got 3"),
        (
            {"rotary": True, "rotary_features": 10},
            r"at most the 8 features of \(2, 3, 11, 8\), got 10",
        ),
        ({"rotary_features": 4}, "rotary=True with rotary_features=4"),
    ],
)
def test_features_that_do_not_turn_are_told(options, said):
    with pytest.raises(ValueError, match=said):
        init(fa.MultiHeadAttention(3, **options), X)
