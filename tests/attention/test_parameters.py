"""Parameters and dtypes as Flax's layers have them, and what is said of wrong ones."""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

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
    assert_allclose(attended.context.astype(np.float32), expected.context, atol=0.1)


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
    assert_allclose(
        context.astype(np.float32),
        expected.astype(np.float32),
        atol=0.1 if "dtype" in OPTIONS[name][0] else 1e-5,
    )


def test_normalised_queries_and_keys_do_not_grow_with_the_inputs():
    layer = heads(query_key_norm=True, use_bias=False)
    variables = init(layer, X)
    weights, larger = (apply(layer, variables, x).weights for x in (X, 1000 * X))
    assert_allclose(larger, weights, atol=1e-4)
