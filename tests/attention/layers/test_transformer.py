"""Transformer blocks: their equations, and decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal

B, T, D = 2, 7, 12


X, MEMORY = normal(0, B, T, D), normal(1, B, 5, D)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_decoder_block_decodes_what_it_computes_at_once(pre_norm):
    block = fa.DecoderBlock(
        fa.MultiHeadAttention(3), fa.MultiHeadAttention(3), fa.FeedForward(17), pre_norm=pre_norm
    )
    lengths = np.array([5, 3])
    variables = init(block, X, MEMORY)
    full = apply(block, variables, X, MEMORY, memory_lengths=lengths)
    cache = fa.MultiHeadAttention(3).init_cache(D, (B,), T)
    step = jax.jit(
        lambda x, cache: block.apply(
            variables, x, jnp.asarray(MEMORY), memory_lengths=lengths, cache=cache
        )
    )
    outputs = []
    for t in range(T):
        decoded = step(X[:, t : t + 1], cache)
        cache = decoded.cache
        outputs.append(decoded.context)
    assert_allclose(np.concatenate(outputs, axis=1), full.context, atol=1e-5)
    assert full.cross_weights.shape == (B, 3, T, 5)
    assert_array_equal(full.cross_weights[1, :, :, 3:], 0)


def test_a_decoder_block_without_a_memory_is_a_causal_encoder_block():
    decoder = fa.DecoderBlock(fa.MultiHeadAttention(3), None, fa.FeedForward(17))
    encoder = fa.EncoderBlock(fa.MultiHeadAttention(3), fa.FeedForward(17))
    variables = init(decoder, X)
    decoded = apply(decoder, variables, X)
    assert_allclose(decoded.context, apply(encoder, variables, X, causal=True).context, atol=1e-5)
    assert decoded.cross_weights is None


def test_the_padding_of_a_target_attends_to_no_memory():
    block = fa.DecoderBlock(
        fa.MultiHeadAttention(3), fa.MultiHeadAttention(3), fa.FeedForward(17), dtype=jnp.float32
    )
    variables, lengths = init(block, X, MEMORY), np.array([T, 4])
    one, other = (apply(block, variables, X, m, lengths=lengths) for m in (MEMORY, -MEMORY))
    assert_array_equal(one.cross_weights[1, :, 4:], 0)
    assert_array_equal(one.context[1, 4:], other.context[1, 4:])
