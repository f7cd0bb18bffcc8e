"""Which platform a program is traced for, and that every rule asks for it in one place."""

import functools
import re
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

from flax_attn import platforms
from flax_attn.attention import dot_product_attention, form_of
from flax_attn.attention.forms.devices import addable
from flax_attn.training import mesh

PACKAGE = Path(__file__).parent.parent / "flax_attn"
X = jax.ShapeDtypeStruct((2, 40, 2, 8), jnp.bfloat16)


def test_nothing_else_asks_for_the_backend():
    asks = re.compile(r"default_backend|platform_version|jax_default_device")
    files = {path.name for path in PACKAGE.rglob("*.py") if asks.search(path.read_text())}
    assert files == {"platforms.py"}


def test_the_platform_is_that_of_the_context_the_mesh_the_default_device_or_the_backend():
    assert platforms.current() == jax.default_backend().replace("gpu", "cuda")
    with jax.default_device(jax.devices("cpu")[0]):
        assert platforms.current() == "cpu"
    mesh = AbstractMesh((4,), ("data",), abstract_device=AbstractDevice("TPU v5e", 1, "tpu"))
    with jax.sharding.use_abstract_mesh(mesh):
        assert platforms.current() == "tpu"
        with platforms.compiling_for("cuda"):
            assert platforms.current() == "cuda"
    with pytest.raises(ValueError, match=r"cpu, cuda, rocm, tpu, portable, got 'gpu'; .* is cuda"):
        platforms.compiling_for("gpu")


def test_the_capability_is_that_of_a_gpu_of_nvidia(monkeypatch):
    here = [types.SimpleNamespace(platform="rocm", compute_capability="gfx90a")]
    monkeypatch.setattr(jax, "local_devices", lambda: here)
    assert platforms.capability() == platforms.HOPPER
    here.append(types.SimpleNamespace(platform="cuda", compute_capability="8.6"))
    assert platforms.capability() == (8, 6)


def test_arrays_that_are_here_are_computed_here():
    """JAX would ask the backend for the form, outside `jit`, and fail without cuDNN."""
    arrays = [jnp.ones((1, 9, 2, 8), jnp.bfloat16) for _ in range(3)]
    with platforms.compiling_for("cuda"):
        context = dot_product_attention(*arrays, causal=True, need_weights=False).context
    np.testing.assert_array_equal(context.astype(jnp.float32), 1.0)


def test_a_function_has_a_trace_for_each_platform():
    traced = []
    function = jax.jit(lambda x: traced.append(platforms.current()) or x)
    for name in ("cpu", "tpu", "cpu", "tpu"):
        with platforms.compiling_for(name):
            function(1.0)
    assert traced == ["cpu", "tpu"]


def test_seeds_at_once_count_where_memory_decides():
    counted = []
    function = lambda x: counted.append(platforms.num_copies()) or x
    jax.jit(mesh.vectorized(function)).trace(jnp.zeros((5, 2)))
    jax.jit(mesh.sequential(function)).trace(jnp.zeros((5, 2)))
    assert counted == [5, 1]
    x = jax.ShapeDtypeStruct((1, 8192, 2, 8), jnp.float32)
    name = lambda: form_of(x, x, x, need_weights=False, platform="cuda").name
    assert name() == "dense"  # 2**27 scores
    with platforms.copies(5):
        assert name() == "blockwise"


def test_a_program_for_several_platforms_holds_no_kernel():
    attend = functools.partial(dot_product_attention, causal=True, need_weights=False)
    with platforms.compiling_for(platforms.PORTABLE), platforms.copies(10**6):
        program = jax.jit(lambda *arrays: attend(*arrays).context)
        exported = jax.export.export(program, platforms=["cpu", "cuda", "tpu"])(X, X, X)
    assert "custom_call" not in exported.mlir_module()
    arrays = [jax.random.normal(jax.random.key(i), X.shape, X.dtype) for i in range(3)]
    expected = dot_product_attention(*arrays, causal=True).context
    np.testing.assert_allclose(
        *(a.astype(jnp.float32) for a in (exported.call(*arrays), expected)), atol=0.02
    )


def test_half_precision_is_added_up_as_it_is_but_where_a_cpu_would_abort():
    half = jnp.zeros(2, jnp.bfloat16)
    for name, dtype in (("cpu", "float32"), ("portable", "float32"), ("tpu", "bfloat16")):
        with platforms.compiling_for(name):
            assert addable(half).dtype == dtype


@pytest.mark.parametrize(
    ("platform", "precision", "products"),
    [
        ("cpu", "default", "float32"),
        ("tpu", "default", "bfloat16"),
        ("cuda", "default", "tensorfloat32"),
        ("tpu", "highest", "float32"),
        ("tpu", "high", "bfloat16 in three passes"),
        ("cuda", "high", "tensorfloat32"),
        ("cuda", "bfloat16", "tensorfloat32"),
        ("tpu", "tensorfloat32", "bfloat16 in three passes"),
        ("tpu", "float32", "float32"),
        ("cpu", "bfloat16", "float32"),
        ("cpu", "BF16_BF16_F32", "BF16_BF16_F32"),
        ("tpu", "bfloat16", "bfloat16"),
    ],
)
def test_products_of_float32_have_a_precision(platform, precision, products):
    assert platforms.products(platform, precision) == products
    with platforms.compiling_for(platform), jax.default_matmul_precision(precision):
        assert platforms.products() == products


def test_a_mesh_of_one_device_cuts_no_array():
    x = jnp.zeros((2, 2))
    for size, may in ((1, False), (2, True)):
        with jax.sharding.use_abstract_mesh(AbstractMesh((size,), ("data",))):
            assert platforms.may_cut_arrays(x) is may
