"""What depends on a pair of positions: causality, windows, offsets, lengths, masks and biases."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention import masks
from tests.attention.compiled import normal, run

B, T = 2, 7
X = normal(0, B, T, 5)
OPTIONS = {
    "causal": ({"causal": True}, lambda q, k: k <= q),
    "window": ({"window": (1, 2)}, lambda q, k: q - 1 <= k <= q + 2),
    "window to the left": ({"window": (2, None)}, lambda q, k: q - 2 <= k),
    "causal, offset": ({"causal": True, "query_offset": 2}, lambda q, k: k <= q + 2),
    "causal, window to the right": (
        {"causal": True, "window": (2, 3)},
        lambda q, k: q - 2 <= k <= q,
    ),
    "window, offset": ({"window": (1, 0), "query_offset": -1}, lambda q, k: q - 2 <= k <= q - 1),
    "prefix": ({"causal": True, "prefix_lengths": np.array([3, 3])}, lambda q, k: k <= q or k < 3),
    "prefix, window, lengths": (
        {"window": (1, 0), "prefix_lengths": 3, "key_lengths": np.array([2, 2])},
        lambda q, k: (q - 1 <= k <= q or k < 3) and k < 2,
    ),
    "lengths": (
        {"query_lengths": np.array([6, 6]), "key_lengths": np.array([4, 4])},
        lambda q, k: q < 6 and k < 4,
    ),
    "all": (
        {"causal": True, "window": (3, None), "key_lengths": np.array([4, 4])},
        lambda q, k: q - 3 <= k <= q and k < 4,
    ),
}


masked = jax.jit(lambda *arrays, mask: fa.dot_product_attention(*arrays, mask=mask))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_each_constraint_is_its_mask(name, chunk_size):
    query, key, value = (normal(seed, B, t, 3, 4) for seed, t in ((3, T), (4, 5), (5, 5)))
    options, allowed = OPTIONS[name]
    mask = np.array([[allowed(q, k) for k in range(5)] for q in range(T)])
    extra = np.random.default_rng(6).random((B, 1, T, 5)) < 0.7
    expected = masked(query, key, value, mask=mask & extra)
    attend = functools.partial(fa.dot_product_attention, chunk_size=chunk_size)
    attended = run(attend, query, key, value, mask=extra, **options)
    np.testing.assert_allclose(attended.context, expected.context, atol=1e-6)
    if chunk_size is None:
        np.testing.assert_allclose(attended.weights, expected.weights, atol=1e-6)


def test_offsets_and_lengths_of_each_row():
    query, key = normal(3, B, T, 3, 4), normal(4, B, 9, 3, 4)
    attend = lambda query, key, offset, lengths: fa.dot_product_attention(
        query, key, key, causal=True, query_offset=offset, key_lengths=lengths
    )
    together = run(attend, query, key, np.array([0, 2]), np.array([9, 4]))
    for row, (offset, length) in enumerate(((0, 9), (2, 4))):
        alone = run(attend, query[[row]], key[[row]], offset, np.array([length]))
        np.testing.assert_allclose(together.context[row], alone.context[0], atol=1e-6)


LAYERS = {
    "Attention": (fa.Attention(), True),
    "Attention in blocks": (fa.Attention(chunk_size=3), True),
    "HardAttention": (fa.HardAttention(), True),
    "SelfAttention": (fa.SelfAttention(4, 4), False),
    "MultiHeadAttention": (fa.MultiHeadAttention(2, key_features=4, out_features=5), False),
    "EncoderBlock": (
        fa.EncoderBlock(fa.MultiHeadAttention(2, key_features=4), fa.FeedForward(3)),
        False,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_a_prefix_too(name):
    layer, has_keys = LAYERS[name]
    arrays = [jnp.asarray(X)] * (2 if has_keys else 1)
    prefix = jnp.array([5, 0])
    sees = lambda q, k: masks.any_of(masks.causal(q, k), masks.lengths(prefix[:, None, None], k))
    mask = sees(*masks.grid(T, T))
    mask = mask if has_keys or name == "SelfAttention" else mask[:, None]
    outputs = lambda **limits: layer.init_with_output(jax.random.key(0), *arrays, **limits)[0]
    expected = jax.jit(lambda: outputs(mask=mask))()
    chex.assert_trees_all_close(
        jax.jit(lambda: outputs(causal=True, prefix_lengths=prefix))(), expected, atol=1e-6
    )


def test_a_decoder_reads_a_prefix_from_both_sides():
    """At once, and with a cache: the prefix first, and then one token after the other."""
    block = fa.DecoderBlock(fa.MultiHeadAttention(1, key_features=4), None, fa.FeedForward(3))
    x, prefix = jnp.asarray(X), jnp.array([4, 4])
    whole, variables = jax.jit(
        lambda: block.init_with_output(jax.random.key(0), x, prefix_lengths=prefix)
    )()
    cache = fa.MultiHeadAttention(1, key_features=4).init_cache(5, (B,), max_length=T)
    parts = []
    for tokens in (x[:, :4], *jnp.split(x[:, 4:], T - 4, axis=1)):
        decoded = block.apply(variables, tokens, cache=cache, prefix_lengths=prefix)
        cache = decoded.cache
        parts.append(decoded.context)
    np.testing.assert_allclose(jnp.concatenate(parts, axis=1), whole.context, atol=1e-5)


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_lengths_and_ids_of_one_row_are_those_of_all(chunk_size):
    ids = np.array([0, 0, 0, 1, 1, 2, 2])
    attend = functools.partial(fa.attend, X, X, X, causal=True, chunk_size=chunk_size)
    for one, all_rows in (
        ({"key_lengths": np.array([4])}, {"key_lengths": np.array([4, 4])}),
        ({"query_offset": np.array([1])}, {"query_offset": np.array([1, 1])}),
        ({"prefix_lengths": np.array([3])}, {"prefix_lengths": np.array([3, 3])}),
        (
            {"query_segments": ids[None], "key_segments": ids[None]},
            {"query_segments": np.tile(ids, (B, 1)), "key_segments": np.tile(ids, (B, 1))},
        ),
    ):
        np.testing.assert_array_equal(attend(**one).context, attend(**all_rows).context)


@pytest.mark.parametrize("name", ["mask", "bias"])
@pytest.mark.parametrize("with_heads", [False, True])
def test_a_function_of_positions_gets_those_of_each_row_where_offsets_differ(name, with_heads):
    """With or without an axis of heads in its result."""
    query, key, value = (normal(seed, 3, t, 3, 4) for seed, t in ((3, T), (4, 9), (5, 9)))
    offsets = np.array([0, 2, -1])
    apart = lambda q, k: q - jnp.broadcast_to(k, q.shape[:-1] + k.shape[-1:])
    earlier = lambda q, k: apart(q, k) >= 0
    nearer = lambda q, k: -0.3 * jnp.abs(apart(q, k))
    function = {"mask": earlier, "bias": nearer}[name]
    by_head = lambda q, k: jnp.broadcast_to(
        function(q, k)[..., None, :, :], (*q.shape[:-2], 3, q.shape[-2], k.shape[-1])
    )
    positions = np.arange(T)[:, None] + offsets[:, None, None], np.arange(9)[None]
    array = np.asarray(function(*positions))[:, None]
    options = {name: by_head if with_heads else function, "query_offset": offsets}
    attended = run(fa.dot_product_attention, query, key, value, **options)
    expected = run(fa.dot_product_attention, query, key, value, **{name: array})
    np.testing.assert_allclose(attended.context, expected.context, atol=1e-6)
    np.testing.assert_allclose(attended.weights, expected.weights, atol=1e-6)
