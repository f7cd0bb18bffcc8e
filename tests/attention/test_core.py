import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import flax_attn.attention as fa
from flax_attn.attention import attend, core
from tests.attention import naive
from tests.attention.compiled import normal, run

B, Q, K, D, E = 2, 3, 5, 7, 11  # distinct primes, so that no two axes can be confused


def make(leading=(B,)):
    return [normal(seed, *leading, *shape) for seed, shape in enumerate(((Q, D), (K, D), (K, E)))]


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_any_leading_axes(leading):
    attended = run(attend, *make(leading))
    chex.assert_shape(attended.context, (*leading, Q, E))
    chex.assert_shape(attended.weights, (*leading, Q, K))


def test_dropout_scales_what_it_keeps_and_leaves_the_weights_returned():
    query, key, value = (
        np.zeros((1, 1, D)),
        np.zeros((1, 4000, D)),
        np.eye(4000, dtype=np.float32)[None],
    )
    attended = run(attend, query, key, value, dropout_rate=0.25, dropout_rng=jax.random.key(0))
    assert_allclose(attended.weights, 1 / 4000, rtol=1e-5)
    # the value of key k is the k-th unit vector, so these are the weights used
    kept = attended.context[0, 0] * 4000
    assert_allclose(np.unique(np.round(kept, 3)), [0, 1.333])
    assert 0.73 < (kept > 0).mean() < 0.77


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_result_has_the_dtype_of_the_query(dtype):
    query, key, value = (array.astype(dtype) for array in make())
    attended = run(attend, query, key, value)
    assert attended.context.dtype == attended.weights.dtype == dtype
    assert_allclose(attended.context.astype(float), naive.attend(query, key, value)[0], atol=0.05)


def test_a_nan_in_the_bias_is_seen():
    query, key, value = make()
    bias = np.zeros((B, Q, K), np.float32)
    bias[0, 0, 0] = np.nan
    assert np.isnan(np.asarray(attend(query, key, value, bias=bias).context)[0, 0]).all()


def test_grouped_heads_share_their_keys_and_values():
    """Equal to as many key heads as query heads, each key head repeated."""
    query, key, value = normal(3, 2, 7, 6, 4), normal(4, 2, 5, 3, 4), normal(5, 2, 5, 3, 2)
    options = {
        "mask": np.random.default_rng(6).random((2, 6, 7, 5)) < 0.7,
        "bias": normal(7, 1, 6, 1, 5),
    }
    grouped = run(fa.dot_product_attention, query, key, value, **options)
    repeated = [np.repeat(array, 2, axis=2) for array in (key, value)]
    chex.assert_trees_all_close(
        grouped, run(fa.dot_product_attention, query, *repeated, **options), atol=1e-6
    )
    chunked = run(fa.dot_product_attention, query, key, value, chunk_size=3, **options)
    assert_allclose(chunked.context, grouped.context, atol=1e-6)


@pytest.mark.parametrize("scale", [None, 2.0])
def test_scale_softcap_and_bias_in_their_order(scale):
    query, key, bias = normal(3, 1, 3, 1, 4), normal(4, 1, 5, 1, 4), normal(5, 3, 5)
    weights = run(
        fa.dot_product_attention, query, key, key, scale=scale, softcap=1.5, bias=bias
    ).weights
    scores = 1.5 * np.tanh((scale or 0.5) * query[0, :, 0] @ key[0, :, 0].T / 1.5) + bias
    expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    assert_allclose(weights[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_added_up_in_float32(dtype):
    vectors, value = jnp.ones((4, 2), dtype), jnp.full((4, 2), 60_000, dtype)
    ones = lambda scores, mask: jnp.ones(scores.shape, dtype)
    dense = lambda *arrays: core.make_call(*arrays, normalizer=ones).dense()
    context, _ = run(dense, vectors[:1], vectors, value)
    assert context.dtype == jnp.float32
    assert_array_equal(context, 4 * np.asarray(value[:1], np.float32))


FORMS = {
    "dense": {},
    "blocks": {"chunk_size": 100},
    "few queries": {"need_weights": False},
    "half precision in blocks": {"chunk_size": 100},
}


def of_number(name, number):
    """A function of arrays with a number among its settings, and the arrays."""
    if name == "temperature":
        return functools.partial(fa.hard, temperature=number), [np.ones((2, 3), np.float32)]
    dtype = jnp.bfloat16 if "half" in name else np.float32
    arrays = [normal(i, 1, n, 2, 4).astype(dtype) for i, n in enumerate((2, 300, 300))]
    settings = {"scale": number, "softcap": number} | FORMS[name]
    return lambda *arrays: fa.dot_product_attention(*arrays, **settings).context, arrays


@pytest.mark.parametrize("name", [*FORMS, "temperature"])
def test_a_number_means_the_same_as_every_kind_of_number(name):
    """A traced one too, which has a dtype of its own."""

    def program(number):
        function, arrays = of_number(name, number)
        return re.sub("0x[0-9a-f]+", "", str(jax.make_jaxpr(function)(*arrays)))

    kinds = [np.float32, np.float64, np.float16, np.array, jnp.float64, jnp.bfloat16]
    with jax.enable_x64(True):
        right = program(0.25)
        assert all(program(kind(0.25)) == right for kind in kinds)
        assert program(2) == program(np.array(2)) == program(2.0)
        function, arrays = of_number(name, 0.25)
        traced = jax.jit(lambda number, *arrays: of_number(name, number)[0](*arrays))
        for kind in (jnp.float64, jnp.bfloat16):
            chex.assert_trees_all_close(
                traced(kind(0.25), *arrays), jax.jit(function)(*arrays), rtol=1e-6
            )


def test_a_scale_has_a_gradient():
    """Also where it is traced inside a block of half precision."""
    x = normal(0, 1, 5, 1, 4).astype(jnp.bfloat16)

    def loss(scale, **options):
        context = fa.dot_product_attention(x, x, x, scale=scale, **options).context
        return jnp.sin(context.astype(jnp.float32)).sum()

    whole, blocks = (
        jax.jit(jax.grad(functools.partial(loss, **options)))(0.3)
        for options in ({}, {"chunk_size": 2})
    )
    assert_allclose(blocks, whole, rtol=0.02)
    assert abs(whole) > 0.01
