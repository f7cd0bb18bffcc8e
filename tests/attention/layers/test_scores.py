import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import (
    AdditiveScore,
    BilinearScore,
    ConcatScore,
    TrilinearScore,
    additive,
    attend,
    bilinear,
    concat,
    trilinear,
)
from tests.attention.compiled import normal

B, Q, K, D, E, H = 2, 3, 5, 7, 11, 13

# the module, the width of its keys, the shapes of its parameters, and the function it closes over
MODULES = {
    "additive": (
        AdditiveScore(H),
        E,
        {"query_kernel": (D, H), "key_kernel": (E, H), "vector": (H,)},
        additive,
    ),
    "concat": (ConcatScore(H), E, {"kernel": (D + E, H), "vector": (H,)}, concat),
    "bilinear": (BilinearScore(), E, {"kernel": (D, E)}, bilinear),
    "bilinear with bias and activation": (
        BilinearScore(use_bias=True, activation=jnp.tanh),
        E,
        {"kernel": (D, E), "bias": ()},
        lambda query, key, kernel, bias: jnp.tanh(bilinear(query, key, kernel=kernel) + bias),
    ),
    "trilinear": (
        TrilinearScore(),
        D,
        {"query_vector": (D,), "key_vector": (D,), "product_vector": (D,)},
        trilinear,
    ),
}
every_module = pytest.mark.parametrize("name", MODULES)


def make(name):
    """The module, parameters of the right shapes, a query and a key."""
    module, width, shapes, _ = MODULES[name]
    params = {
        name: jnp.asarray(normal(seed, *shape)) for seed, (name, shape) in enumerate(shapes.items())
    }
    return module, params, jnp.asarray(normal(7, B, Q, D)), jnp.asarray(normal(8, B, K, width))


def initialised(module, width):
    return jax.device_get(jax.jit(lambda: module.init(jax.random.key(0), D, width))()["params"])


@every_module
def test_parameters_have_these_shapes_and_vary(name):
    module, width, shapes, _ = MODULES[name]
    params = initialised(module, width)
    assert jax.tree.map(jnp.shape, params) == shapes
    assert all(array.std() > 0 for array in params.values() if array.ndim)


@every_module
def test_equals_the_function_on_the_same_parameters(name):
    module, params, query, key = make(name)
    both = jax.jit(
        lambda params: [
            module.apply({"params": params}, D, key.shape[-1])(query, key),
            MODULES[name][3](query, key, **params),
        ]
    )
    np.testing.assert_allclose(*both(params), rtol=1e-5, atol=1e-6)


@every_module
def test_every_parameter_receives_a_gradient_through_attend(name):
    module, params, query, key = make(name)

    def total(params):
        return jnp.sum(
            attend(
                query, key, key, score=module.apply({"params": params}, D, key.shape[-1])
            ).context
            ** 2
        )

    gradients = jax.device_get(jax.jit(jax.grad(total))(params))
    for name, gradient in gradients.items():
        softmax_cancels = name == "query_vector"  # one number for all keys of a query
        assert np.isfinite(gradient).all()
        assert softmax_cancels or (np.abs(gradient) > 1e-6).all(), name


def test_a_vector_is_initialised_as_a_column():
    """What goes into a column is its height: LeCun's initialiser draws within the root of 3 / h."""
    params = initialised(AdditiveScore(1009, kernel_init=jax.nn.initializers.lecun_uniform()), E)
    bound = np.sqrt(3 / 1009)
    assert 0.98 * bound < np.abs(params["vector"]).max() <= bound


def test_the_initialiser_given_is_used_for_all():
    params = initialised(AdditiveScore(H, kernel_init=jax.nn.initializers.constant(0.25)), E)
    assert all((array == 0.25).all() for array in params.values())


MAKERS = {
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "bilinear": lambda _, **options: BilinearScore(use_bias=True, **options),
    "trilinear": lambda _, **options: TrilinearScore(**options),
}


@pytest.mark.parametrize("name", MAKERS)
def test_parameters_have_the_dtype_asked_for_and_are_float32_without(name):
    for options, dtype in (({}, jnp.float32), ({"param_dtype": jnp.bfloat16}, jnp.bfloat16)):
        module = MAKERS[name](H, **options)
        score, variables = jax.eval_shape(lambda module=module: _score_and_variables(module))
        assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype(dtype)}
        assert score.dtype == jnp.float32  # sums are in float32 in any case


def _score_and_variables(module):
    score, variables = module.init_with_output(jax.random.key(0), D, D)
    return score(jnp.ones((Q, D)), jnp.ones((K, D))), variables


def test_keys_that_are_projected_once_give_the_same_score():
    query, key = jnp.asarray(normal(0, 2, 3, 4)), jnp.asarray(normal(1, 2, 5, 6))
    whole, projected = AdditiveScore(7), AdditiveScore(7, project_keys=False)
    variables = whole.init(jax.random.key(0), 4, 6)
    params = variables["params"]
    rest = {"params": {name: params[name] for name in ("query_kernel", "vector")}}
    scores = projected.apply(rest, 4, 7)(query, key @ params["key_kernel"])
    np.testing.assert_allclose(scores, whole.apply(variables, 4, 6)(query, key), atol=1e-5)
    with pytest.raises(ValueError, match="vector"):
        projected.apply(rest, 4, 7)(query, key)
