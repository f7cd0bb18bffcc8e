"""Attention beside linen, nnx and PyTorch: their parameters, masks and outputs."""

from pathlib import Path

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import flax_attn.attention as fa
from tests.attention.compiled import apply, init, normal

B, T, D = 2, 7, 12


X = normal(0, B, T, D)


TORCH = np.load(Path(__file__).parent / "data" / "torch_multi_head.npz")


@pytest.mark.parametrize("name", ["same", "own_widths", "no_bias"])
def test_weights_of_pytorch_give_its_outputs(name):
    state = {
        key.split("/state/")[1]: TORCH[key] for key in TORCH if key.startswith(f"{name}/state/")
    }
    query, key, value, padding = (
        TORCH[f"{name}/{part}"] for part in ("query", "key", "value", "padding")
    )
    layer = fa.MultiHeadAttention(3, use_bias=name != "no_bias")
    variables = {"params": fa.multi_head_params_from_torch(state, 3)}
    attended = apply(layer, variables, query, key, value, mask=~padding[:, None, None, :])
    np.testing.assert_allclose(attended.context, TORCH[f"{name}/context"], atol=1e-5)
    np.testing.assert_allclose(attended.weights, TORCH[f"{name}/weights"], atol=1e-6)
    chex.assert_trees_all_equal_shapes(variables, init(layer, query, key, value))


def test_linen_takes_our_attention_with_its_own_masks_weights_and_dropout():
    linen = nn.MultiHeadDotProductAttention(3)
    ours = nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn())
    variables = init(linen, X)
    real = np.arange(T) < np.array([[7], [4]])
    mask = nn.combine_masks(
        nn.make_causal_mask(X[..., 0]), nn.make_attention_mask(np.ones((B, T)), real)
    )
    assert mask.dtype == jnp.float32
    masked = {"mask": mask, "sow_weights": True, "mutable": ["intermediates"]}
    expected, sown = apply(linen, variables, X, **masked)
    context, own = apply(ours, variables, X, **masked)
    np.testing.assert_allclose(context, expected, atol=1e-6)
    chex.assert_trees_all_close(own, sown, atol=1e-6)
    dropping = nn.MultiHeadDotProductAttention(
        3, attention_fn=fa.linen_attention_fn(), dropout_rate=0.5
    )
    rngs = {"dropout": jax.random.key(0)}
    plain = apply(ours, variables, X)
    assert np.abs(apply(dropping, variables, X, deterministic=False, rngs=rngs) - plain).max() > 0.1
    np.testing.assert_allclose(apply(dropping, variables, X, deterministic=True), plain, atol=1e-6)


def test_linen_gets_zeros_for_an_empty_row_and_what_else_we_can():
    ours = nn.MultiHeadDotProductAttention(
        3, attention_fn=fa.linen_attention_fn(window=(1, 0), chunk_size=2)
    )
    variables = init(ours, X)
    bias = variables["params"]["out"]["bias"]
    nothing = apply(ours, variables, X, mask=np.zeros((B, 1, T, T), np.float32))
    np.testing.assert_array_equal(nothing, np.broadcast_to(bias, X.shape))
    near = np.eye(T, dtype=bool) | np.eye(T, k=-1, dtype=bool)
    expected = apply(nn.MultiHeadDotProductAttention(3), variables, X, mask=near[None, None])
    np.testing.assert_allclose(apply(ours, variables, X), expected, atol=1e-6)


def test_a_module_of_ours_in_an_nnx_model():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.bridge.ToNNX(fa.MultiHeadAttention(3), rngs=rngs).lazy_init(x)
            self.head = nnx.Linear(D, 1, rngs=rngs)

        def __call__(self, x):
            return self.head(self.attention(x).context)

    x = jnp.asarray(X)
    model = Model(nnx.Rngs(0))
    assert nnx.eval_shape(lambda model: model(x), model).shape == (B, T, 1)
    gradients = nnx.jit(nnx.grad(lambda model: jnp.sum(model(x) ** 2)))(model)
    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(gradients)))
    assert len(leaves) == 10
    # the bias of the keys moves every score alike
    assert sum(np.abs(leaf).max() > 1e-3 for leaf in leaves) == 9
    cache = model.attention.init_cache(D, (B,), max_length=T)
    decoded, cache = model.attention.decode(x, cache)
    np.testing.assert_array_equal(cache.length, [T] * B)
    np.testing.assert_allclose(decoded.context, model.attention(x, causal=True).context, atol=1e-5)


