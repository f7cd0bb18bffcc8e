"""Parameters and dtypes as Flax's layers have them, and what is said of wrong ones."""

import functools
import json
import subprocess
import sys

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal

B, T, D = 2, 5, 12
X, Y = jnp.asarray(normal(0, B, T, D)), jnp.asarray(normal(1, B, T, D))
HALF = {"dtype": jnp.bfloat16, "param_dtype": jnp.float16}
heads = functools.partial(fa.MultiHeadAttention, 2)


class Cell(nn.Module):
    dtype: jnp.dtype
    param_dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        return fa.InputAttentionCell(3, 4, dtype=self.dtype, param_dtype=self.param_dtype)(
            x[:, 0, :3], x[:, 1]
        )[1]


LAYERS = {
    "Attention": (lambda **o: fa.Attention(dtype=o["dtype"]), 2),
    "HardAttention": (lambda **o: fa.HardAttention(dtype=o["dtype"]), 2),
    "MultiHeadAttention": (
        functools.partial(fa.MultiHeadAttention, 3, query_key_norm=True, rotary=True),
        1,
    ),
    "SelfAttention": (functools.partial(fa.SelfAttention, 3, 4, use_bias=True), 1),
    "LocalAttention": (functools.partial(fa.LocalAttention, 1), 2),
    "PredictiveLocalAttention": (functools.partial(fa.PredictiveLocalAttention, 1, 3), 2),
    "AttentionPooling": (functools.partial(fa.AttentionPooling, 3), 1),
    "StructuredSelfAttention": (functools.partial(fa.StructuredSelfAttention, 3, 2), 1),
    "EncoderBlock": (lambda **o: fa.EncoderBlock(heads(**o), fa.FeedForward(5, **o), **o), 1),
    "DecoderBlock": (
        lambda **o: fa.DecoderBlock(
            heads(**o), heads(**o), fa.FeedForward(5, **o), pre_norm=False, **o
        ),
        2,
    ),
    "InputAttentionCell": (Cell, 1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_dtype_is_that_of_the_result_and_param_dtype_that_of_the_parameters(name):
    make, num_inputs = LAYERS[name]
    inputs = (X, Y)[:num_inputs]
    variables = init(make(**HALF), *inputs)
    for leaf in jax.tree.leaves(variables):
        assert leaf.dtype == jnp.float16
    attended = apply(make(**HALF), variables, *inputs)
    assert attended.context.dtype == attended.weights.dtype == jnp.bfloat16
    expected = apply(make(dtype=jnp.float32, param_dtype=jnp.float32), variables, *inputs)
    assert expected.context.dtype == expected.weights.dtype == jnp.float32
    np.testing.assert_allclose(attended.context.astype(np.float32), expected.context, atol=0.1)


def test_a_cache_has_the_dtype_of_its_layer():
    assert heads(dtype=jnp.bfloat16).init_cache(D, (B,), 4).key.dtype == jnp.bfloat16
    assert heads().init_cache(D, (B,), window=(3, 0)).value.dtype == jnp.float32
    assert heads(dtype=jnp.bfloat16).init_cache(D, (B,), 4, jnp.float16).key.dtype == jnp.float16
    layer = heads(dtype=jnp.bfloat16)
    attended, _ = apply(layer, init(layer, X), X, layer.init_cache(D, (B,), T), method="decode")
    assert attended.context.dtype == jnp.bfloat16


OPTIONS = {
    "norms of queries and keys": ({"query_key_norm": True}, {"normalize_qk": True}),
    "half precision": (HALF, HALF),
    "precision": ({"precision": "highest"}, {"precision": "highest"}),
    "initialiser of biases": (
        {"bias_init": nn.initializers.normal()},
        {"bias_init": nn.initializers.normal()},
    ),
    "all": (
        HALF | {"query_key_norm": True, "use_bias": False},
        HALF | {"normalize_qk": True, "use_bias": False},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_are_those_of_linen_in_every_option(name):
    ours, linen = heads(**OPTIONS[name][0]), nn.MultiHeadDotProductAttention(2, **OPTIONS[name][1])
    chex.assert_trees_all_equal(ours.init(jax.random.key(0), X), linen.init(jax.random.key(0), X))
    variables = init(ours, X)
    expected, context = apply(linen, variables, X, Y), apply(ours, variables, X, Y).context
    assert context.dtype == expected.dtype
    np.testing.assert_allclose(
        context.astype(np.float32),
        expected.astype(np.float32),
        atol=0.1 if "dtype" in OPTIONS[name][0] else 1e-5,
    )


def test_normalised_queries_and_keys_do_not_grow_with_the_inputs():
    layer = heads(query_key_norm=True, use_bias=False)
    variables = init(layer, X)
    weights, larger = (apply(layer, variables, x).weights for x in (X, 1000 * X))
    np.testing.assert_allclose(larger, weights, atol=1e-4)


def test_the_epsilon_of_the_norms_is_that_of_the_blocks():
    make = lambda pre_norm, epsilon: fa.EncoderBlock(
        heads(), fa.FeedForward(5), pre_norm, epsilon=epsilon
    )
    variables = init(make(True, 1e-6), X)
    small, large = (apply(make(True, epsilon), variables, X).context for epsilon in (1e-6, 1e6))
    assert np.abs(small - large).max() > 0.1
    norm = {"scale": jnp.ones(D), "bias": jnp.zeros(D)}
    params = jax.tree.map(jnp.zeros_like, variables["params"]) | {
        "attention_norm": norm,
        "feed_forward_norm": norm,
    }
    # both norms alone: each divides by 1e3
    context = apply(make(False, 1e6), {"params": params}, X).context
    np.testing.assert_allclose(
        1e6 * context, X - X.mean(axis=-1, keepdims=True), rtol=1e-4, atol=1e-5
    )


# Sizes and rates.

SIZES = {
    "num_heads": lambda size: fa.MultiHeadAttention(size),
    "num_key_heads": lambda size: heads(num_key_heads=size),
    "key_features": lambda size: heads(key_features=size),
    "value_features": lambda size: heads(value_features=size),
    "out_features": lambda size: heads(out_features=size),
    "rotary_features": lambda size: heads(rotary=True, rotary_features=size),
    "key_features ": lambda size: fa.SelfAttention(size, 3),
    "value_features ": lambda size: fa.SelfAttention(3, size),
    "features": lambda size: fa.FeedForward(size),
    "features ": lambda size: fa.PredictiveLocalAttention(1, size),
    "features  ": lambda size: fa.InputAttentionCell(size, 3),
    "out_features ": lambda size: fa.InputAttentionCell(3, size),
    "reach": lambda size: fa.PredictiveLocalAttention(size, 3),
    "hidden_features": lambda size: fa.AttentionPooling(size),
    "hidden_features ": lambda size: fa.StructuredSelfAttention(size, 3),
    "num_hops": lambda size: fa.StructuredSelfAttention(3, size),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_an_integer_above_0(name):
    SIZES[name](2)
    for size, error in ((0, ValueError), (-3, ValueError), (True, TypeError)):
        with pytest.raises(
            error, match=f"expected {name.strip()} to be an integer of 1 or above, got {size!r}"
        ):
            SIZES[name](size)


def test_a_window_of_the_own_position_alone_is_one():
    fa.LocalAttention(0)
    with pytest.raises(ValueError, match="expected reach to be an integer of 0 or above, got -1"):
        fa.LocalAttention(-1)


RATES = {
    "Attention": lambda rate: fa.Attention(dropout_rate=rate),
    "MultiHeadAttention": lambda rate: heads(dropout_rate=rate),
    "SelfAttention": lambda rate: fa.SelfAttention(3, 3, dropout_rate=rate),
    "LocalAttention": lambda rate: fa.LocalAttention(1, dropout_rate=rate),
    "PredictiveLocalAttention": lambda rate: fa.PredictiveLocalAttention(1, 2, dropout_rate=rate),
    "FeedForward": lambda rate: fa.FeedForward(3, dropout_rate=rate),
    "EncoderBlock": lambda rate: fa.EncoderBlock(heads(), fa.FeedForward(3), dropout_rate=rate),
    "DecoderBlock": lambda rate: fa.DecoderBlock(
        heads(), heads(), fa.FeedForward(3), dropout_rate=rate
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_a_rate_of_dropout_is_refused_before_training(name):
    RATES[name](0.5)
    for rate, error in (
        (1.5, ValueError),
        (1.0, ValueError),
        (-0.1, ValueError),
        (float("nan"), ValueError),
    ):
        with pytest.raises(error, match=rf"expected dropout_rate in \[0, 1\), got {rate!r}"):
            RATES[name](rate)


# What the types of the annotations refuse in tests is looked at in a program without them.

PROGRAM = """
import json, jax, jax.numpy as jnp
import flax_attn.attention as fa
x, heads, key = jnp.ones((1, 2, 4)), fa.MultiHeadAttention(2), jax.random.key(0)
four = x[:, :, None]
calls = {
    "query": lambda: heads.init(key, [[[1.0, 2.0]]]),
    "key": lambda: heads.init(key, x, [[[1.0, 2.0]]]),
    "decode": lambda: heads.apply({}, [[1.0, 2.0]], heads.init_cache(4, (1,), 3), method="decode"),
    "attention": lambda: fa.Attention().init(key, x, x, (1.0, 2.0)),
    "self-attention": lambda: fa.SelfAttention(3, 3).init(key, [[1.0, 2.0]]),
    "local": lambda: fa.LocalAttention(1).init(key, [[1.0, 2.0]], x),
    "predictive": lambda: fa.PredictiveLocalAttention(1, 2).init(key, x, [[1.0, 2.0]]),
    "pooling": lambda: fa.AttentionPooling().init(key, [[1.0, 2.0]]),
    "hops": lambda: fa.StructuredSelfAttention(3, 3).init(key, [[1.0, 2.0]]),
    "feed-forward": lambda: fa.FeedForward(3).init(key, [[1.0, 2.0]]),
    "encoder": lambda: fa.EncoderBlock(heads, fa.FeedForward(3)).init(key, [[1.0, 2.0]]),
    "decoder": lambda: fa.DecoderBlock(heads, heads, fa.FeedForward(3)).init(key, x, [[1.0, 2.0]]),
    "integers": lambda: heads.init(key, jnp.ones((1, 2, 4), int)),
    "half a head": lambda: fa.MultiHeadAttention(1.5),
    "a word": lambda: fa.StructuredSelfAttention(3, "4"),
    "a rate": lambda: fa.Attention(dropout_rate="0.1"),
    "no attention": lambda: fa.EncoderBlock(8, fa.FeedForward(3)),
    "no cross-attention": lambda: fa.DecoderBlock(heads, "heads", fa.FeedForward(3)),
    "no network": lambda: fa.EncoderBlock(heads, 64),
    "softcap": lambda: fa.dot_product_attention(four, four, four, softcap="a"),
    "scale": lambda: fa.dot_product_attention(four, four, four, scale="a"),
    "window nan": lambda: fa.dot_product_attention(four, four, four, window=(float("nan"), 0)),
    "window inf": lambda: fa.dot_product_attention(four, four, four, window=(0, float("inf"))),
    "an array for a size": lambda: fa.attend(x, x, x, chunk_size=jnp.asarray(2)),
    "a function's rate": lambda: fa.attend(x, x, x, dropout_rate="0.5"),
    "sliding": lambda: heads.apply({}, x, cache=heads.init_cache(4, (1,), window=(1, 0))),
}
said = {}
for name, call in calls.items():
    try:
        call()
    except Exception as error:
        said[name] = type(error).__name__, str(error)
print(json.dumps(said))
"""
A_LIST = "expected an array as {0}, got a list; pass jnp.asarray({0})"
SAID = {
    "query": A_LIST.format("query"),
    "key": A_LIST.format("key"),
    "decode": A_LIST.format("inputs"),
    "attention": "expected an array as value, got a tuple; pass jnp.asarray(value)",
    "self-attention": A_LIST.format("inputs"),
    "local": A_LIST.format("query"),
    "predictive": A_LIST.format("key"),
    "pooling": A_LIST.format("inputs"),
    "hops": A_LIST.format("inputs"),
    "feed-forward": A_LIST.format("inputs"),
    "encoder": A_LIST.format("inputs"),
    "decoder": A_LIST.format("key"),
    "integers": "expected a query of floats, got int32",
    "half a head": "expected num_heads to be an integer of 1 or above, got 1.5",
    "a word": "expected num_hops to be an integer of 1 or above, got '4'",
    "a rate": "expected dropout_rate in [0, 1), got '0.1'",
    "no attention": "expected a module as attention, such as MultiHeadAttention(8), got 8",
    "no cross-attention": "expected a module as cross_attention, such as MultiHeadAttention(8), "
    "got 'heads'",
    "no network": "expected a module as feed_forward, such as FeedForward(256), got 64",
    "softcap": "expected softcap above 0 and finite, or None, got 'a'",
    "scale": "expected scale to be a number or None, got 'a'",
    "window nan": "expected left of a window to be an integer of 0 or above, or None, got nan",
    "window inf": "expected right of a window to be an integer of 0 or above, or None, got inf",
    "an array for a size": "expected an integer chunk_size of 1 or above, or None, got Array(2, "
    "dtype=int32, weak_type=True)",
    "a function's rate": "expected dropout_rate in [0, 1), got '0.5'",
    "sliding": "expected a KeyValueCache, got a SlidingCache, which only decode reads",
}


@functools.cache
def said():
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", SAID)
def test_what_is_no_array_or_no_module_is_told(name):
    assert said()[name] == ["ValueError" if name.startswith("window") else "TypeError", SAID[name]]


def test_a_score_module_works_inside_layers():
    layer = fa.Attention(fa.AdditiveScore(4))
    assert init(layer, X, Y)["params"]["score"]["vector"].shape == (4,)


def test_help_names_all_arguments_of_decode():
    for name in ("inputs", "cache", "lengths", "mask", "bias", "window", "train", "need_weights"):
        assert name in fa.MultiHeadAttention.decode.__annotations__
    for block in (fa.EncoderBlock, fa.DecoderBlock):
        assert {
            "mask",
            "bias",
            "window",
            "lengths",
            "segments",
            "train",
            "need_weights",
        } <= block.__call__.__annotations__.keys()
