"""Splash attention computes what the formula does, under the conditions that it is taken; the
kernel is interpreted, so no TPU is needed.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding, PartitionSpec

from flax_attn import platforms
from flax_attn.attention import form_of
from flax_attn.attention.core import dot_product_attention
from flax_attn.attention.forms import kernels
from tests.attention.forms.drawn import Drawn, check, draw

TERMS = ("causal", "window", "query_lengths", "key_lengths", "segments", "scale", "softcap", "rows")
LONG = jax.ShapeDtypeStruct((1, 8192, 2, 64), jnp.bfloat16)
NO_WEIGHTS = {"need_weights": False, "platform": "tpu"}
form = functools.partial(kernels.splash, interpret=True)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_formula(seed, monkeypatch):
    if seed % 4:  # in several blocks
        monkeypatch.setattr(kernels, "LARGEST", 128)
    rng = np.random.default_rng(seed)
    drawn = draw(rng, TERMS, 300, widths=(24, 32))
    assert not kernels._why_not_splash_terms(drawn.call())
    check(rng, drawn, form, times=2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "limits",
    [
        {"causal": True},
        {"window": (70, 20), "query_offset": 9},
        {"query_segments": np.zeros((2, 150), int), "key_segments": np.zeros((2, 290), int)},
    ],
    ids=lambda limits: " ".join(limits),
)
def test_blocks_that_are_visible_in_part_are_masked(limits, monkeypatch):
    monkeypatch.setattr(kernels, "LARGEST", 128)
    num_queries = 150 if "query_segments" in limits else 290
    arrays = [np.zeros((2, length, 2, 8)) for length in (num_queries, 290, 290)]
    drawn = Drawn(arrays, limits, {"scale": None, "softcap": None})
    check(np.random.default_rng(0), drawn, form, times=2, atol=1e-5, rtol=1e-5)


def test_half_precision_is_rounded_once():
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=(2, 256, 2, 64)), jnp.bfloat16) for _ in range(3)]
    call = functools.partial(draw(rng, (), 9).call, arrays, {"causal": True})
    ours = jnp.swapaxes(jax.jit(lambda: form(call()))(), -3, -2)
    exact = dot_product_attention(*(x.astype(jnp.float32) for x in arrays), causal=True).context
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(jnp.float32), exact, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, None),
        ({"causal": True, "window": (255, 0), "softcap": 30.0, "scale": 0.3}, None),
        ({"key_lengths": np.array([7])}, None),
        ({"mask": np.ones((1, 1, 1, 8192), bool)}, "no terms for mask"),
        ({"bias": np.zeros((1, 1, 1, 8192), np.float32)}, "no terms for bias"),
        ({"causal": True, "prefix_lengths": np.array([7])}, "no terms for prefix_lengths"),
        ({"chunk_size": 128}, "a chunk_size"),
        ({"dropout_rate": 0.1, "dropout_rng": jax.random.key(0)}, "dropout"),
        ({"causal": True, "query_offset": jnp.array([3])}, "offset of the queries is not known"),
    ],
)
def test_what_it_has_no_terms_for_goes_elsewhere(arguments, reason):
    form = form_of(LONG, LONG, LONG, **NO_WEIGHTS, **arguments)
    assert (form.name == "splash") == (reason is None)
    assert reason is None or reason in form.why_not["splash"]


def test_segments_in_a_window_are_taken_if_each_query_sees_itself():
    ids = jnp.zeros((1, 8192), jnp.int32)
    segments = {"query_segments": ids, "key_segments": ids, "causal": True}
    name = lambda **arguments: form_of(LONG, LONG, LONG, **NO_WEIGHTS, **arguments).name
    assert name(**segments) == "splash"
    assert name(**segments | {"key_segments": ids + 0}) == "dense"
    assert name(**segments, key_lengths=np.array([7])) == "dense"
    assert name(query_segments=ids, key_segments=ids + 0) == "splash"


def test_small_calls_and_higher_precision_go_elsewhere():
    short = jax.ShapeDtypeStruct((1, 1024, 2, 64), jnp.bfloat16)
    assert form_of(short, short, short, **NO_WEIGHTS).name == "dense"
    with platforms.copies(32):
        assert form_of(short, short, short, **NO_WEIGHTS).name == "splash"
    single = jax.ShapeDtypeStruct(LONG.shape, jnp.float32)
    assert form_of(single, single, single, **NO_WEIGHTS).name == "splash"
    half = jax.ShapeDtypeStruct(LONG.shape, jnp.float16)
    assert form_of(half, half, half, **NO_WEIGHTS).name == "dense"
    for precision in ("highest", "high", "BF16_BF16_F32"):  # JAX compiles it in none of them
        with jax.default_matmul_precision(precision):
            for x in (single, LONG):
                assert precision in form_of(x, x, x, **NO_WEIGHTS).why_not["splash"]
    with jax.default_matmul_precision("bfloat16"):
        assert form_of(LONG, LONG, LONG, **NO_WEIGHTS).name == "splash"


def test_kernels_can_be_turned_off(monkeypatch):
    name = lambda: form_of(LONG, LONG, LONG, **NO_WEIGHTS).name
    with platforms.kernels(False):
        assert name() == "dense"
    monkeypatch.setenv("FLAX_ATTN_KERNELS", "0")
    assert name() == "dense"
    with platforms.kernels(True):
        assert name() == "splash"


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_whose_arrays_xla_cuts_is_no_place_for_it(kind):
    mesh = AbstractMesh((4,), ("data",), axis_types=(kind,))
    on_mesh = jax.ShapeDtypeStruct(
        LONG.shape, LONG.dtype, sharding=NamedSharding(mesh, PartitionSpec())
    )
    forms = [form_of(on_mesh, LONG, LONG, **NO_WEIGHTS)]  # as after `jax.device_put`
    with jax.sharding.use_abstract_mesh(mesh):
        forms.append(form_of(LONG, LONG, LONG, **NO_WEIGHTS))
    assert all("over the devices of a mesh" in form.why_not["splash"] for form in forms)
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("data",), axis_types=(kind,))):
        assert form_of(LONG, LONG, LONG, **NO_WEIGHTS).name == "splash"


@pytest.mark.parametrize("spec", [PartitionSpec("data"), PartitionSpec()])
def test_it_is_taken_in_a_shard_map_that_does_not_check(spec):
    """JAX refuses the kernel in one that checks over which axes arrays vary."""
    mesh, names = AbstractMesh((2,), ("data",), axis_types=(AxisType.Auto,)), []

    def note(query):
        names.append(form_of(query, query, query, **NO_WEIGHTS).name)
        return query

    rows = jax.ShapeDtypeStruct((2, *LONG.shape[1:]), LONG.dtype)
    for is_checked in (True, False):
        specs = {"mesh": mesh, "in_specs": spec, "out_specs": spec, "check_vma": is_checked}
        jax.eval_shape(jax.shard_map(note, **specs), rows)
    assert names == ["dense", "splash"]


def test_the_kernel_is_made_for_devices_that_are_not_here():
    kernels.splash_kernel.cache_clear()
    device = AbstractDevice("TPU v5e", 1, "tpu")
    mesh = AbstractMesh((1,), ("data",), axis_types=(AxisType.Explicit,), abstract_device=device)
    attend = functools.partial(dot_product_attention, causal=True, need_weights=False)
    with jax.sharding.use_abstract_mesh(mesh):
        program = jax.jit(lambda *arrays: attend(*arrays).context).trace(LONG, LONG, LONG)
    assert "splash" in str(program.jaxpr)
    arrays = jax.tree.leaves(
        kernels.splash_kernel(8192, 8192, 1024, 1024, 2, (None, 0, 0), None, False)
    )
    assert all(jax.typeof(array).sharding.mesh.empty for array in arrays)


def test_the_kernel_is_made_once():
    kernels.splash_kernel.cache_clear()
    short = jax.ShapeDtypeStruct((1, 512, 2, 64), jnp.bfloat16)
    attend = functools.partial(dot_product_attention, causal=True, need_weights=False)
    with platforms.compiling_for("tpu"), platforms.copies(1000):
        for _ in range(2):
            jax.jit(lambda *arrays: attend(*arrays)).trace(short, short, short)
    assert kernels.splash_kernel.cache_info()[:2] == (1, 1)


@pytest.mark.parametrize("length", [1, 127, 128, 1000, 1024, 1025, 2049, 65_536])
def test_blocks_pad_least(length):
    size = kernels.splash_block_size(length)
    number = -(-length // size)
    assert size % 128 == 0
    assert 128 <= size <= 1024
    assert number == -(-length // 1024)
    assert number * size - length < number * 128
