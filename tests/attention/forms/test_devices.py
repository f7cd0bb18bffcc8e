"""Attention across devices: the numbers of one device, in processes that have eight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import flax_attn.attention as fa
from flax_attn.attention.forms.devices import lay_out, make_ring
from flax_attn.attention.normalizers import positional_bits
from flax_attn.attention.visibility import Indices, make_visibility
from tests.attention.across_devices import cases, inside, mapped_cases
from tests.on_devices import on

FEW_MAPPED = "learned score,long"


@pytest.fixture(scope="module")
def of_eight_devices():
    return on(8, "tests.attention.across_devices", FEW_MAPPED, JAX_ENABLE_X64="1")


def test_equals_one_device(of_eight_devices):
    result = of_eight_devices["across"]
    assert len(result) == 2 * len(cases())
    assert max(result.values()) < 1e-12, result


def test_padding_that_is_nan_reaches_nothing(of_eight_devices):
    assert of_eight_devices["hidden"] == {"ring": True, "gathered": True}


def test_heads_over_an_explicit_axis_equal_one_device(of_eight_devices):
    assert of_eight_devices["over heads"] < 1e-12


def test_inside_a_shard_map_equals_one_device(of_eight_devices):
    result = of_eight_devices["mapped"]
    assert len(result) == len(FEW_MAPPED.split(","))
    assert max(result.values()) < 1e-12, result


@pytest.mark.parametrize("name", mapped_cases())
def test_attention_and_its_gradient_fit_into_a_shard_map(name):
    """JAX compares the axes over which the sums of a loop vary. No devices are needed for that."""
    function, pieces, common, limits, axis = mapped_cases()[name]
    devices = AbstractMesh((2,), ("sequence",), (AxisType.Auto,))
    attend = inside(function, limits, axis, devices)
    gradient = jax.grad(lambda inputs: attend(inputs).sum())
    shapes = jax.eval_shape(gradient, (pieces, common))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, (pieces, common))


def test_dropout_varies_as_its_random_key_does():
    def bits(x):
        rng = jax.random.fold_in(jax.random.key(0), jax.lax.axis_index("sequence"))
        drawn = positional_bits(rng, (1,), jnp.arange(2), jnp.arange(3))
        assert jax.typeof(drawn).mat.varying == {"sequence"}
        return x

    devices = AbstractMesh((2,), ("sequence",), (AxisType.Auto,))
    jax.eval_shape(jax.shard_map(bits, mesh=devices, in_specs=P(), out_specs=P()), VECTORS)


@pytest.mark.parametrize("is_zigzag", [False, True])
@given(length=st.integers(1, 200), devices=st.integers(1, 9), most=st.none() | st.integers(1, 30))
@settings(deadline=None)
def test_each_token_lies_on_one_device(is_zigzag, length, devices, most):
    one = lay_out(length, devices, most, is_zigzag)
    indices = one.indices()
    assert indices.shape == (devices, one.on_device)
    assert sorted(indices.ravel())[:length] == list(range(length))
    assert one.size % one.block == 0
    assert one.block <= (most or length)
    assert one.on_device * devices - length < 2 * devices * -(-length // devices)


def blocks_of_devices(length, devices, is_zigzag):
    """How many pairs of blocks each device computes under causality."""
    one = lay_out(length, devices, 16, is_zigzag)
    visible = make_visibility((length, length), causal=True)
    keys = jnp.asarray(one.indices().ravel())
    parts = [Indices(jnp.asarray(own), keys).in_blocks(16, 16, length) for own in one.indices()]
    return np.array([visible.visible_blocks(*part).sum() for part in parts])


@pytest.mark.parametrize("devices", [8, 64])
def test_zigzag_gives_all_devices_the_same_work(devices):
    in_order, zigzag = (blocks_of_devices(2048, devices, is_zigzag) for is_zigzag in (False, True))
    assert zigzag.max() / zigzag.mean() <= 1.05
    assert in_order.max() / in_order.mean() > 1.8
    assert zigzag.sum() == in_order.sum()


@given(
    queries=st.integers(1, 60),
    keys=st.integers(1, 60),
    left=st.none() | st.integers(0, 20),
    right=st.none() | st.integers(0, 20),
    offset=st.integers(-20, 20),
)
@settings(deadline=None)
def test_a_ring_visits_all_keys_of_a_window_and_few_others(queries, keys, left, right, offset):
    devices = 5
    visible = make_visibility((queries, keys), window=(left, right), query_offset=offset)
    both = lay_out(queries, devices), lay_out(keys, devices)
    ring = make_ring("sequence", visible, *both)
    numbers = jnp.arange(devices)
    visits = {
        (i, int(source))
        for hop in range(ring.hops)
        for i, source in enumerate(ring.source(numbers, hop))
    }
    distance = np.arange(keys) - (np.arange(queries)[:, None] + offset)
    mask = (left is None or -distance <= left) & (right is None or distance <= right)
    mask = np.broadcast_to(mask, visible.shape)
    needed = {(q // both[0].size, k // both[1].size) for q, k in np.argwhere(mask)}
    assert needed <= visits
    assert 1 <= ring.hops <= devices
    if needed and ring.hops < devices:
        distances = {k - q for q, k in needed}
        assert ring.hops == max(distances) - min(distances) + 1


def one_device(axis="sequence"):
    return jax.make_mesh((1,), (axis,), (AxisType.Auto,), devices=jax.devices()[:1])


VECTORS = np.ones((1, 3, 2), np.float32)


def test_explicit_axes_around_are_refused_and_in_across_are_taken():
    mesh = jax.make_mesh((1,), ("sequence",), (AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh), pytest.raises(ValueError, match="expected automatic axes around"):
        fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across())
    attended = fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across(mesh))
    np.testing.assert_allclose(attended.weights, np.full((1, 3, 3), 1 / 3), rtol=1e-6)


def test_weights_say_whether_keys_go_round():
    whole = fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across(one_device()))
    ring = fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across(one_device(), ring=True))
    assert whole.weights.shape == (1, 3, 3)
    assert ring.weights is None
    np.testing.assert_allclose(whole.context, ring.context, rtol=1e-6)


def test_a_second_derivative_is_refused():
    def loss(query):
        options = {"across": fa.Across(one_device(), ring=True)}
        return fa.attend(query, VECTORS, VECTORS, **options).context.sum()

    with pytest.raises(TypeError, match="a second one"):
        jax.grad(lambda query: jax.grad(loss)(query).sum())(VECTORS)
