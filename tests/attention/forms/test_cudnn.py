"""cuDNN's kernel gets terms that mean what the formula computes, and no array of all pairs. JAX's
own form takes the same terms in its place, so no GPU is needed.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.compiled import without_cudnn
from flax_attn import platforms
from flax_attn.attention import form_of
from flax_attn.attention.core import dot_product_attention
from flax_attn.attention.forms import kernels
from tests.accelerators.programs import largest
from tests.attention.forms.drawn import Drawn, check, draw

TERMS = ("one query", "causal", "query_lengths", "key_lengths", "scale", "rows")
LONG = jax.ShapeDtypeStruct((1, 65_536, 8, 64), jnp.bfloat16)
SHARED = jax.ShapeDtypeStruct((1, 65_536, 2, 64), jnp.bfloat16)
NO_WEIGHTS = {"need_weights": False}
lengths = np.array([7])


@pytest.fixture
def cudnn_is_here():
    with without_cudnn():
        yield


@pytest.fixture
def by_xla(monkeypatch):
    """The terms by JAX's own form, for all platforms."""
    in_terms = kernels.in_terms
    monkeypatch.setattr(
        kernels,
        "in_terms",
        lambda *arrays, implementation, **terms: in_terms(*arrays, implementation="xla", **terms),
    )


@pytest.mark.parametrize("seed", range(6))
def test_terms_mean_the_formula(seed, by_xla):
    rng = np.random.default_rng(seed)
    check(rng, draw(rng, TERMS, 12), kernels.attend_by_cudnn, times=5, atol=1e-5, rtol=1e-5)


def test_one_query_sees_keys_after_its_position(by_xla):
    limits = {"window": (None, 2), "query_offset": np.zeros(2, int)}
    arrays = [np.zeros((2, length, 4, 8)) for length in (1, 7, 7)]
    drawn = Drawn(arrays, limits, {"scale": None, "softcap": None})
    check(np.random.default_rng(0), drawn, kernels.attend_by_cudnn, times=5, atol=1e-5, rtol=1e-5)


def test_what_the_kernel_leaves_beyond_the_lengths_does_not_get_out(monkeypatch):
    def in_terms(query, key, value, query_lengths, key_lengths, **terms):
        terms |= {"implementation": "xla"}
        context = computed(query, key, value, query_lengths, key_lengths, **terms)
        is_real = (
            jnp.arange(query.shape[1])[None, :, None, None] < query_lengths[:, None, None, None]
        )
        return jnp.where(is_real, context, jnp.nan)

    computed = kernels.in_terms
    monkeypatch.setattr(kernels, "in_terms", in_terms)
    limits = {"query_lengths": np.zeros(2, int), "key_lengths": np.zeros(2, int)}
    drawn = Drawn([np.zeros((2, 7, 4, 8))] * 3, limits, {"scale": None, "softcap": None})
    rng = np.random.default_rng(0)
    assert check(rng, drawn, kernels.attend_by_cudnn, times=5, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_no_row_of_the_kernel_is_empty(seed):
    """What a kernel makes of such a row is not defined."""
    rng = np.random.default_rng(seed)
    call = draw(rng, TERMS, 12).call()
    terms, (num_queries, num_keys) = kernels.terms_of(call.visible), call.visible.shape[-2:]
    of_queries = terms.query_lengths if terms.query_lengths is not None else [num_queries]
    of_keys = terms.key_lengths if terms.key_lengths is not None else [num_keys]
    for real_queries, real_keys in np.broadcast(of_queries, of_keys):
        queries, keys = np.arange(real_queries)[:, None], np.arange(real_keys)
        sees = (keys <= queries) if terms.is_causal else np.ones((real_queries, real_keys), bool)
        sees &= True if terms.left is None else keys >= queries - terms.left
        assert real_queries
        assert sees.any(axis=1).all()


@pytest.mark.parametrize(
    ("limits", "mask", "window", "scale"),
    [
        ({}, "NO_MASK", "0", "0.125"),
        ({"causal": True}, "CAUSAL", "0", "0.125"),
        ({"causal": True, "window": (255, 0)}, "CAUSAL", "256", "0.125"),
        ({"key_lengths": lengths}, "PADDING", "0", "0.125"),
        ({"causal": True, "key_lengths": lengths}, "PADDING_CAUSAL", "0", "0.125"),
        (
            {"causal": True, "window": (255, 0), "key_lengths": lengths, "scale": 0.5},
            "PADDING_CAUSAL",
            "256",
            "0.5",
        ),
    ],
)
def test_the_kernel_gets_the_limits_and_there_are_no_pairs(
    limits, mask, window, scale, cudnn_is_here
):
    attend = functools.partial(dot_product_attention, **limits, **NO_WEIGHTS)
    loss = lambda *arrays: attend(*arrays).context.astype(jnp.float32).sum()
    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        with platforms.compiling_for("cuda"):
            program = jax.jit(function).trace(LONG, SHARED, SHARED)
        text = program.lower(lowering_platforms=("cuda",)).as_text().replace("\\22", '"')
        assert "__cudnn$fmhaSoftmax" in text
        assert largest(text) <= 2 * LONG.size
        assert set(re.findall(r'"mask_type"\s*:\s*"(\w+)"', text)) == {mask}
        windows = set(re.findall(r'"sliding_window_length"\s*:\s*(\d+)', text)) or {"0"}
        assert windows == {window}
        scales = {float(number) for number in re.findall(r'"fmha_scale"\s*:\s*([\d.e-]+)', text)}
        assert scales == {float(scale)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"mask": np.ones((1, 1, 1, 65_536), bool)}, "no terms for mask"),
        ({"causal": True, "softcap": 30.0}, "no soft-cap"),
        ({"window": (255, 255)}, "window is causal"),
        ({"causal": True, "query_offset": 3}, "counts from the first key"),
        ({"chunk_size": 128}, "a chunk_size"),
        ({"dropout_rate": 0.1, "dropout_rng": jax.random.key(0)}, "dropout"),
        ({"causal": True, "prefix_lengths": lengths}, "no terms for prefix_lengths"),
    ],
)
def test_what_it_has_no_terms_for_goes_to_blocks(arguments, reason):
    form = form_of(LONG, SHARED, SHARED, platform="cuda", **NO_WEIGHTS, **arguments)
    assert form.name == "blockwise"
    assert reason in form.why_not["cudnn"]


