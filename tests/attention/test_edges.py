"""Where it is easy to be wrong without a word: odd sizes, padding at every position, half
precision, decoding with biases.
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention import masks
from flax_attn.attention.core import compute, heads_last, make_call
from tests.attention.compiled import apply, init, normal, run

B, T, D = 2, 7, 4
X, Y = normal(0, B, T, D), normal(1, B, T, D)
LENGTHS = np.array([7, 4])
REAL = np.arange(T) < LENGTHS[:, None]
RNG = jax.random.key(2)


@pytest.mark.parametrize("draw", ["dropout", "sampled_hard"])
def test_longer_padding_draws_the_same(draw):
    sampled = draw == "sampled_hard"
    options = {"dropout_rate": 0.5, "dropout_rng": RNG}
    if sampled:
        options = {"normalizer": functools.partial(fa.sampled_hard, rng=RNG)}
    options |= {"in_heads": True, "query_lengths": LENGTHS, "key_lengths": LENGTHS}

    def context(x):
        heads = x.reshape(B, -1, 2, 2)
        call = make_call(heads, heads, heads, **options)
        return heads_last(compute(call), call.visible.weights_shape).context

    longer = run(context, np.pad(X, ((0, 0), (0, 4), (0, 0)), constant_values=9.0))
    np.testing.assert_allclose(longer[:, :T], run(context, X), atol=1e-6)


def test_a_cache_takes_no_more_tokens_than_are_given():
    layer = fa.MultiHeadAttention(2)
    variables, cache, lengths = init(layer, X), layer.init_cache(D, (B,), 8), jnp.array([1, 5])
    decode = lambda lengths: layer.apply(
        variables, jnp.asarray(X[:, :3]), cache, lengths=lengths, method="decode"
    )
    with pytest.raises(ValueError, match=r"lengths of at most the 3 tokens of .*, got 5"):
        jax.eval_shape(lambda: decode(lengths))
    (context, _), _ = run(decode, lengths)
    assert np.isfinite(context[0]).all()
    assert np.isnan(context[1]).all()
    with pytest.raises(
        ValueError,
        match=r"lengths of shape \(2,\), one a row of the batch, got "
        r"\(3,\)",
    ):
        jax.eval_shape(decode, np.array([1, 2, 3]))


class Biased(nn.Module):
    relative: bool
    attention: nn.Module

    def setup(self):
        self.bias = fa.RelativeBias(2, 8, 20)

    def __call__(self, x, cache=None):
        bias = self.bias() if self.relative else fa.alibi(2)
        return (
            self.attention(x, causal=True, bias=bias)
            if cache is None
            else self.attention.decode(x, cache, bias=bias)
        )


@pytest.mark.parametrize(("relative", "chunk_size"), [(False, None), (True, 3)])
def test_biases_of_distance_decode_as_in_the_whole(relative, chunk_size):
    attention = fa.MultiHeadAttention(2, chunk_size=chunk_size)
    layer = Biased(relative, attention)
    variables = init(layer, X)
    whole, cache, parts = apply(layer, variables, X).context, attention.init_cache(D, (B,), T), []
    for first, last in ((0, 4), (4, 5), (5, 7)):
        attended, cache = apply(layer, variables, X[:, first:last], cache)
        parts.append(attended.context)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)


def test_a_mask_function_counts_from_the_offset_as_causality_does():
    query, key = X[:, :1, None], X[:, :6, None]
    by_function = run(fa.dot_product_attention, query, key, key, query_offset=5, mask=masks.causal)
    chex.assert_trees_all_close(
        by_function, run(fa.dot_product_attention, query, key, key, query_offset=5, causal=True)
    )


class Cell(nn.Module):
    @nn.compact
    def __call__(self, x):
        return fa.InputAttentionCell(3, D)(jnp.zeros((B, 3), x.dtype), x[:, 0])[1]


LAYERS = {
    "MultiHeadAttention": fa.MultiHeadAttention(2),
    "SelfAttention": fa.SelfAttention(3, D),
    "SelfAttention, folded": fa.SelfAttention(9, D),
    "AttentionPooling": fa.AttentionPooling(3),
    "StructuredSelfAttention": fa.StructuredSelfAttention(3, 2),
    "EncoderBlock": fa.EncoderBlock(fa.MultiHeadAttention(2), fa.FeedForward(5)),
    "InputAttentionCell": Cell(),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_result_has_the_dtype_of_the_input_with_parameters_in_single_precision(name):
    dtype = jnp.bfloat16
    variables = init(LAYERS[name], X)
    expected, halved = (apply(LAYERS[name], variables, x) for x in (X, X.astype(dtype)))
    assert halved.context.dtype == halved.weights.dtype == dtype
    np.testing.assert_allclose(halved.context.astype(np.float32), expected.context, atol=0.05)


def test_half_precision_is_scaled_after_the_sum():
    query, key = ((3 * normal(seed, 64, 48)).astype(jnp.bfloat16) for seed in (0, 1))
    exact = query.astype(np.float64) @ key.astype(np.float64).T / np.sqrt(48)
    np.testing.assert_allclose(run(fa.scaled_dot, query, key), exact, atol=1e-4)


@pytest.mark.parametrize("low", [-jnp.inf, -1e9])
def test_linen_is_not_given_an_additive_mask_turned_round(low):
    layer = nn.MultiHeadDotProductAttention(2, attention_fn=fa.linen_attention_fn())
    variables, mask = (
        init(layer, X),
        jnp.asarray(np.where(np.tri(T) > 0, 0.0, low)[None, None], jnp.float32),
    )
    with pytest.raises(ValueError, match="mask of zeros and ones"):
        jax.eval_shape(lambda: layer.apply(variables, jnp.asarray(X), mask=mask))
    out = variables["params"]["out"]["bias"]
    np.testing.assert_allclose(
        apply(layer, variables, X, mask=mask), np.broadcast_to(out, X.shape), atol=1e-6
    )


def test_key_lengths_follow_query_lengths_only_without_a_key():
    layer = fa.MultiHeadAttention(2)
    variables = init(layer, X)
    same = run(lambda x: layer.apply(variables, x, x, query_lengths=LENGTHS).context, X)
    copy = apply(layer, variables, X, X, query_lengths=LENGTHS).context
    np.testing.assert_array_equal(same, copy)
    own = apply(layer, variables, X, query_lengths=LENGTHS).context
    np.testing.assert_allclose(
        own,
        apply(layer, variables, X, X, query_lengths=LENGTHS, key_lengths=LENGTHS).context,
        atol=1e-6,
    )
    assert np.abs(own - same)[1, :4].max() > 1e-3


def test_heads_without_anything_to_attend_leave_the_output_bias():
    layer = fa.MultiHeadAttention(2)
    variables = init(layer, X)
    attended = apply(layer, variables, X, key_lengths=np.array([7, 0]))
    np.testing.assert_allclose(
        attended.context[1], np.tile(variables["params"]["out"]["bias"], (T, 1)), atol=1e-6
    )
    np.testing.assert_array_equal(attended.weights[1], 0)


PADDED = {
    "mask over keys": (
        fa.MultiHeadAttention(2),
        lambda m, x: m(jnp.asarray(Y), x, mask=REAL[:, None, None, :]),
    ),
    "mask over both": (
        fa.MultiHeadAttention(2),
        lambda m, x: m(x, mask=(REAL[:, None, :] & REAL[:, :, None])[:, None]),
    ),
    "encoder": (LAYERS["EncoderBlock"], lambda m, x: m(x, lengths=LENGTHS)),
    "encoder, post-norm": (
        fa.EncoderBlock(fa.MultiHeadAttention(2), fa.FeedForward(5), pre_norm=False),
        lambda m, x: m(x, lengths=LENGTHS),
    ),
    "decoder": (
        fa.DecoderBlock(fa.MultiHeadAttention(2), fa.MultiHeadAttention(2), fa.FeedForward(5)),
        lambda m, x: m(x, x, lengths=LENGTHS, memory_lengths=LENGTHS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
def test_what_padding_holds_reaches_no_parameter(name):
    layer, call = PADDED[name]
    variables = init(layer, X, method=call)

    def loss(variables, x):
        context = layer.apply(variables, x, method=call).context
        return (
            jnp.sum(jnp.where(REAL[..., None], context, 0))
            if context.shape[1] == T and name != "mask over keys"
            else context.sum()
        )

    gradient = jax.jit(jax.grad(loss))
    clean, dirty = (
        gradient(variables, np.where(REAL[..., None], X, np.float32(value)))
        for value in (0.0, jnp.nan)
    )
    chex.assert_tree_all_finite(dirty)
    chex.assert_trees_all_close(clean, dirty, atol=1e-5)


def test_a_score_singular_at_zero_is_exact_in_blocks():
    unit = lambda a: a / jnp.linalg.norm(a, axis=-1, keepdims=True)

    def loss(kernel, chunk_size):
        return jnp.sum(
            fa.attend(
                X,
                Y,
                Y,
                score=lambda q, k: fa.dot(unit(q @ kernel), unit(k @ kernel)),
                chunk_size=chunk_size,
            ).context
            ** 2
        )

    kernel = normal(4, D, D)
    np.testing.assert_allclose(
        run(jax.grad(loss), kernel, 3), run(jax.grad(loss), kernel, None), atol=1e-5
    )


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
@pytest.mark.parametrize("normalizer", ["masked_softmax", "sparsemax", "monotonic_hard"])
def test_empty_sizes_give_zeros(chunk_size, shape, normalizer):
    batch, queries, keys = shape
    arrays = np.zeros((batch, queries, D)), np.zeros((batch, keys, D)), np.zeros((batch, keys, 2))
    attended = fa.attend(*arrays, normalizer=getattr(fa, normalizer), chunk_size=chunk_size)
    np.testing.assert_array_equal(attended.context, np.zeros((batch, queries, 2)))
    assert attended.weights is None if chunk_size else attended.weights.shape == shape


def test_a_memory_of_another_width_can_be_cached():
    memory = normal(5, B, 5, 6)
    layer = fa.MultiHeadAttention(2)
    variables = init(layer, X, memory)
    cache = apply(layer, variables, layer.init_cache(D, (B,), 5), memory, method="extend")
    chex.assert_trees_all_close(
        apply(layer, variables, X, cache=cache), apply(layer, variables, X, memory), atol=1e-6
    )
    with pytest.raises(ValueError, match="beside a cache"):
        apply(layer, variables, X, memory, cache=cache)


def test_learned_positions_of_each_row_and_none_outside_of_the_table():
    layer = fa.LearnedPositions(10, 3)
    variables = init(layer, 2)
    table = np.asarray(variables["params"]["embedding"])
    np.testing.assert_array_equal(
        apply(layer, variables, 2, np.array([0, 3])), np.stack([table[:2], table[3:5]])
    )
    with pytest.raises(ValueError, match="at most max_length=10 positions, got 3 from 9 on"):
        layer.apply(variables, 3, jnp.array([0, 9]))
    inside = apply(layer, variables, 3, np.array([7, 9, -1]))
    assert np.isfinite(inside).all(axis=-1).tolist() == [
        [True, True, True],
        [True, False, False],
        [False, True, True],
    ]
    rows, whole = run(fa.sinusoidal, 3, 4, offset=np.array([0, 5])), run(fa.sinusoidal, 8, 4)
    np.testing.assert_allclose(rows, np.stack([whole[:3], whole[5:]]), atol=1e-6)


def test_a_normaliser_that_hides_what_it_is_is_refused_in_blocks():
    hidden = lambda scores, mask: fa.monotonic_expectation(scores, mask)
    with pytest.raises(ValueError, match="monotonic_expectation must see all queries at once"):
        jax.eval_shape(lambda: fa.attend(X, X, X, normalizer=hidden, chunk_size=3))
    marked = fa.across_queries(hidden)
    in_blocks, whole = (
        run(fa.attend, X, X, X, normalizer=marked, chunk_size=3),
        run(fa.attend, X, X, X, normalizer=hidden),
    )
    np.testing.assert_allclose(in_blocks.context, whole.context, atol=1e-6)
