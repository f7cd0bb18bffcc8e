"""Options of layers and blocks as today's models have them, beside their formulas in NumPy."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal
from tests.attention.naive import softmax

B, T, D, HEADS = 2, 7, 12, 3
X = normal(0, B, T, D)
CLOSE = {"atol": 2e-6, "rtol": 1e-5}


def silu(x):
    return x / (1 + np.exp(-x))


def drawn(variables, number=1):
    """The variables with every parameter drawn, so that none is 0 or 1."""
    leaves, tree = jax.tree.flatten(variables)
    drawn = [0.5 * normal(number + i, *leaf.shape) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, drawn)


def dense(params, x):
    kernel = np.asarray(params["kernel"], np.float64)
    axes = x.ndim - 1 if kernel.ndim == 2 or kernel.shape[0] == x.shape[-1] else x.ndim - 2
    summed = x.ndim - axes
    out = np.tensordot(x, kernel, axes=(range(axes, x.ndim), range(summed)))
    return out + np.asarray(params.get("bias", 0.0))


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_gated_network_is_its_formula(use_bias):
    network = fa.FeedForward(17, nn.silu, gated=True, use_bias=use_bias)
    variables = drawn(init(network, X))
    params = variables["params"]
    assert params.keys() == {"hidden", "gate", "out"}
    assert all(("bias" in layer) == use_bias for layer in params.values())
    gate, hidden = silu(dense(params["gate"], X)), dense(params["hidden"], X)
    np.testing.assert_allclose(
        apply(network, variables, X), dense(params["out"], gate * hidden), **CLOSE
    )


NORMS = {"layer": nn.LayerNorm, "root mean square": nn.RMSNorm}


def normed(kind, params, x):
    centered = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * np.asarray(params["scale"]) + np.asarray(params.get("bias", 0.0))


PLACES = {
    "before": ({}, lambda x, f, before, after: x + f(before(x))),
    "after the sum": ({"pre_norm": False}, lambda x, f, before, after: before(x + f(x))),
    "after": (
        {"pre_norm": False, "output_norm": True},
        lambda x, f, before, after: x + after(f(x)),
    ),
    "around": ({"output_norm": True}, lambda x, f, before, after: x + after(f(before(x)))),
}


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("place", PLACES)
def test_a_block_has_its_norms_in_their_places(place, kind):
    options, formula = PLACES[place]
    options = options | {"norm": NORMS[kind], "epsilon": 1e-5}
    attention, network = fa.MultiHeadAttention(HEADS), fa.FeedForward(17)
    block = fa.EncoderBlock(attention, network, **options)
    variables = drawn(init(block, X))
    params = variables["params"]
    parts = {
        "attention": lambda x: apply(attention, {"params": params["attention"]}, x).context,
        "feed_forward": lambda x: apply(network, {"params": params["feed_forward"]}, x),
    }
    x = X
    for name, part in parts.items():
        norms = [
            functools.partial(normed, kind, params.get(f"{name}{at}"))
            for at in ("_norm", "_output_norm")
        ]
        f = lambda x, part=part: np.asarray(part(np.asarray(x, np.float32)))
        x = formula(x, f, *norms)
    np.testing.assert_allclose(apply(block, variables, X).context, x, atol=2e-5, rtol=1e-4)


def test_the_parts_of_a_parallel_block_read_one_input():
    attention, network = fa.MultiHeadAttention(HEADS), fa.FeedForward(17)
    block = fa.EncoderBlock(attention, network, parallel=True, epsilon=1e-5)
    variables = drawn(init(block, X))
    params = variables["params"]
    read = lambda name: np.asarray(normed("layer", params[f"{name}_norm"], X), np.float32)
    attended = apply(attention, {"params": params["attention"]}, read("attention")).context
    fed = apply(network, {"params": params["feed_forward"]}, read("feed_forward"))
    np.testing.assert_allclose(apply(block, variables, X).context, X + attended + fed, **CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": True, "norm": nn.RMSNorm},
        {"output_norm": True},
        {"pre_norm": False, "output_norm": True},
    ],
)
def test_a_block_of_any_order_decodes_what_it_computes_at_once(options):
    attention = fa.MultiHeadAttention(
        4,
        num_key_heads=2,
        key_features=16,
        rotary=True,
        rotary_frequencies=fa.scaled_frequencies(4, 8.0, trained_length=32),
        query_key_norm=nn.RMSNorm,
        sinks=True,
        output_gate=True,
    )
    network = fa.FeedForward(17, nn.silu, gated=True)
    block = fa.DecoderBlock(attention, None, network, **options)
    variables = drawn(init(block, X))
    cache, outputs = attention.init_cache(D, (B,), T), []
    for t in range(T):
        decoded = apply(block, variables, X[:, t : t + 1], cache=cache)
        cache = decoded.cache
        outputs.append(decoded.context)
    whole = apply(block, variables, X).context
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5, rtol=1e-4)


def weights_beside(scores, sinks):
    """Softmax of scores `(b, h, q, k)` and a sink for each head, causal, in NumPy."""
    weights = np.zeros(scores.shape)
    for b, h, q in np.ndindex(scores.shape[:-1]):
        row = np.append(scores[b, h, q, : q + 1], sinks[h]).astype(np.float64)
        weights[b, h, q, : q + 1] = softmax(row)[:-1]
    return weights


@pytest.mark.parametrize("key_heads", [None, 2])
@pytest.mark.parametrize("options", [{}, {"chunk_size": 3}, {"need_weights": False}])
def test_a_sink_takes_its_share_of_every_head(options, key_heads):
    options = dict(options)
    need_weights = options.pop("need_weights", True)
    layer = fa.MultiHeadAttention(6, num_key_heads=key_heads, sinks=True, **options)
    variables = drawn(init(layer, X))
    params = variables["params"]
    assert params["sinks"].shape == (6,)
    got = apply(layer, variables, X, causal=True, need_weights=need_weights)
    q, k, v = (np.swapaxes(dense(params[name], X), 1, 2) for name in ("query", "key", "value"))
    k, v = (np.repeat(own, q.shape[1] // own.shape[1], axis=1) for own in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = weights_beside(scores, np.asarray(params["sinks"]))
    if got.weights is not None:
        np.testing.assert_allclose(got.weights, weights, **CLOSE)
    context = np.swapaxes(weights @ v, 1, 2)
    kernel = np.asarray(params["out"]["kernel"])
    expected = np.einsum("bthe,hed->btd", context, kernel) + np.asarray(params["out"]["bias"])
    np.testing.assert_allclose(got.context, expected, atol=1e-5, rtol=1e-4)


def test_a_row_that_sees_nothing_has_no_weight_beside_a_sink():
    layer = fa.MultiHeadAttention(HEADS, sinks=True)
    variables = drawn(init(layer, X))
    mask = np.arange(T)[:, None] > np.arange(T)  # query 0 sees nothing
    got = apply(layer, variables, X, mask=mask)
    np.testing.assert_array_equal(got.weights[:, :, 0], 0)
    np.testing.assert_allclose(
        got.context[:, 0], np.broadcast_to(variables["params"]["out"]["bias"], (B, D)), **CLOSE
    )


def test_a_sink_of_minus_infinity_changes_nothing_and_one_of_0_adds_a_one():
    scores = jnp.asarray(normal(3, 4, 5))
    plain = fa.masked_softmax(scores)
    np.testing.assert_allclose(fa.with_sink(-np.inf)(scores), plain, **CLOSE)
    one_more = jnp.exp(scores) / (1 + jnp.exp(scores).sum(-1, keepdims=True))
    np.testing.assert_allclose(fa.with_sink(0.0)(scores), one_more, **CLOSE)
    with_sparsemax = fa.with_sink(scores.max() + 2, fa.sparsemax)
    np.testing.assert_array_equal(with_sparsemax(scores), 0)


def test_a_normaliser_of_all_queries_gets_them_all_beside_a_sink():
    normalizer = fa.with_sink(0.0, fa.monotonic_expectation)
    attend = jax.jit(functools.partial(fa.attend, normalizer=normalizer, chunk_size=3))
    whole = jax.jit(functools.partial(fa.attend, normalizer=normalizer))(X, X, X)
    np.testing.assert_allclose(attend(X, X, X).context, whole.context, **CLOSE)


def test_a_lens_replaces_the_normaliser_beside_the_sink():
    layer = fa.MultiHeadAttention(HEADS, sinks=True)
    variables = drawn(init(layer, X))
    with fa.Lens(normalizer=fa.sparsemax):
        through = apply(layer, variables, X).weights
    expected = apply(layer.clone(normalizer=fa.sparsemax), variables, X).weights
    np.testing.assert_array_equal(through, expected)


def test_a_gate_multiplies_the_contexts_of_the_heads():
    layer = fa.MultiHeadAttention(HEADS, output_gate=True)
    variables = drawn(init(layer, X))
    params = dict(variables["params"])
    gate = 1 / (1 + np.exp(-dense(params.pop("gate"), X)))
    plain = {"params": params}
    identity = params["out"] | {"kernel": np.eye(D, dtype=np.float32).reshape(HEADS, 4, D)}
    identity["bias"] = np.zeros(D, np.float32)
    plain = {"params": params | {"out": identity}}
    heads = apply(fa.MultiHeadAttention(HEADS), plain, X).context.reshape(B, T, HEADS, 4)
    expected = np.einsum("bthe,hed->btd", heads * gate, np.asarray(params["out"]["kernel"]))
    got = apply(layer, variables, X).context
    np.testing.assert_allclose(
        got, expected + np.asarray(params["out"]["bias"]), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize(("use_bias", "out_bias"), [(True, False), (False, True), (False, None)])
def test_the_projection_out_has_a_bias_of_its_own(use_bias, out_bias):
    layer = fa.MultiHeadAttention(HEADS, use_bias=use_bias, out_bias=out_bias)
    params = init(layer, X)["params"]
    assert ("bias" in params["out"]) == (use_bias if out_bias is None else out_bias)
    assert all(("bias" in params[name]) == use_bias for name in ("query", "key", "value"))


def test_queries_and_keys_are_normed_in_each_head_or_over_all():
    everywhere = {"reduction_axes": (-2, -1), "feature_axes": (-2, -1)}
    for norm, shape in ((nn.RMSNorm, (4,)), (functools.partial(nn.RMSNorm, **everywhere), (3, 4))):
        layer = fa.MultiHeadAttention(HEADS, query_key_norm=norm)
        variables = drawn(init(layer, X))
        params = variables["params"]
        assert params["query_ln"]["scale"].shape == shape
        axes = (-1,) if len(shape) == 1 else (-2, -1)
        q, k = (dense(params[name], X) for name in ("query", "key"))
        root = lambda x, axes=axes: np.sqrt((x**2).mean(axes, keepdims=True) + 1e-6)
        q = q / root(q) * np.asarray(params["query_ln"]["scale"])
        k = k / root(k) * np.asarray(params["key_ln"]["scale"])
        scores = np.einsum("bqhe,bkhe->bhqk", q, k) / 2
        expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(apply(layer, variables, X).weights, expected, **CLOSE)


def test_frequencies_are_scaled_by_the_two_rules():
    own = 10_000.0 ** (-np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(fa.scaled_frequencies(16, 1.0), own)
    np.testing.assert_allclose(fa.scaled_frequencies(16, 4.0), own / 4)
    kept = fa.scaled_frequencies(16, 8.0, trained_length=100, slow=1.0, fast=4.0)
    for frequency, plain in zip(kept, own):
        turns = 100 * plain / (2 * np.pi)
        if turns >= 4:
            expected = plain
        elif turns <= 1:
            expected = plain / 8
        else:
            share = (turns - 1) / 3
            expected = plain * share + plain / 8 * (1 - share)
        np.testing.assert_allclose(frequency, expected)


def test_rotary_turns_by_the_frequencies_it_is_given():
    vectors = jnp.asarray(normal(2, 5, 8))
    plain = fa.rotary(vectors)
    same = fa.rotary(vectors, frequencies=fa.scaled_frequencies(8, 1.0))
    np.testing.assert_allclose(plain, same, **CLOSE)
    slowed = fa.rotary(vectors, 2 * jnp.arange(5), frequencies=fa.scaled_frequencies(8, 2.0))
    np.testing.assert_allclose(plain, slowed, **CLOSE)


def test_a_bound_score_takes_the_paths_of_the_plain_one():
    score = functools.partial(fa.scaled_dot, scale=0.3, softcap=2.0)
    heads = jnp.asarray(normal(1, B, 600, 2, 8))
    options = {"causal": True, "need_weights": False}
    first = jnp.swapaxes(heads, 1, 2)
    got = fa.attend(first, first, first, score=score, **options).context
    expected = fa.dot_product_attention(heads, heads, heads, scale=0.3, softcap=2.0, **options)
    np.testing.assert_allclose(jnp.swapaxes(got, 1, 2), expected.context, **CLOSE)
    plain = fa.form_of(first, first, first, score=fa.scaled_dot, **options)
    assert fa.form_of(first, first, first, score=score, **options).name == plain.name
    layer = fa.MultiHeadAttention(HEADS, score=score)
    variables = init(layer, X)
    plain = apply(layer.clone(score=fa.scaled_dot), variables, X)
    assert not np.allclose(apply(layer, variables, X).weights, plain.weights)
