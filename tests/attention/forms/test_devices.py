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

FEW = "causal window at an offset,causal bias,causal dropout"
FEW_MAPPED = "learned score,long"


def across(*arguments, **environment):
    wide = {"JAX_ENABLE_X64": "1"}
    return on(8, "tests.attention.across_devices", *arguments, **wide | environment)


@pytest.fixture(scope="module")
def of_eight_devices():
    return across("across_and_mapped", FEW, "ring,gathered", FEW_MAPPED)


def test_equals_one_device(of_eight_devices):
    result = of_eight_devices["across"]
    assert len(result) == 2 * len(FEW.split(","))
    assert max(result.values()) < 1e-12, result


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


@pytest.mark.full
def test_every_case_inside_a_shard_map_equals_one_device():
    result = across("mapped", ",".join(mapped_cases()))
    assert len(result) == len(mapped_cases())
    assert max(result.values()) < 1e-6, result


@pytest.mark.full
def test_few_cases_equal_one_device_in_every_way():
    result = across("limits", FEW)
    assert len(result) == 6 * len(FEW.split(","))
    assert max(result.values()) < 1e-12, result


@pytest.mark.full
@pytest.mark.parametrize("part", range(3))
def test_every_case_equals_one_device(part):
    names = list(cases())[part::3]
    result = across("limits", ",".join(names), "ring,gathered")
    assert len(result) == 2 * len(names)
    assert max(result.values()) < 1e-12, result


@pytest.mark.full
@pytest.mark.parametrize("name", cases())
def test_every_combination_of_a_case_and_a_way_equals_one_device(name):
    result = across("limits", name)
    assert len(result) == 6
    assert max(result.values()) < 1e-12, result


@pytest.mark.full
def test_single_precision_equals_one_device():
    result = across("limits", "causal bias,dropout", JAX_ENABLE_X64="0")
    assert max(result.values()) < 1e-5, result


@pytest.mark.full
@pytest.mark.parametrize("name", ["normalizers", "layers"])
def test_scores_normalisers_and_layers_equal_one_device(name):
    result = across(name)
    assert len(result) >= 8
    assert max(result.values()) < 1e-12, result


@pytest.mark.full
def test_a_lens_equals_one_device():
    result = across("lens")
    assert len(result) == 3
    assert max(result.values()) < 1e-12, result


@pytest.mark.full
def test_lengths_below_the_number_of_devices():
    result = across("small")
    assert len(result) == 12
    assert max(result.values()) < 1e-12, result


@pytest.mark.full
def test_half_precision_in_which_devices_cannot_add():
    assert max(across("half", JAX_ENABLE_X64="0").values()) < 0.03


@pytest.mark.full
def test_inputs_that_lie_on_the_mesh_around():
    assert across("on_the_mesh") < 1e-12


@pytest.mark.full
def test_padding_that_is_nan_reaches_nothing():
    result = across("hidden")
    assert len(result) == 6
    assert all(result.values()), result


@pytest.mark.full
def test_a_ring_holds_a_part():
    """A device of eight needs a fifth of one. Twice the length needs twice the memory."""
    plan = across("memory", 65_536, 131_072, JAX_DISABLE_MOST_OPTIMIZATIONS="0")
    assert plan["ring"][1] <= plan["one"][1] / 5
    assert plan["ring"][1] <= 2.1 * plan["ring"][0]


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"across": fa.Across()}, "expected a mesh in Across, or around it by jax.set_mesh"),
        ({"across": fa.Across(one_device("data"))}, r"expected an axis of the mesh \('data',\)"),
        (
            {"across": fa.Across(one_device(), ring=True), "normalizer": fa.sparsemax},
            "expected softmax on a ring, got .*sparsemax.*; pass ring=False",
        ),
        (
            {"across": fa.Across(one_device()), "normalizer": fa.monotonic_hard},
            "expected a normalizer that sees one query at a time across devices",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fa.attend(VECTORS, VECTORS, VECTORS, **options)


def test_explicit_axes_around_are_refused_and_in_across_are_taken():
    mesh = jax.make_mesh((1,), ("sequence",), (AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh), pytest.raises(ValueError, match="expected automatic axes around"):
        fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across())
    attended = fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across(mesh))
    np.testing.assert_allclose(attended.weights, np.full((1, 3, 3), 1 / 3), rtol=1e-6)


def test_another_mesh_around_is_refused():
    with jax.set_mesh(one_device("data")), pytest.raises(ValueError, match="to be the one around"):
        fa.attend(VECTORS, VECTORS, VECTORS, across=fa.Across(one_device()))


def test_an_axis_that_is_cut_already_is_refused():
    def attend(x):
        return fa.attend(x, x, x, across=fa.Across()).context

    spec = P(None, "sequence")
    mapped = jax.shard_map(attend, mesh=one_device(), in_specs=spec, out_specs=spec)
    with pytest.raises(ValueError, match="leave it out of its axis_names"):
        mapped(VECTORS)


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
