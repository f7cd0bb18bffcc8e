import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal

B, T, D = 2, 7, 12
X, MEMORY = normal(0, B, T, D), normal(1, B, 5, D)


def test_parameters_are_those_of_linen_and_move_both_ways():
    ours, linen = fa.MultiHeadAttention(3), nn.MultiHeadDotProductAttention(3)
    variables = init(ours, X)
    chex.assert_trees_all_equal_shapes_and_dtypes(variables, init(linen, X))
    for inputs in ((X,), (X, MEMORY)):
        np.testing.assert_allclose(
            apply(ours, variables, *inputs).context, apply(linen, variables, *inputs), atol=1e-6
        )


def test_inputs_may_be_cut_over_an_explicit_axis_of_a_mesh():
    """`jax.make_mesh` makes such axes, and no product may merge a cut axis with another."""
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Explicit,))
    cut = jax.device_put(X, NamedSharding(mesh, PartitionSpec("data")))
    layer = fa.MultiHeadAttention(3, rotary=True)
    variables = init(layer, X)
    context = jax.jit(layer.apply)(variables, cut).context
    assert jax.typeof(context).sharding.spec == PartitionSpec("data", None, None)
    expected = apply(layer, variables, X).context
    np.testing.assert_allclose(context, expected, atol=1e-6)
    with pytest.raises(ValueError, match="auto_axes"):
        layer.clone(chunk_size=2).apply(variables, cut)
    query = variables["params"]["query"]
    query["kernel"] = jax.device_put(
        query["kernel"], NamedSharding(mesh, PartitionSpec(None, "data"))
    )
    outside = jnp.asarray(X)
    with jax.set_mesh(mesh):
        context = jax.jit(layer.apply)(variables, outside).context
    np.testing.assert_allclose(context, expected, atol=1e-6)


def test_512_features_in_8_heads_have_1050624_parameters():
    variables = jax.eval_shape(lambda: init(fa.MultiHeadAttention(8), jnp.zeros((1, 2, 512))))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == 1_050_624


def test_weights_before_dropout_and_dropout_only_in_training():
    layer = fa.MultiHeadAttention(3, dropout_rate=0.5)
    variables, rngs = init(layer, X), {"dropout": jax.random.key(0)}
    plain, dropped = apply(layer, variables, X), apply(layer, variables, X, train=True, rngs=rngs)
    np.testing.assert_array_equal(plain.weights, dropped.weights)
    assert np.abs(plain.context - dropped.context).max() > 0.1
    chunked = apply(
        fa.MultiHeadAttention(3, dropout_rate=0.5, chunk_size=2),
        variables,
        X,
        train=True,
        rngs=rngs,
    )
    np.testing.assert_allclose(chunked.context, dropped.context, atol=1e-5)


@pytest.mark.parametrize("groups", [1, None])
def test_decoding_equals_the_causal_pass_at_every_step(groups):
    layer = fa.MultiHeadAttention(2, num_key_heads=groups, value_features=8)
    variables = init(layer, X)
    full = apply(layer, variables, X, causal=True)
    decode = jax.jit(lambda x, cache: layer.apply(variables, x, cache, method="decode"))
    cache = layer.init_cache(D, (B,), 9)
    steps = [(0, 3), (3, 4), (4, 6), (6, 7)]  # a prompt of three, then one, two, one
    for first, last in steps:
        attended, cache = decode(X[:, first:last], cache)
        np.testing.assert_allclose(attended.context, full.context[:, first:last], atol=1e-6)
        np.testing.assert_allclose(
            np.asarray(attended.weights)[..., :T], full.weights[:, :, first:last], atol=1e-6
        )
    np.testing.assert_array_equal(cache.length, T)


@pytest.mark.parametrize("name", ["mask", "segments"])
def test_memory_is_linear_where_single_pairs_are_hidden(name):
    """Which tokens see any other is asked for all of them, before they are projected."""

    def needed(length):
        x = jax.ShapeDtypeStruct((1, length, 8), jnp.float32)
        ids = jnp.zeros((1, length), jnp.int32)
        limits = {"mask": fa.masks.causal} if name == "mask" else {"query_segments": ids}
        layer = fa.MultiHeadAttention(2)
        attend = lambda p, x: layer.apply(p, x, need_weights=False, **limits).context.sum()
        params = jax.eval_shape(layer.init, jax.random.key(0), x)
        program = jax.jit(jax.grad(attend)).lower(params, x).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert needed(16_384) < 2.2 * needed(8192)
