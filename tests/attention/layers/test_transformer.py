"""Transformer blocks: their equations, and decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full.context, atol=1e-5)
    assert full.cross_weights.shape == (B, 3, T, 5)
    np.testing.assert_array_equal(full.cross_weights[1, :, :, 3:], 0)


@pytest.mark.parametrize("mask", [None, ~np.eye(T, dtype=bool)[3] & ~np.eye(T, dtype=bool)[:, [3]]])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_an_encoder_block_is_two_residual_parts(pre_norm, mask):
    """With the mask, position 3 attends to nothing and nothing to it. It still has its own part."""
    block = fa.EncoderBlock(fa.MultiHeadAttention(3), fa.FeedForward(17), pre_norm=pre_norm)
    variables = init(block, X)

    def norm(name):
        scale, bias = (np.asarray(variables["params"][name][part]) for part in ("scale", "bias"))
        return lambda x: (
            (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale
            + bias
        )

    part = lambda name, layer, **options: (
        lambda x: apply(layer, {"params": variables["params"][name]}, x, **options)
    )
    attend, feed = (
        part("attention", fa.MultiHeadAttention(3), mask=mask),
        part("feed_forward", fa.FeedForward(17)),
    )
    first, second = norm("attention_norm"), norm("feed_forward_norm")
    x = X + attend(first(X)).context if pre_norm else first(X + attend(X).context)
    x = x + feed(second(x)) if pre_norm else second(x + feed(x))
    np.testing.assert_allclose(apply(block, variables, X, mask=mask).context, x, atol=1e-5)


def test_a_decoder_block_without_a_memory_is_a_causal_encoder_block():
    decoder = fa.DecoderBlock(fa.MultiHeadAttention(3), None, fa.FeedForward(17))
    encoder = fa.EncoderBlock(fa.MultiHeadAttention(3), fa.FeedForward(17))
    variables = init(decoder, X)
    decoded = apply(decoder, variables, X)
    np.testing.assert_allclose(
        decoded.context, apply(encoder, variables, X, causal=True).context, atol=1e-5
    )
    assert decoded.cross_weights is None


def test_the_padding_of_a_target_attends_to_no_memory():
    block = fa.DecoderBlock(
        fa.MultiHeadAttention(3), fa.MultiHeadAttention(3), fa.FeedForward(17), dtype=jnp.float32
    )
    variables, lengths = init(block, X, MEMORY), np.array([T, 4])
    one, other = (apply(block, variables, X, m, lengths=lengths) for m in (MEMORY, -MEMORY))
    np.testing.assert_array_equal(one.cross_weights[1, :, 4:], 0)
    np.testing.assert_array_equal(one.context[1, 4:], other.context[1, 4:])
