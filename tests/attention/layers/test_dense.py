import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention.layers.multi_head import on_one_axis

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("inputs", "kernel", "contracted"),
    [
        ((7,), (7, 5), 1),
        ((3, 7), (7, 5), 1),
        ((2, 3, 7), (7, 2, 5), 1),
        ((11, 2, 3, 7), (7, 5), 1),
        ((2, 3, 4, 7), (4, 7, 5), 2),
        ((0, 3, 7), (7, 5), 1),
    ],
)
def test_equals_dot_general(inputs, kernel, contracted):
    x, w = jax.random.normal(KEY, inputs), jax.random.normal(jax.random.key(1), kernel)
    last = tuple(range(x.ndim - contracted, x.ndim))
    numbers = ((last, tuple(range(contracted))), ((), ()))
    expected = jax.lax.dot_general(x, w, numbers)
    product = on_one_axis(x, w, numbers, precision=jax.lax.Precision.HIGHEST)
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-6)
    assert product.shape == expected.shape


def contracted_axes(layer, *inputs):
    """How many axes each product of the gradient contracts."""
    variables = layer.init(KEY, *inputs)
    loss = lambda params: jnp.sum(jax.tree.leaves(layer.apply(params, *inputs))[0] ** 2)
    equations = jax.make_jaxpr(jax.grad(loss))(variables).eqns
    numbers = [
        e.params.get("dimension_numbers") for e in equations if e.primitive.name == "dot_general"
    ]
    return [len(contracted) for (contracted, _), _ in numbers]


def test_the_gradient_of_a_kernel_contracts_one_axis():
    axes = contracted_axes(fa.FeedForward(5), jnp.ones((2, 3, 7)))
    assert len(axes) >= 4
    assert set(axes) == {1}


def test_positions_that_are_cut_over_devices_stay_an_axis():
    """On one axis with the batch they could not stay on their devices."""
    network = fa.FeedForward(5, across=fa.Across())
    assert 2 in contracted_axes(network, jnp.ones((2, 3, 7)))
