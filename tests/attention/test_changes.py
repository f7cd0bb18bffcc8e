"""A lens with functions of sites: in every way to attend, in every layer, and under
transformations.
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import flax_attn.attention as fa
from flax_attn.attention import Lens
from tests.attention.compiled import init, normal, run

B, Q, K, D, E = 2, 5, 7, 4, 3
draw = lambda *arguments: jnp.asarray(normal(*arguments))
QUERY, KEY, VALUE, X = draw(0, B, Q, D), draw(1, B, K, D), draw(2, B, K, E), draw(3, B, K, D)
HEADS = {"query": draw(4, B, Q, 4, D), "key": draw(5, B, K, 2, D), "value": draw(6, B, K, 2, E)}
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)


def halve(site, array):
    return array / 2


class Inside(nn.Module):
    """A model with one layer."""

    layer: nn.Module

    def __call__(self, *arrays):
        return self.layer(*arrays)


BLOCK = fa.MultiHeadAttention(2), fa.FeedForward(5)
LAYERS = {
    "Attention": (fa.Attention(fa.AdditiveScore(3)), (QUERY, KEY, VALUE)),
    "HardAttention": (fa.HardAttention(), (QUERY, KEY)),
    "LocalAttention": (fa.LocalAttention(2), (X, X)),
    "PredictiveLocalAttention": (fa.PredictiveLocalAttention(2, 3), (QUERY, KEY)),
    "SelfAttention": (fa.SelfAttention(3, 5), (X,)),
    "MultiHeadAttention": (fa.MultiHeadAttention(4, num_key_heads=2), (X,)),
    "AttentionPooling": (fa.AttentionPooling(3), (X,)),
    "StructuredSelfAttention": (fa.StructuredSelfAttention(3, 2), (X,)),
    "InputAttentionCell": (fa.InputAttentionCell(4, 2), (draw(1, B, 4), draw(0, B, K))),
    "EncoderBlock": (fa.EncoderBlock(*BLOCK), (X,)),
    "DecoderBlock": (fa.DecoderBlock(BLOCK[0], fa.MultiHeadAttention(2), BLOCK[1]), (X, KEY)),
}
INNER = {"EncoderBlock": [("attention",)], "DecoderBlock": [("attention",), ("cross_attention",)]}


def weights_of(result):
    """The weights of the first attention."""
    attended = result[1] if isinstance(result[1], fa.Attended) else result
    return attended.weights


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_has_the_weights_that_the_lens_makes_of_its_own(name):
    layer, arrays = LAYERS[name]
    model, names = Inside(layer), []
    variables = init(model, *arrays)

    def change(site, weights):
        names.append(site)
        return jnp.roll(weights, 1, axis=-1)

    def look(variables, arrays):
        with Lens(change={"*weights": change}):
            return model.apply(variables, *arrays)

    changed, plain = run(look, variables, arrays), run(model.apply, variables, *arrays)
    assert names == ["/".join(["layer", *inner, "weights"]) for inner in INNER.get(name, [()])]
    close(weights_of(changed), np.roll(weights_of(plain), 1, axis=-1))
    contexts = (jax.tree.leaves(result)[0] for result in (plain, changed))
    assert np.abs(np.subtract(*contexts)).max() > 1e-3


@pytest.mark.parametrize(
    "options",
    [{}, {"chunk_size": 2}, {"need_weights": False}, {"across": True}, {"causal": True}],
    ids=str,
)
def test_functions_of_attention_have_weights_and_contexts_by_head(options):
    """Heads in groups come in their order."""
    numbers = jnp.arange(1.0, 5.0)
    if "across" in options:
        mesh = jax.make_mesh((1,), ("sequence",), (AxisType.Auto,))
        options = {"across": fa.Across(mesh), "need_weights": False}
    attend = functools.partial(fa.dot_product_attention, **HEADS, **options)
    plain = attend()
    times = lambda shape: lambda site, own: own * numbers.reshape(shape)
    with Lens(change={"context": times((1, 1, 4, 1))}):
        scaled = attend()
    close(scaled.context, plain.context * numbers[None, None, :, None])
    if plain.weights is not None:
        np.testing.assert_array_equal(scaled.weights, plain.weights)
    with Lens(change={"weights": times((1, 4, 1, 1))}):
        reweighted = attend()
    close(reweighted.context, scaled.context)
    if plain.weights is not None:
        close(reweighted.weights, plain.weights * numbers[None, :, None, None])


def test_contexts_of_no_keys_are_changed_too():
    empty = HEADS | {name: HEADS[name][:, :0] for name in ("key", "value")}
    with Lens(change={"context": lambda site, own: own + 1, "weights": halve}):
        assert (fa.dot_product_attention(**empty).context == 1).all()


def test_dropout_comes_after_the_change():
    """Of weights that are all 1 some are dropped, and those that are returned are 1."""
    values = jnp.eye(K)[None]
    options = {"dropout_rate": 0.4, "dropout_rng": jax.random.key(0)}
    with Lens(change={"weights": lambda site, weights: jnp.ones_like(weights)}):
        context, weights = fa.attend(QUERY[:1], KEY[:1], values, **options)
    assert (weights == 1).all()
    kept = np.asarray(context) > 0
    close(context, np.where(kept, 1 / 0.6, 0))
    assert 0.3 < kept.mean() < 0.9


def test_temperature_normaliser_and_mask_come_before_the_change():
    settings = {"temperature": 3.0, "normalizer": fa.sparsemax, "mask": jnp.arange(K) != 2}
    with Lens(**settings):
        expected = fa.attend(QUERY, KEY, VALUE).weights
    with Lens(**settings, change={"weights": halve}, keep_scores=True) as lens:
        got = fa.attend(QUERY, KEY, VALUE).weights
    close(got, expected / 2)
    assert len(lens.scores) == 1


def test_a_function_compiled_before_has_the_change_within_the_lens_alone():
    """Each function has a program of its own, which is used again."""
    chex.clear_trace_counter()
    model = Inside(fa.MultiHeadAttention(2))
    variables = init(model, X)
    look = jax.jit(chex.assert_max_traces(lambda x: model.apply(variables, x).context, n=5))
    before, bias = look(X), variables["params"]["layer"]["out"]["bias"]
    for pattern in ("*weights", "layer/context"):
        for factor in (0.0, 0.5):
            lens = Lens(change={pattern: lambda site, own, factor=factor: own * factor})
            for _ in range(2):
                with lens:
                    close(look(X), bias[None, None] + factor * (before - bias[None, None]))
            np.testing.assert_array_equal(look(X), before)


def test_changes_are_traced_derived_and_mapped():
    model = Inside(fa.MultiHeadAttention(2))
    variables = init(model, X)

    def total(factor, variables, site="layer/context"):
        with Lens(change={site: lambda site, own: own * factor}):
            return jnp.sum(model.apply(variables, X).context)

    one, zero = total(1.0, variables), total(0.0, variables)
    close(jax.jit(jax.grad(total))(0.3, variables), one - zero)
    factors, seeds = (
        jnp.array([0.0, 0.5, 1.0]),
        jax.tree.map(lambda x: jnp.stack([x, 2 * x, x]), variables),
    )
    mapped = jax.vmap(total)(factors, seeds)
    close(
        mapped, [total(f, jax.tree.map(lambda x, i=i: x[i], seeds)) for i, f in enumerate(factors)]
    )
    close(total(0.0, variables, "another/context"), one)


@pytest.mark.parametrize("cache", ["whole", "sliding"])
def test_decoding_with_a_cache_is_the_whole(cache):
    model = fa.MultiHeadAttention(4, num_key_heads=2, key_features=8, rotary=True)
    variables, names = init(model, X), []

    def change(site, own):
        names.append(site)
        return own * jnp.arange(4.0)[None, None, :, None]

    options = {"window": (2, 0)} if cache == "sliding" else {}
    state = model.init_cache(D, (B,), None if options else K, **options)
    with Lens(change={"context": change, "weights": halve}):
        whole = model.apply(variables, X, causal=True, **options).context
        contexts = []
        for first, last in ((0, 3), (3, 4), (4, 7)):
            x = X[:, first:last]
            attended, state = model.apply(variables, x, state, **options, method="decode")
            contexts.append(attended.context)
    np.testing.assert_allclose(np.concatenate(contexts, 1), whole, rtol=1e-4, atol=1e-5)
    assert names == ["context"] * 4  # a layer that is the whole model has no path


def test_whole_numbers_and_arrays_of_numpy_are_taken_in_the_dtype_of_the_layer():
    half = QUERY.astype(jnp.bfloat16)
    for change in (
        lambda site, own: np.ones(own.shape),
        lambda site, own: jnp.ones(own.shape, int),
    ):
        with Lens(change={"weights": change}):
            context, weights = fa.attend(half, half, half)
        assert (context.dtype, weights.dtype) == (jnp.bfloat16, jnp.bfloat16)
        assert (weights == 1).all()