@pytest.mark.parametrize(
    ("dtype", "width", "is_taken"),
    [
        (jnp.float16, 64, True),
        (jnp.float32, 64, False),
        (jnp.bfloat16, 256, True),
        (jnp.bfloat16, 264, False),
        (jnp.bfloat16, 12, False),
    ],
)
def test_arrays_that_it_takes(dtype, width, is_taken):
    x = jax.ShapeDtypeStruct((1, 9, 2, width), dtype)
    assert (form_of(x, x, x, platform="cuda", **NO_WEIGHTS).name == "cudnn") == is_taken


def test_older_gpus_take_narrower_heads(monkeypatch):
    name = lambda width: (
        form_of(
            *[jax.ShapeDtypeStruct((1, 8, 2, width), jnp.bfloat16)] * 3,
            platform="cuda",
            **NO_WEIGHTS,
        ).name
    )
    monkeypatch.setattr(platforms, "capability", lambda: (8, 0))
    assert (name(128), name(256)) == ("cudnn", "dense")
    monkeypatch.setattr(platforms, "capability", lambda: (7, 5))
    assert name(128) == "dense"


def test_a_program_for_a_gpu_runs_on_a_cpu_too(cudnn_is_here):
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=(1, 9, 2, 8)), jnp.bfloat16) for _ in range(3)]
    attend = functools.partial(dot_product_attention, causal=True)
    with platforms.compiling_for("cuda"):
        program = jax.jit(lambda *arrays: attend(*arrays, **NO_WEIGHTS).context).trace(*arrays)
    assert "dot_product_attention_fwd" in str(program.jaxpr)
    context = program.lower(lowering_platforms=("cpu",)).compile()(*arrays)
    np.testing.assert_array_equal(context, jax.jit(attend)(*arrays).context)


@pytest.mark.parametrize("axes", [(0, 0, None), (0, None, None), (None, 0, None), (None, None, 0)])
def test_vmap_may_map_some_arrays_alone(axes, cudnn_is_here):
    """As parameters differ between seeds, and lengths do not. JAX's rule expects all or none."""
    rng = np.random.default_rng(0)
    shapes = [
        shape if axis is None else (3, *shape) for shape, axis in zip([(2, 9, 2, 8)] * 2, axes)
    ]
    query, key = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes)
    numbers = jnp.array([[3, 9], [4, 0], [7, 8]])
    numbers = numbers if axes[2] == 0 else numbers[1]

    def loss(query, key, numbers, **options):
        limits = {"causal": True, "key_lengths": numbers}
        context = dot_product_attention(query, key, key, **limits, **options).context
        return context.astype(jnp.float32).sum()

    mapped = lambda **options: jax.vmap(
        jax.grad(lambda *args: loss(*args, **options), argnums=(0, 1)), in_axes=axes
    )
    with platforms.compiling_for("cuda"):
        program = jax.jit(mapped(**NO_WEIGHTS)).trace(query, key, numbers)
    assert "fmhaSoftmaxBackward" in program.lower(lowering_platforms=("cuda",)).as_text()
    ours = program.lower(lowering_platforms=("cpu",)).compile()(query, key, numbers)
    expected = jax.jit(mapped())(query, key, numbers)
    for a, b in zip(ours, expected):
        np.testing.assert_allclose(*(x.astype(jnp.float32) for x in (a, b)), atol=0.05, rtol=0.05)


def test_nothing_is_fused_without_such_a_gpu():
    if platforms.current() == platforms.CUDA:
        pytest.skip("there is one")
    reason = form_of(LONG, SHARED, SHARED, **NO_WEIGHTS).why_not["cudnn"]
    assert reason == "the program is not for a GPU of NVIDIA"


@pytest.mark.skipif(platforms.current() != platforms.CUDA, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("seed", range(12))
def test_on_a_gpu_it_agrees(seed):
    rng = np.random.default_rng(seed)

    def form(call):
        arrays = [array.astype(jnp.bfloat16) for array in call[:3]]
        call = call._replace(query=arrays[0], key=arrays[1], value=arrays[2])
        return kernels.attend_by_cudnn(call).astype(jnp.float32)

    check(rng, draw(rng, TERMS, 12), form, times=2, atol=0.05, rtol=0.05)
