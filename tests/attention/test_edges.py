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
from numpy.testing import assert_allclose, assert_array_equal

import flax_attn.attention as fa
from flax_attn.attention.core import compute, heads_last, make_call
from tests.attention.compiled import apply, init, normal, run

B, T, D = 2, 7, 4
X = normal(0, B, T, D)
LENGTHS = np.array([7, 4])
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
    assert_allclose(longer[:, :T], run(context, X), atol=1e-6)


def test_a_cache_takes_no_more_tokens_than_are_given():
    layer = fa.MultiHeadAttention(2)
    variables, cache, lengths = init(layer, X), layer.init_cache(D, (B,), 8), jnp.array([1, 5])
    decode = lambda lengths: layer.apply(
        variables, jnp.asarray(X[:, :3]), cache, lengths=lengths, method="decode"
    )
    with pytest.raises(ValueError, match="at most the 3"):
        jax.eval_shape(lambda: decode(lengths))
    (context, _), _ = run(decode, lengths)
    assert np.isfinite(context[0]).all()
    assert np.isnan(context[1]).all()
    with pytest.raises(ValueError, match="broadcasting"):
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
    assert_allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)


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
    assert_allclose(apply(layer, variables, X, mask=mask), np.broadcast_to(out, X.shape), atol=1e-6)


def test_key_lengths_follow_query_lengths_only_without_a_key():
    layer = fa.MultiHeadAttention(2)
    variables = init(layer, X)
    same = run(lambda x: layer.apply(variables, x, x, query_lengths=LENGTHS).context, X)
    copy = apply(layer, variables, X, X, query_lengths=LENGTHS).context
    assert_array_equal(same, copy)
    own = apply(layer, variables, X, query_lengths=LENGTHS).context
    assert_allclose(
        own,
        apply(layer, variables, X, X, query_lengths=LENGTHS, key_lengths=LENGTHS).context,
        atol=1e-6,
    )
    assert np.abs(own - same)[1, :4].max() > 1e-3


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
@pytest.mark.parametrize("normalizer", ["masked_softmax", "sparsemax", "monotonic_hard"])
def test_empty_sizes_give_zeros(chunk_size, shape, normalizer):
    batch, queries, keys = shape
    arrays = np.zeros((batch, queries, D)), np.zeros((batch, keys, D)), np.zeros((batch, keys, 2))
    attended = fa.attend(*arrays, normalizer=getattr(fa, normalizer), chunk_size=chunk_size)
    assert_array_equal(attended.context, np.zeros((batch, queries, 2)))
    assert attended.weights is None if chunk_size else attended.weights.shape == shape


def test_a_memory_of_another_width_can_be_cached():
    memory = normal(5, B, 5, 6)
    layer = fa.MultiHeadAttention(2)
    variables = init(layer, X, memory)
    cache = apply(layer, variables, layer.init_cache(D, (B,), 5), memory, method="extend")
    chex.assert_trees_all_close(
        apply(layer, variables, X, cache=cache), apply(layer, variables, X, memory), atol=1e-6
    )
    with pytest.raises(ValueError, match="KeyValueCache"):
        apply(layer, variables, X, memory, cache=cache)


def test_a_normaliser_that_hides_what_it_is_can_be_marked():
    hidden = lambda scores, mask: fa.monotonic_expectation(scores, mask)
    marked = fa.across_queries(hidden)
    in_blocks, whole = (
        run(fa.attend, X, X, X, normalizer=marked, chunk_size=3),
        run(fa.attend, X, X, X, normalizer=hidden),
    )
    assert_allclose(in_blocks.context, whole.context, atol=1e-6)
