"""The fused kernel's terms: what we hand it means what the dense path computes; and on a GPU that
has it, it is taken and agrees.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention.core import dot_product_attention
from flax_attn.attention.forms import cudnn
from tests.attention.compiled import normal, run

LEADING, Q, K, HEADS, KEY_HEADS, D = (2, 3), 6, 10, 4, 2, 8
HAS_KERNEL = jax.default_backend() == "gpu" and not cudnn.unavailable(
    *[jnp.zeros((1, 1, 2, 8), jnp.bfloat16)] * 3
)


def arrays(dtype=jnp.float32):
    shapes = ((*LEADING, Q, HEADS, D), (*LEADING, K, KEY_HEADS, D), (*LEADING, K, KEY_HEADS, D))
    return [normal(seed, *shape).astype(dtype) for seed, shape in enumerate(shapes)]


def mask_of(kind):
    if kind is None:
        return None
    shape = {
        "pairs": (1, 1, 1, Q, K),
        "heads": (1, 1, HEADS, Q, K),
        "rows": (*LEADING, 1, 1, K),
        "all": (*LEADING, HEADS, Q, K),
    }[kind]
    mask = np.random.default_rng(7).random(shape) < 0.6
    mask[..., 3] = False
    mask[(..., 2, slice(None)) if shape[-2] > 1 else (1, 2)] = False
    return mask


@pytest.fixture
def taken(monkeypatch):
    """The mask and causality of each call of the kernel, with JAX's own form in its place."""
    taken, attend = [], jax.nn.dot_product_attention

    def spy(query, key, value, mask, is_causal, implementation):
        assert implementation == "cudnn"
        taken.append((mask, is_causal))
        return attend(query, key, value, mask=mask, is_causal=is_causal, implementation="xla")

    monkeypatch.setattr(cudnn, "unavailable", lambda *arrays: "")
    monkeypatch.setattr(jax.nn, "dot_product_attention", spy)
    return taken


def test_causality_alone_is_handed_over_without_a_mask(taken):
    x = jnp.zeros((1, 6, 1, 4))
    attend = functools.partial(dot_product_attention, x, x, x, need_weights=False)
    attend(), attend(causal=True)
    assert taken == [(None, False), (None, True)]
    for causal, window, offset in ((False, (None, 3), 0), (True, (2, None), 0), (True, None, 1)):
        attend(causal=causal, window=window, query_offset=offset)
        mask, is_causal = taken[-1]
        assert not is_causal
        (left, right), distance = window or (None, None), np.arange(6) - np.arange(6)[:, None]
        visible = distance - offset <= (0 if causal else right)
        visible &= left is None or distance >= -left
        np.testing.assert_array_equal(mask[0, 0], visible)


@pytest.mark.parametrize(
    "kind",
    [
        "rows",
        "all",
        *[pytest.param(kind, marks=pytest.mark.full) for kind in (None, "pairs", "heads")],
    ],
)
def test_masks_mean_the_same(kind, taken):
    query, key, value = arrays()
    mask = mask_of(kind)
    if mask is not None:
        mask = jnp.asarray(mask)
        key[..., 3, :, :], value[..., 3, :, :] = np.nan, np.inf

    def outcome(function):
        def loss(*arrays):
            context = function(*arrays)
            return jnp.sum(jnp.sin(context)), context

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))(query, key, value)

    expected = outcome(lambda *arrays: dot_product_attention(*arrays, mask=mask).context)
    fused = functools.partial(dot_product_attention, mask=mask, need_weights=False)
    chex.assert_trees_all_close(
        outcome(lambda *arrays: fused(*arrays).context), expected, atol=1e-5
    )
    assert len(taken) == 1
    chex.assert_tree_all_finite(expected)


def test_causal_from_the_first_key(taken):
    query, key, value = arrays()
    square = query, key[..., :Q, :, :], value[..., :Q, :, :]
    expected = run(dot_product_attention, *square, causal=True).context
    context = run(dot_product_attention, *square, causal=True, need_weights=False).context
    np.testing.assert_allclose(context, expected, atol=1e-6)
    assert taken == [(None, True)]


def test_nothing_is_fused_without_such_a_gpu():
    if HAS_KERNEL:
        pytest.skip("there is one")
    assert cudnn.unavailable(*map(jnp.asarray, arrays(jnp.bfloat16))).endswith("NVIDIA")


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "offset": {"causal": True, "query_offset": 4},
    "lengths": {
        "query_lengths": np.array([[6, 0, 3], [1, 2, 5]]),
        "key_lengths": np.array([[0, 10, 7], [1, 2, 3]]),
    },
    "mask": {"mask": mask_of("all"), "window": (3, 2)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_constraints_reach_the_kernel(name, taken):
    """Without a GPU jax's other implementation stands in for the kernel."""
    expected = run(dot_product_attention, *arrays(), **OPTIONS[name]).context
    context = run(dot_product_attention, *arrays(), **OPTIONS[name], need_weights=False).context
    np.testing.assert_allclose(context, expected, atol=1e-6)
    ((mask, causal),) = taken
    # there are more keys than causality leaves to see
    assert (mask is None, causal) == (name == "plain", False)


@pytest.mark.skipif(not HAS_KERNEL, reason="needs an NVIDIA GPU of capability 8.0")
@pytest.mark.parametrize("name", OPTIONS)
def test_on_a_gpu_it_is_taken_and_agrees(name):
    def outcome(need_weights, dtype):
        def loss(query, key, value):
            context = dot_product_attention(
                query, key, value, **OPTIONS[name], need_weights=need_weights
            ).context
            return jnp.sum(jnp.sin(context.astype(jnp.float32))), context

        function = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))
        assert ("fmha" in function.lower(*arrays(dtype)).as_text()) == (
            dtype == jnp.bfloat16 and not need_weights
        )
        return function(*arrays(dtype))

    (_, context), gradients = outcome(False, jnp.bfloat16)
    (_, expected), expected_gradients = outcome(True, jnp.float32)
    for ours, right in zip((context, *gradients), (expected, *expected_gradients), strict=True):
        np.testing.assert_allclose(ours.astype(jnp.float32), right, atol=0.05)
