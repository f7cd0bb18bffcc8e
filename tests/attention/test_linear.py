"""Linear attention beside a loop over its state, in all forms."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn import platforms
from flax_attn.attention import (
    Lens,
    LinearAttention,
    causal_convolution,
    elu_plus_one,
    linear_attention,
)

B, T, H, G, D, E = 2, 23, 2, 2, 5, 4
RULES = {  # the size of the log decay, per head or per feature, and whether there is a delta rule
    "linear": (None, False),
    "gated": ("head", False),
    "gated by feature": ("feature", False),
    "delta": (None, True),
    "gated delta": ("head", True),
    "gated delta by feature": ("feature", True),
}


class Setting(NamedTuple):
    """What is of one compiled program: sizes as above, chunks, a place to cut, and limits."""

    sizes: tuple[int, ...]
    chunk_sizes: tuple[int, ...]
    cut: int
    limits: tuple[str, ...]


SETTINGS = [
    Setting((B, T, H, G, D, E), (1, 7), 9, ("lengths", "segments", "state")),
    Setting((1, 16, 1, 3, 4, 6), (5, 64), 15, ()),
    Setting((3, 19, 3, 1, 6, 2), (16,), 4, ("lengths", "state")),
]


def drawn(rule, seed=0, sizes=SETTINGS[0].sizes):
    decays, writes = RULES[rule]
    rng, (b, t, h, g, d, e) = np.random.default_rng(seed), sizes
    query, value = rng.normal(size=(b, t, h * g, d)), rng.normal(size=(b, t, h, e))
    key = rng.normal(size=(b, t, h, d))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    shape = (b, t, h, d) if decays == "feature" else (b, t, h)
    decay = None if decays is None else -rng.exponential(size=shape) * rng.choice([0.1, 20], shape)
    return query, key, value, decay, rng.uniform(size=(b, t, h)) if writes else None


def limited(rng, setting):
    """Draws the lengths, segments and states of a setting, and what stands for the others."""
    b, t, h, _, d, e = setting.sizes
    whole = {"lengths": np.full(b, t), "segments": np.zeros((b, t), int)}
    whole["state"] = np.zeros((b, h, d, e))
    limits = {"lengths": rng.integers(0, t + 1, b), "state": rng.normal(size=(b, h, d, e))}
    limits["segments"] = np.sort(rng.integers(0, rng.integers(1, 5), (b, t)), axis=-1)
    limits = {name: limits[name] for name in setting.limits}
    return limits, whole | limits


def recurrence(arrays, lengths, segments, state):
    """Computes the definition, a token at a time."""
    query, key, value, decay, strength = arrays
    b, t, h, d = key.shape
    decay = jnp.zeros(key.shape) if decay is None else decay.reshape(b, t, h, -1)
    query = query.reshape(b, t, h, -1, d)
    is_kept = jnp.concatenate([segments[:, :1], segments[:, :-1]], axis=1) == segments

    def step(state, i):
        memory = jnp.where(is_kept[:, i, None, None, None], state, 0)
        memory = memory * jnp.exp(decay[:, i])[..., None]
        write = value[:, i]
        if strength is not None:
            found = jnp.einsum("bhd,bhde->bhe", key[:, i], memory)
            write = strength[:, i, :, None] * (write - found)
        memory = memory + jnp.einsum("bhd,bhe->bhde", key[:, i], write)
        context = jnp.einsum("bhgd,bhde->bhge", query[:, i], memory) / d**0.5
        is_real = (i < lengths)[:, None, None, None]
        return jnp.where(is_real, memory, state), jnp.where(is_real, context, 0)

    state, contexts = jax.lax.scan(step, state, jnp.arange(t))  # (t, b, h, g, e)
    return jnp.moveaxis(contexts, 0, 1).reshape(b, t, -1, value.shape[-1]), state


def part(arrays, state, limits, first, length):
    """Computes some tokens from the state of those before."""
    own, cut = {}, functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=length, axis=1)
    if "segments" in limits:
        own["segments"] = cut(limits["segments"], first)
        before = limits["segments"][:, jnp.maximum(first - 1, 0)]
        is_kept = (before == own["segments"][:, 0]) | (limits["lengths"] <= first)
        state = jnp.where(is_kept[:, None, None, None], state, 0)
    if "lengths" in limits:
        own["lengths"] = jnp.clip(limits["lengths"] - first, 0, length)
    tokens = jax.tree.map(lambda array: cut(array, first), arrays)
    (context, _), state = attended(tokens, state=state, **own)
    return state, context


def in_parts(arrays, state, where, **limits):
    state, first = part(arrays, state, limits, 0, where)
    state, second = part(arrays, state, limits, where, arrays[0].shape[1] - where)
    return jnp.concatenate([first, second], axis=1), state


def by_tokens(arrays, state, **limits):
    _, key, value, *_ = arrays
    b, t, h, d = key.shape
    state = jnp.zeros((b, h, d, value.shape[-1])) if state is None else state
    step = lambda state, i: part(arrays, state, limits, i, 1)
    state, contexts = jax.lax.scan(step, state, jnp.arange(t))  # (t, b, 1, heads, e)
    return jnp.moveaxis(contexts[:, :, 0], 0, 1), state


def in_chunks(arrays, state, chunk_size, **limits):
    (context, _), end = attended(arrays, chunk_size, state=state, **limits)
    return context, end


def in_groups(arrays, state, chunk_size, **limits):
    """Computes as on a GPU, which has the products of several chunks at once."""
    with platforms.compiling_for("cuda"):
        (context, _), end = attended.__wrapped__(arrays, chunk_size, state=state, **limits)
    return context, end


def with_gradients(form, arrays, state, cotangents):
    """Computes context, state and the gradients of all arrays and of a given state."""
    outputs, pull = jax.vjp(form, arrays, state)
    return outputs, pull(cotangents)


@functools.partial(jax.jit, static_argnames="setting")
def in_all_forms(arrays, limits, cotangents, setting):
    """Computes at once, in chunks, in two parts, and token by token."""
    forms = {"parts": functools.partial(in_parts, where=setting.cut), "tokens": by_tokens}
    for chunk_size in (None, *setting.chunk_sizes):
        forms[f"chunks of {chunk_size}"] = functools.partial(in_chunks, chunk_size=chunk_size)
    forms["groups"] = functools.partial(in_groups, chunk_size=min(setting.chunk_sizes))
    state = limits.pop("state", None)
    return {
        name: with_gradients(functools.partial(form, **limits), arrays, state, cotangents)
        for name, form in forms.items()
    }


@functools.partial(jax.jit, static_argnames="chunk_size")
def attended(arrays, chunk_size=None, **options):
    query, key, value, decay, strength = arrays
    options |= {"log_decay": decay, "write_strength": strength, "chunk_size": chunk_size}
    return linear_attention(query, key, value, **options)


@jax.jit
def expected_of(arrays, lengths, segments, state, cotangents):
    form = lambda arrays, state: recurrence(arrays, lengths, segments, state)
    return with_gradients(form, arrays, state, cotangents)


def differences(rule, setting, seed):
    """Computes by how much the forms differ from the recurrence in float64: values, and gradients.

    The differences are relative to the largest number of each array.
    """
    rng, arrays = np.random.default_rng(seed), drawn(rule, seed, setting.sizes)
    limits, whole = limited(rng, setting)
    b, t, h, g, _, e = setting.sizes
    cotangents = rng.normal(size=(b, t, h * g, e)), rng.normal(size=whole["state"].shape)
    with jax.enable_x64(True):
        values, (of_arrays, of_state) = expected_of(arrays, **whole, cotangents=cotangents)
    gradients = of_arrays, of_state if "state" in limits else None
    narrow = lambda x: x.astype(np.float32) if x.dtype == float else x
    arrays, limits, cotangents = jax.tree.map(narrow, (arrays, limits, cotangents))
    for array in jax.tree.leaves(arrays):
        array[np.arange(t) >= whole["lengths"][:, None]] = np.nan
    forms = in_all_forms(arrays, limits, cotangents, setting)
    return {
        name: (apart(own_values, values), apart(own_gradients, gradients))
        for name, (own_values, own_gradients) in jax.device_get(forms).items()
    }


def apart(arrays, expected):
    relative = lambda x, y: np.abs(x - y).max() / max(np.abs(y).max(), 1e-30)
    return max(jax.tree.leaves(jax.tree.map(relative, arrays, jax.device_get(expected))))


CASES = [
    pytest.param(rule, setting, marks=[] if (i + j) % 3 == 1 else pytest.mark.slow)
    for i, rule in enumerate(RULES)
    for j, setting in enumerate(SETTINGS)
]


@pytest.mark.parametrize(("rule", "setting"), CASES)
def test_every_form_is_the_recurrence_with_its_gradients(rule, setting):
    for seed in range(17):
        for form, most in differences(rule, setting, seed).items():
            assert max(most) < 3e-6, (seed, form, most)


def test_planned_memory_of_gradients_is_linear_in_the_length():
    def planned(length):
        axes = [(1, length, 2, 8)] * 3 + [(1, length, 2)] * 2
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in axes]
        loss = lambda arrays: (attended(arrays, 64)[0].context ** 2).sum()
        program = jax.jit(jax.grad(loss)).lower(arrays).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert planned(4096) < 2.2 * planned(2048)


def test_the_context_is_the_weights_times_the_values():
    arrays = drawn("gated delta")
    (context, weights), _ = attended(arrays)
    value = np.repeat(arrays[2], G, axis=-2)  # (b, t, heads, e)
    np.testing.assert_allclose(context, np.einsum("bhij,bjhe->bihe", weights, value), atol=1e-5)
    assert weights.min() < 0
    (_, no_weights), _ = jax.eval_shape(functools.partial(attended, chunk_size=8), arrays)
    assert no_weights is None


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
    with Lens(change={"weights": lambda site, weights: 2 * weights}):
        (doubled, _), _ = attended(arrays)
    np.testing.assert_allclose(doubled, 2 * context, atol=1e-5)
    with lens, pytest.raises(ValueError, match="mask"):
        attended(arrays, state=np.zeros((B, H, D, E)))
    layer, x = LinearAttention(2), jnp.ones((1, 3, 8))
    params = layer.init(jax.random.key(0), x)
    with Lens(change={"context": lambda site, context: 0 * context}):
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
