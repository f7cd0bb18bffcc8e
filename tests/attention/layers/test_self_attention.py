import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention import SelfAttention
from tests.attention.compiled import apply, init, normal, run

T, D, E = 5, 7, 3
X = normal(0, 2, T, D)


def reference(params, x, scale, mask=True):
    """The definition, written out: softmax(scale (x W_q + b_q) (x W_k + b_k)^T) (x W_v + b_v)."""
    param = lambda name: np.asarray(params.get(name, 0))
    query, key, value = (
        x @ param(f"{name}_kernel") + param(f"{name}_bias") for name in ("query", "key", "value")
    )
    shares = mask * np.exp(scale * query @ key.swapaxes(-1, -2))
    weights = shares / shares.sum(-1, keepdims=True)
    return weights @ value, weights


# keys narrower than the input, as wide, and wider, which folds the kernels
@pytest.mark.parametrize("key_features", [2, 7, 13])
@pytest.mark.parametrize(
    ("scale", "use_bias", "masked"),
    [(1.0, False, False), (None, False, True), (None, True, False), (0.7, True, True)],
)
def test_equals_the_definition_in_value_and_gradient(key_features, scale, use_bias, masked):
    layer = SelfAttention(key_features, E, scale, use_bias, bias_init=nn.initializers.normal(1.0))
    variables, mask = init(layer, X), np.tri(T, dtype=bool)[None] if masked else None
    expected = functools.partial(
        reference, x=X, scale=scale or key_features**-0.5, mask=True if mask is None else mask
    )
    context, weights = expected(variables["params"])

    def loss(variables, x):
        attended = layer.apply(variables, x, mask=mask)
        return jnp.sum(attended.context**2), attended

    gradient, attended = run(jax.grad(loss, has_aux=True), variables, X)
    np.testing.assert_allclose(attended.context, context, atol=1e-5)
    np.testing.assert_allclose(attended.weights, weights, atol=1e-5)

    for name, kernel in variables["params"].items():
        direction = normal(2, *kernel.shape)
        moved = [
            dict(variables["params"], **{name: np.asarray(kernel) + step * direction})
            for step in (1e-4, -1e-4)
        ]
        above, below = (np.sum(expected(params)[0] ** 2) for params in moved)
        np.testing.assert_allclose(
            np.vdot(gradient["params"][name], direction),
            (above - below) / 2e-4,
            rtol=2e-2,
            atol=2e-2,
        )


def test_folded_kernels_do_not_overflow_half_precision():
    layer, large = SelfAttention(13, E, scale=100.0), (1000 * X).astype(np.float16)
    attended = apply(layer, init(layer, X), large)
    assert attended.context.dtype == np.float16
    chex.assert_tree_all_finite(attended)


def test_parameters_do_not_depend_on_the_fold():
    shapes = jax.tree.map(jnp.shape, init(SelfAttention(13, E), X)["params"])
    assert shapes == {"query_kernel": (D, 13), "key_kernel": (D, 13), "value_kernel": (D, E)}


def test_self_attention_of_49_features_with_biases_has_7350_parameters():
    variables = init(fa.SelfAttention(49, 49, use_bias=True), np.zeros((1, 16, 49)))
    # 15,200 less the tutorial's Dense 784-10
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == 7_350
