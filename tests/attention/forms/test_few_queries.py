"""One query, or a few, against the many keys of a cache: taken where it is the fastest form, and
equal to the dense one.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import MultiHeadAttention
from flax_attn.attention.core import FORMS, compute, heads_last, make_call
from flax_attn.attention.forms import few_queries
from flax_attn.attention.scores import DotProduct
from tests.attention.compiled import normal

B, Q, K, HEADS, KEY_HEADS, D, E = 2, 3, 257, 4, 2, 8, 5
QUERY, KEY, VALUE = (
    jnp.asarray(normal(i, B, *shape))
    for i, shape in enumerate([(Q, HEADS, D), (K, KEY_HEADS, D), (K, KEY_HEADS, E)])
)
LENGTHS = jnp.array([201, 0])
RANDOM = np.random.default_rng(3).random((B, HEADS, Q, K)) < 0.4
OPTIONS = {
    "plain": {},
    "cache": {
        "causal": True,
        "query_offset": jnp.array([100, 20]),
        "key_lengths": jnp.array([103, 23]),
    },
    "window": {"causal": True, "window": (9, 0), "query_offset": 90},
    "empty": {"key_lengths": LENGTHS},
    "mask and bias": {"mask": jnp.asarray(RANDOM), "bias": jnp.asarray(normal(4, 1, HEADS, 1, K))},
    "functions": {
        "mask": lambda q, k: k % 3 > 0,
        "bias": lambda q, k: -0.1 * jnp.abs(q - k).astype(jnp.float32),
    },
    "scale and cap": {"scale": 0.7, "softcap": 2.0},
}
on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="a form for CPUs")


def attend(*arrays, is_cached=True, scale=None, softcap=None, **options):
    """`dot_product_attention` for keys and values of a cache."""
    call = make_call(*arrays, in_heads=True, score=DotProduct(scale, softcap), **options)
    return heads_last(compute(call._replace(is_cached=is_cached)), call.visible.weights_shape)


def outcome(arrays, need_weights, **options):
    def loss(*arrays):
        context = attend(*arrays, **options, need_weights=need_weights).context
        return jnp.sum(jnp.sin(context)), context

    return jax.device_get(
        jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(*arrays)
    )


@pytest.fixture
def taken(monkeypatch):
    """Whether the form was taken, here from fewer numbers on."""
    calls, attend = [], few_queries.attend
    monkeypatch.setattr(few_queries, "LEAST_NUMBERS", KEY.size)
    spied = few_queries.why_not, lambda *args: calls.append(args) or attend(*args)
    monkeypatch.setitem(FORMS, "few_queries", spied)
    return calls


@on_cpu
@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_gradients_are_those_of_the_dense_form(name, taken):
    expected = outcome((QUERY, KEY, VALUE), True, **OPTIONS[name])
    assert not taken
    ours = outcome((QUERY, KEY, VALUE), False, **OPTIONS[name])
    assert taken
    chex.assert_trees_all_close(ours, expected, atol=1e-5)


@on_cpu
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_hidden_keys_hold_does_not_count(bad, taken):
    hidden = (jnp.arange(K)[None] >= LENGTHS[:, None])[..., None, None]
    dirty = QUERY, jnp.where(hidden, bad, KEY), jnp.where(hidden, bad, VALUE)
    expected = outcome((QUERY, KEY, VALUE), True, key_lengths=LENGTHS)
    chex.assert_trees_all_close(outcome(dirty, False, key_lengths=LENGTHS), expected, atol=1e-5)
    uncompiled = attend(*dirty, key_lengths=LENGTHS, need_weights=False).context
    np.testing.assert_allclose(uncompiled, expected[0][1], atol=1e-5)
    assert len(taken) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"need_weights": True},
        {"chunk_size": 64},
        {"dropout_rate": 0.5, "dropout_rng": jax.random.key(0)},
        {"is_cached": False},
    ],
    ids=str,
)
def test_it_is_taken_only_beside_a_cache_without_weights_blocks_and_dropout(options, taken):
    attend(QUERY, KEY, VALUE, **({"need_weights": False} | options))
    assert not taken


def test_it_is_not_taken_for_many_queries_or_few_keys(taken):
    many = jnp.asarray(normal(5, B, few_queries.MOST_QUERIES + 1, HEADS, D))
    attend(many, KEY, VALUE, need_weights=False)
    attend(QUERY, KEY[:, :20], VALUE[:, :20], need_weights=False)
    assert not taken


@on_cpu
def test_a_layer_that_decodes_takes_it(taken):
    layer = MultiHeadAttention(HEADS)
    inputs = jnp.asarray(normal(6, B, Q, 32))
    cache = layer.init_cache(32, (B,), max_length=4 * K)
    decode = lambda needs: (
        layer.init_with_output(
            jax.random.key(0), inputs, cache, need_weights=needs, method="decode"
        )[0][0].context
    )
    expected = decode(True)
    assert not taken
    chex.assert_trees_all_close(decode(False), expected, atol=1e-5)
    assert taken


@on_cpu
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_keys_of_a_cache_give_the_values_and_gradients_of_the_dense_form(key_heads, taken):
    """Rows have 3 and 40 tokens, and the second has a NaN in a slot that is hidden."""
    layer = MultiHeadAttention(HEADS, num_key_heads=key_heads)
    prompt, new = jnp.asarray(normal(7, B, 40, 64)), jnp.asarray(normal(8, B, Q, 64))
    variables = layer.init(jax.random.key(0), new)
    empty = layer.init_cache(64, (B,), max_length=2048)
    lengths = jnp.array([3, 40])

    @functools.partial(jax.jit, static_argnums=2)
    def outcome(variables, new, need_weights, hidden):
        def loss(variables, new):
            extend = functools.partial(layer.apply, variables, method="extend")
            cache = extend(empty, prompt, lengths=lengths)
            cache = cache._replace(value=cache.value.at[1, :, 60].set(hidden))
            attended, _ = layer.apply(
                variables, new, cache, need_weights=need_weights, method="decode"
            )
            return jnp.sum(jnp.sin(attended.context)), attended.context

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(variables, new)

    expected = outcome(variables, new, True, 0.0)
    assert not taken
    chex.assert_trees_all_close(outcome(variables, new, False, 0.0), expected, atol=1e-5)
    assert taken
    dirty = outcome(variables, new, False, jnp.nan)
    chex.assert_trees_all_close(dirty, expected, atol=1e-5)