def shares(scores, mask):
    """Squares of the visible scores, divided by their sum."""
    squares = jnp.where(True if mask is None else mask, scores**2, 0)
    return squares / jnp.maximum(squares.sum(axis=-1, keepdims=True), 1e-6)


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_linen_takes_a_normalizer_of_ones_own(chunk_size):
    """Values and gradients are those of our layer with the same parameters."""
    mask = np.tri(T, dtype=bool) & (np.arange(T) < np.array([[7], [4]]))[:, None, None, :]
    options = {"normalizer": shares, "chunk_size": chunk_size}
    function = fa.linen_attention_fn(**options, scale=0.3)
    layer = nn.MultiHeadDotProductAttention(3, attention_fn=function)
    variables = init(layer, X)

    ours = fa.MultiHeadAttention(3, score=lambda q, k: 0.3 * fa.dot(q, k), **options)
    by_hand = lambda variables, x: ours.apply(variables, x, mask=jnp.asarray(mask)).context
    by_linen = lambda variables, x: layer.apply(variables, x, mask=jnp.asarray(mask))
    outcomes = []
    for function in (by_linen, by_hand):
        loss = lambda variables, x, function=function: jnp.sum(jnp.sin(function(variables, x)))
        gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(variables, X)
        outcomes.append((jax.jit(function)(variables, X), gradients))
    chex.assert_trees_all_close(*outcomes, atol=1e-5, rtol=1e-4)
    softmax = nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn(scale=0.3))
    other = apply(softmax, variables, X, mask=jnp.asarray(mask))
    assert np.abs(other - outcomes[0][0]).max() > 1e-2


def of_nnx(function, **options):
    options = {"num_heads": 3, "decode": False} | options
    return nnx.MultiHeadAttention(in_features=D, attention_fn=function, rngs=nnx.Rngs(0), **options)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("key_heads", [3, 1])
def test_nnx_takes_our_attention(key_heads, causal):
    """With its masks, and shared key heads."""
    theirs, ours = (
        of_nnx(function, num_kv_heads=key_heads)
        for function in (nnx.dot_product_attention, fa.nnx_attention_fn())
    )
    real = np.arange(T) < np.array([7, 4])[:, None, None, None]
    mask = jnp.asarray(np.broadcast_to(real, (B, 1, T, T)))
    run = nnx.jit(
        lambda layer: nnx.capture(layer, nnx.Intermediate)(
            jnp.asarray(X), mask=mask, is_causal=causal, sow_weights=True
        )
    )
    (context, sown), (expected, expected_sown) = run(ours), run(theirs)
    np.testing.assert_allclose(context, expected, atol=1e-5)
    chex.assert_trees_all_close(nnx.to_pure_dict(sown), nnx.to_pure_dict(expected_sown), atol=1e-5)
    assert sown["attention_weights"].get_value()[0].shape == (B, 3, T, T)


def test_nnx_takes_our_normalizer_and_window():
    x = jnp.asarray(X)
    ours = of_nnx(fa.nnx_attention_fn(normalizer=fa.sparsemax, window=(1, 0), scale=0.3))
    query, key, value = ours.query(x), ours.key(x), ours.value(x)
    heads = (jnp.swapaxes(array, 1, 2) for array in (query, key, value))
    score = lambda query, key: 0.3 * fa.dot(query, key)
    attended = fa.attend(*heads, score=score, normalizer=fa.sparsemax, window=(1, 0))
    expected = ours.out(jnp.swapaxes(attended.context, 1, 2))
    np.testing.assert_allclose(ours(x), expected, atol=1e-5)


def test_nnx_decodes_with_our_attention():
    theirs, ours = (
        of_nnx(function, decode=True)
        for function in (nnx.dot_product_attention, fa.nnx_attention_fn())
    )
    for layer in (theirs, ours):
        layer.init_cache((B, 5, D))
    step = nnx.jit(lambda layer, x: layer(x))
    steps = []
    for t in range(4):
        x = jnp.asarray(X[:, t : t + 1])
        steps.append(step(ours, x))
        np.testing.assert_allclose(steps[-1], step(theirs, x), atol=1e-5)
    full = ours(jnp.asarray(X[:, :4]), is_causal=True, decode=False)
    np.testing.assert_allclose(jnp.concatenate(steps, axis=1), full, atol=1e-5)
    query, keys = jnp.ones((B, 1, 2, 3)), jnp.ones((B, 5, 2, 3))
    with pytest.raises(ValueError, match="query_offset"):
        fa.nnx_attention_fn()(query, keys, keys, is_causal=True)  # newer nnx passes False there


def test_nnx_drops_weights_by_its_own_key():
    ours = of_nnx(fa.nnx_attention_fn(), dropout_rate=0.5, deterministic=False)
    x, plain = jnp.asarray(X), of_nnx(fa.nnx_attention_fn())
    first, second, again = (ours(x, rngs=nnx.Rngs(seed)) for seed in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(ours(x) - ours(x)).max() > 1e-3
    np.testing.assert_array_equal(ours(x, deterministic=True), plain(x))
