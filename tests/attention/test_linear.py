"""Linear attention beside a loop over its state, in all forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import (
    Lens,
    LinearAttention,
    causal_convolution,
    elu_plus_one,
    linear_attention,
)

B, T, H, G, D, E = 2, 23, 2, 2, 5, 4
CASES = {
    "linear": (None, False),
    "gated": ("head", False),
    "gated by feature": ("feature", False),
    "delta": (None, True),
    "gated delta": ("head", True),
    "gated delta by feature": ("feature", True),
}


def looped(arrays, state, lengths, segments):
    """Computes the definition, a token at a time, in float64."""
    query, key, value, decay, strength = arrays
    context, state = np.zeros((B, T, H * G, E)), np.array(state, np.float64)
    for b, t, h in np.ndindex(B, T, H):
        if t >= lengths[b]:
            continue
        memory = state[b, h]
        if t and segments[b, t] != segments[b, t - 1]:
            memory[:] = 0
        if decay is not None:
            memory *= np.exp(decay[b, t, h])[..., None]
        write = value[b, t, h]
        if strength is not None:
            write = strength[b, t, h] * (write - key[b, t, h] @ memory)
        memory += np.outer(key[b, t, h], write)
        for g in range(h * G, h * G + G):
            context[b, t, g] = query[b, t, g] @ memory / D**0.5
    return context, state


def drawn(name, seed=0):
    decays, writes = CASES[name]
    rng = np.random.default_rng(seed)
    query, value = rng.normal(size=(B, T, H * G, D)), rng.normal(size=(B, T, H, E))
    key = rng.normal(size=(B, T, H, D))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    shape = (B, T, H, D) if decays == "feature" else (B, T, H)
    decay = None if decays is None else -rng.exponential(size=shape) * rng.choice([0.1, 20], shape)
    return query, key, value, decay, rng.uniform(size=(B, T, H)) if writes else None


@functools.partial(jax.jit, static_argnames="chunk_size")
def attended(arrays, chunk_size=None, **options):
    query, key, value, decay, strength = arrays
    options |= {"log_decay": decay, "write_strength": strength, "chunk_size": chunk_size}
    return linear_attention(query, key, value, **options)


@pytest.mark.parametrize("chunk_size", [None, 1, 7, 64])
@pytest.mark.parametrize("name", CASES)
def test_every_form_is_the_loop_over_the_state(name, chunk_size):
    for seed in range(4):
        arrays, rng = drawn(name, seed), np.random.default_rng(seed)
        state = rng.normal(size=(B, H, D, E))
        lengths = rng.integers(0, T + 1, B)
        segments = np.sort(rng.integers(0, 1 + seed, (B, T)), axis=-1)
        context, end = looped(arrays, state, lengths, segments)
        with_nan = [None if x is None else x.astype(np.float32) for x in arrays]
        is_padding = np.arange(T) >= lengths[:, None]
        for array in with_nan[:3]:
            array[is_padding] = np.nan
        limits = {"lengths": lengths, "segments": segments, "state": state.astype(np.float32)}
        (actual, weights), actual_end = attended(with_nan, chunk_size, **limits)
        np.testing.assert_allclose(actual, context, atol=2e-5)
        np.testing.assert_allclose(actual_end, end, atol=2e-5)
        assert (weights is None) == (chunk_size is not None)


@pytest.mark.parametrize("name", CASES)
def test_chunks_have_the_gradients_of_the_weights(name):
    arrays = [None if x is None else jnp.asarray(x, jnp.float32) for x in drawn(name)]

    @functools.partial(jax.jit, static_argnames="chunk_size")
    def gradient(arrays, chunk_size):
        def loss(arrays):
            (context, _), state = attended(arrays, chunk_size, lengths=jnp.array([T, 9]))
            return (jnp.sin(context)).sum() + (state**2).sum()

        return jax.grad(loss)(arrays)

    at_once, in_chunks = gradient(arrays, None), gradient(arrays, 8)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-4), at_once, in_chunks)


def test_the_context_is_the_weights_times_the_values():
    arrays = drawn("gated delta")
    (context, weights), _ = attended(arrays)
    value = np.repeat(arrays[2], G, axis=-2)  # (b, t, heads, e)
    np.testing.assert_allclose(context, np.einsum("bhij,bjhe->bihe", weights, value), atol=1e-5)
    assert weights.min() < 0


def test_parts_that_hand_the_state_over_are_one_pass():
    arrays = drawn("gated delta by feature")
    (whole, _), end = attended(arrays)
    (first, _), state = attended([x[:, :9] for x in arrays])
    (second, _), state = attended([x[:, 9:] for x in arrays], state=state)
    np.testing.assert_allclose(jnp.concatenate([first, second], axis=1), whole, atol=1e-5)
    np.testing.assert_allclose(state, end, atol=1e-5)


def test_a_log_decay_of_minus_infinity_forgets_all():
    query, key, value, _, strength = drawn("delta")
    decay = np.zeros((B, T, H))
    decay[:, 10] = -np.inf
    segments = np.arange(T) >= 10
    (expected, _), _ = attended((query, key, value, None, strength), segments=segments.astype(int))
    (actual, _), _ = attended((query, key, value, decay, strength), 4)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    with pytest.raises(ValueError, match="log_decay of 0 or below"):
        linear_attention(query, key, value, log_decay=jnp.full((B, T, H), 0.9))


def test_ones_beside_the_values_normalise():
    query, key, value, _, _ = drawn("linear")
    ones = np.ones((*value.shape[:-1], 1))
    options = {"feature_map": elu_plus_one}
    values = np.concatenate([value, ones], axis=-1)
    (context, weights), _ = linear_attention(query, key, values, **options)
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhij,bjhe->bihe", weights, np.repeat(value, G, axis=-2))
    np.testing.assert_allclose(context[..., :-1] / context[..., -1:], expected, atol=1e-5)


def test_a_lens_masks_tokens_and_changes_weights_and_contexts():
    arrays = drawn("gated delta")
    (context, weights), _ = attended(arrays)
    with Lens(mask=lambda query, key: key != 3, temperature=2.0) as lens:
        (masked, _), _ = attended(arrays)
    change = weights[..., 3].swapaxes(1, 2)[..., None] * arrays[2][:, [3]].repeat(G, axis=-2)
    np.testing.assert_allclose(context - masked, change, atol=1e-5)
    with Lens(change_weights=lambda name, weights: 2 * weights):
        (doubled, _), _ = attended(arrays)
    np.testing.assert_allclose(doubled, 2 * context, atol=1e-5)
    with lens, pytest.raises(ValueError, match="mask"):
        attended(arrays, state=np.zeros((B, H, D, E)))
    layer, x = LinearAttention(2), jnp.ones((1, 3, 8))
    params = layer.init(jax.random.key(0), x)
    with Lens(change_contexts=lambda name, context: 0 * context):
        assert not layer.apply(params, x).context.any()


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_decoding_token_by_token_is_one_call(rule):
    layer = LinearAttention(4, num_key_heads=2, rule=rule, value_features=32)
    x = jax.random.normal(jax.random.key(0), (2, 9, 16))
    params = layer.init(jax.random.key(1), x)
    expected = layer.apply(params, x).context
    decode = jax.jit(functools.partial(layer.apply, method="decode"))
    lengths = jnp.array([5, 3])
    (prompt, _), cache = decode(params, x[:, :5], layer.init_cache(16, (2,)), lengths=lengths)
    np.testing.assert_allclose(prompt[0], expected[0, :5], atol=1e-5)
    for step in range(4):
        tokens = jnp.take_along_axis(x, (lengths + step)[:, None, None], axis=1)
        (context, _), cache = decode(params, tokens, cache)
        for row in range(2):
            np.testing.assert_allclose(
                context[row, 0], expected[row, lengths[row] + step], atol=1e-5
            )
    with pytest.raises(ValueError, match="window"):
        layer.apply(params, x, window=(3, 0))


def test_a_convolution_reads_the_last_tokens_of_its_sequence():
    rng = np.random.default_rng(0)
    x, kernel, bias = rng.normal(size=(2, 9, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)
    segments, lengths = np.array([[0] * 4 + [1] * 5, [0] * 9]), np.array([9, 5])
    expected = np.zeros_like(x)
    for b, t in np.ndindex(2, 9):
        if t < lengths[b]:
            expected[b, t] = bias + sum(
                kernel[3 - i] * x[b, t - i]
                for i in range(min(t + 1, 4))
                if segments[b, t - i] == segments[b, t]
            )
    limits = {"lengths": lengths, "segments": segments}
    x, kernel = jnp.asarray(x, jnp.float32), jnp.asarray(kernel, jnp.float32)
    outputs, past = causal_convolution(x, kernel, jnp.asarray(bias, jnp.float32), **limits)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(past, np.stack([x[0, 6:], x[1, 2:5]]), atol=1e-6)
    whole, _ = causal_convolution(x, kernel)
    first, past = causal_convolution(x[:, :2], kernel)
    second, _ = causal_convolution(x[:, 2:], kernel, past=past)
    np.testing.assert_allclose(jnp.concatenate([first, second], axis=1), whole, atol=1e-5)
