import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import SelfAttention
from tests.attention.compiled import apply

T, D, E = 5, 7, 3


def reference(params, x, scale):
    """The definition, written out: softmax(scale (x W_q) (x W_k)^T) (x W_v)."""
    query, key, value = (np.asarray(x) @ np.asarray(params[f"{name}_kernel"]) for name in ("query", "key", "value"))
    energies = np.exp(scale * query @ key.swapaxes(-1, -2))
    weights = energies / energies.sum(-1, keepdims=True)
    return weights @ value, weights


@pytest.mark.parametrize("key_features", [2, 7, 13])  # keys narrower than the input, as wide, and wider, which folds the kernels
@pytest.mark.parametrize("scale", [1.0, None])
def test_equals_the_definition_in_value_and_gradient(key_features, scale):
    x = jax.random.normal(jax.random.key(0), (2, T, D))
    layer = SelfAttention(key_features, E, scale)
    variables = jax.jit(layer.init)(jax.random.key(1), x)
    context, weights = reference(variables["params"], x, 1.0 if scale else key_features**-0.5)
    attended = apply(layer, variables, x)
    np.testing.assert_allclose(attended.context, context, atol=1e-5)
    np.testing.assert_allclose(attended.weights, weights, atol=1e-5)

    gradient = jax.grad(lambda v: jnp.sum(layer.apply(v, x).context ** 2))(variables)["params"]
    for name, kernel in variables["params"].items():
        direction = np.asarray(jax.random.normal(jax.random.key(2), kernel.shape))
        moved = [dict(variables["params"], **{name: np.asarray(kernel) + step * direction}) for step in (1e-4, -1e-4)]
        above, below = (np.sum(reference(params, x, 1.0 if scale else key_features**-0.5)[0] ** 2) for params in moved)
        np.testing.assert_allclose(np.vdot(gradient[name], direction), (above - below) / 2e-4, rtol=2e-2, atol=2e-2)


def test_parameters_do_not_depend_on_the_fold():
    shapes = jax.tree.map(jnp.shape, SelfAttention(13, E).init(jax.random.key(0), jnp.zeros((1, T, D)))["params"])
    assert shapes == {"query_kernel": (D, 13), "key_kernel": (D, 13), "value_kernel": (D, E)}


def test_mask_keeps_padding_out_of_values_and_gradients():
    x = jax.random.normal(jax.random.key(0), (2, T, D))
    padded = jnp.concatenate([x, jnp.full((2, 3, D), 9.0)], axis=1)
    mask = jnp.broadcast_to(jnp.arange(T + 3) < T, (1, T + 3, T + 3))
    layer = SelfAttention(13, E)
    variables = jax.jit(layer.init)(jax.random.key(1), x)
    np.testing.assert_allclose(apply(layer, variables, padded, mask=mask).context[:, :T], apply(layer, variables, x).context, atol=1e-6)
    gradient = jax.grad(lambda x: apply(layer, variables, x, mask=mask).context[:, :T].sum())(padded)
    np.testing.assert_array_equal(gradient[:, T:], 0)


@pytest.mark.parametrize("key_features", [2, 13])
def test_a_nan_in_padding_reaches_no_gradient_of_the_kernels(key_features):
    x = jax.random.normal(jax.random.key(0), (2, T, D))
    real = jnp.arange(T) < 3
    mask = (real[:, None] & real[None, :])[None]
    layer = SelfAttention(key_features, E)
    variables = jax.jit(layer.init)(jax.random.key(1), x)
    gradient = jax.grad(lambda variables, x: apply(layer, variables, x, mask=mask).context.sum())
    chex.assert_trees_all_close(gradient(variables, x.at[:, 3:].set(jnp.nan)), gradient(variables, x))
