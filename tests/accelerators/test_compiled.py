"""What the compilers for an H100 and a TPU v5e make of attention and of the configs.

    JAX_PLATFORMS=cpu pytest -m slow tests/accelerators

Each compiler is in a wheel, and needs no device. A test without its wheel is skipped, and says how
to install it.
"""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from benchmarks import compiled, linear
from benchmarks.compiled import MIB
from flax_attn import platforms
from flax_attn.attention import LinearAttention, MultiHeadAttention, dot_product_attention

pytestmark = pytest.mark.slow
LENGTH = 65_536
CONFIGS = "shapes_attention", "mnist_attention", "induction", "signals_npz"  # that compile fast
LIMITS = "causal window 256", "causal, segments", "mask function"


@pytest.fixture(autouse=True)
def as_users_compile():
    """With XLA's optimisations, which other tests leave out."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(params=compiled.PLATFORMS)
def platform(request):
    """Returns a platform whose compiler is here."""
    skip_without(request.param)
    return request.param


def skip_without(platform):
    try:
        compiled.devices(platform)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def tpu():
    skip_without("tpu")


@pytest.fixture
def cuda():
    skip_without("cuda")


@pytest.mark.parametrize("name", ["causal", "causal window 256, key lengths"])
def test_cudnn_plans_little_at_65_536_tokens(name):
    try:
        form, context, gradients = compiled.of_attention("cuda", LENGTH, name)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    assert form == "cudnn"
    assert "__cudnn$fmhaSoftmax" in context.text
    assert "__cudnn$fmhaSoftmaxBackward" in gradients.text
    assert max(context.temp, gradients.temp) < 0.35 * 1024 * MIB


@pytest.mark.parametrize("name", LIMITS)
def test_memory_is_linear(platform, name):
    """Twice the length takes twice as much, a few times as much as queries, keys and values.

    A TPU keeps short arrays in the memory of its core, so the plans without them are compared.
    """
    least = compiled.LEAST_EFFORT[platform]
    _, *short = compiled.of_attention(platform, LENGTH, name, least)
    _, *long = compiled.of_attention(platform, 2 * LENGTH, name, least)
    assert all(b.temp <= 2.2 * a.temp for a, b in zip(short, long))
    arrays = 3 * 2 * 2 * LENGTH * 8 * 64  # bytes
    if least:  # else these are the programs that users get
        _, *long = compiled.of_attention(platform, 2 * LENGTH, name)
    assert max(program.temp for program in long) < 7 * arrays


def test_a_layer_compiles_and_is_linear(platform):
    def needed(length):
        layer = MultiHeadAttention(8, dtype=jnp.bfloat16)
        x = jax.ShapeDtypeStruct((1, length, 256), jnp.bfloat16)
        params = jax.eval_shape(layer.init, jax.random.key(0), x)
        loss = lambda params, x: (
            layer.apply(params, x, causal=True, need_weights=False)
            .context.astype(jnp.float32)
            .sum()
        )
        return compiled.compile_for(platform, jax.grad(loss), params, x).temp

    assert needed(2 * LENGTH) < 2.2 * needed(LENGTH)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_linear_attention_compile_and_are_linear(platform, dtype):
    def needed(length):
        arrays, options = linear.shapes(length, dtype=dtype), compiled.LEAST_EFFORT[platform]
        function = linear.GRADIENTS["ours"]
        return compiled.compile_for(platform, function, arrays, options=options).temp

    assert needed(LENGTH) < 2.2 * needed(LENGTH // 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_of_linear_attention_compiles(platform, dtype):
    layer = LinearAttention(4, dtype=dtype)
    x = jax.ShapeDtypeStruct((1, 1, 256), dtype)
    params = jax.eval_shape(layer.init, jax.random.key(0), x)
    cache = jax.eval_shape(lambda: layer.init_cache(256, (1,)))
    step = functools.partial(layer.apply, method="decode", need_weights=False)
    assert compiled.compile_for(platform, step, params, x, cache).temp < MIB


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_compiles_and_fits(platform, name, manual_dir):
    _, steps, evaluation = compiled.of_config(platform, name, manual_dir)
    for program in (steps, evaluation):
        assert program.temp + program.arguments < compiled.MEMORY[platform]
        assert "f64[" not in program.text


@pytest.mark.parametrize(
    ("name", "blocks"), [("shakespeare_char", 4), ("induction", 2), ("names", 2)]
)
@pytest.mark.usefixtures("cuda")
def test_attention_in_bfloat16_takes_the_kernel_in_every_block(name, blocks, manual_dir):
    _, steps, _ = compiled.of_config("cuda", name, manual_dir, {"precision": "bfloat16"})
    calls = re.findall(r'custom_call_target="__cudnn\$fmhaSoftmax(\w*)"', steps.text)
    assert [calls.count(kind) for kind in ("", "Backward")] == [blocks, blocks]


def test_a_tpu_multiplies_in_bfloat16_and_takes_the_kernel_for_long_texts(tpu, manual_dir):
    changes = {"precision": "bfloat16", "data.max_length": 4096, "batch_size": 4}
    _, steps, _ = compiled.of_config("tpu", "shakespeare_char", manual_dir, changes)
    kernels = steps.text.count('custom_call_target="tpu_custom_call"')
    assert kernels == 3 * 4  # of 4 blocks: forward, and the gradients of queries and of keys
    products = re.findall(r"= (\w+)\[\S* (?:dot|convolution)\(", steps.text)
    assert set(products) == {"bf16"}


@pytest.mark.parametrize("name", ["causal", "causal window 4096"])
def test_a_ring_of_four_chips_shares_the_memory(tpu, name):
    arguments = {"causal": True} | ({"window": (4095, 0)} if "window" in name else {})
    one, share = compiled.of_ring(arguments)
    assert share.temp < 0.4 * one.temp
    exchanges = compiled.exchanges(share.text)
    assert exchanges.keys() == {"collective-permute"}
    assert exchanges["collective-permute"] <= (8 if "window" in name else 24)


def test_seeds_at_once_keep_to_the_memory(tpu):
    """Five seeds would keep five times the scores; those of one seed are no more than 1 GiB."""
    x = jax.ShapeDtypeStruct((5, 1, 8192, 4, 64), jnp.float32)
    attend = functools.partial(dot_product_attention, bias=lambda q, k: 0.01 * (k - q))
    loss = lambda *arrays: attend(*arrays, need_weights=False).context.sum()
    seeds = jax.vmap(jax.grad(loss, argnums=(0, 1, 2)))
    with platforms.copies(5):
        assert compiled.compile_for("tpu", seeds, x, x, x).temp < 1024 * MIB
