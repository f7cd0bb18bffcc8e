import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from flax_attn.attention import (
    additive,
    bilinear,
    concat,
    cosine,
    dot,
    location,
    no_score,
    scaled_dot,
    trilinear,
)
from tests.attention import naive

B, Q, K, D, E, H = 2, 3, 5, 7, 11, 13  # distinct primes, so that no two axes can be confused

# the score, the width of its keys, the shapes of its parameters, and the score of one pair
SCORES = {
    "dot": (dot, D, {}, naive.SCORES["dot"]),
    "scaled_dot": (scaled_dot, D, {}, naive.SCORES["scaled_dot"]),
    "cosine": (cosine, D, {}, naive.SCORES["cosine"]),
    "bilinear": (bilinear, E, {"kernel": (D, E)}, lambda q, k, p: q @ p["kernel"] @ k),
    "bilinear with bias and activation": (
        functools.partial(bilinear, activation=jnp.tanh),
        E,
        {"kernel": (D, E), "bias": ()},
        naive.SCORES["bilinear"],
    ),
    "additive": (
        additive,
        E,
        {"query_kernel": (D, H), "key_kernel": (E, H), "vector": (H,)},
        naive.SCORES["additive"],
    ),
    "concat": (concat, E, {"kernel": (D + E, H), "vector": (H,)}, naive.SCORES["concat"]),
    "trilinear": (
        trilinear,
        D,
        {"query_vector": (D,), "key_vector": (D,), "product_vector": (D,)},
        naive.SCORES["trilinear"],
    ),
}
every_score = pytest.mark.parametrize("name", SCORES)


def make(name, query_leading=(B,), key_leading=(B,), scale=1.0):
    """The score, and a query, a key and parameters for it, in float64 NumPy."""
    score, key_features, shapes, _ = SCORES[name]
    random = np.random.default_rng(0)
    draw = lambda *shape: np.asarray(scale * random.normal(size=shape))
    query, key = draw(*query_leading, Q, D), draw(*key_leading, K, key_features)
    return score, query, key, {name: draw(*shape) / 2 for name, shape in shapes.items()}


def by_loops(name, query, key, parameters):
    leading = np.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    query, key = (np.broadcast_to(array, leading + array.shape[-2:]) for array in (query, key))
    scores = np.zeros((*leading, Q, K))
    for index in np.ndindex(scores.shape):
        *row, q, k = index
        scores[index] = SCORES[name][3](query[(*row, q)], key[(*row, k)], parameters)
    return scores


@every_score
@pytest.mark.parametrize(
    ("query_leading", "key_leading"), [((), ()), ((B,), (B,)), ((2, 1), (1, 3))]
)
def test_equals_a_loop_over_scalars(name, query_leading, key_leading):
    score, query, key, parameters = make(name, query_leading, key_leading)
    scores = jax.jit(score)(
        *jax.tree.map(jnp.float32, (query, key)), **jax.tree.map(jnp.float32, parameters)
    )
    assert scores.dtype == jnp.float32
    np.testing.assert_allclose(scores, by_loops(name, query, key, parameters), rtol=2e-5, atol=2e-5)


@every_score
def test_gradients_of_all_arguments_equal_numerical_ones(name):
    with jax.enable_x64(True):
        score, *arguments = make(name)
        arguments = jax.tree.map(jnp.asarray, arguments)
        check_grads(
            jax.jit(lambda query, key, p: score(query, key, **p)),
            arguments,
            order=1,
            modes=["rev"],
            atol=1e-5,
            rtol=1e-5,
        )


@every_score
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_gives_float32(name, dtype):
    score, *arguments = make(name)
    query, key, parameters = jax.tree.map(lambda array: array.astype(dtype), arguments)
    scores = jax.jit(score)(query, key, **parameters)
    assert scores.dtype == jnp.float32
    exact = by_loops(
        name, *jax.tree.map(lambda array: np.asarray(array, np.float64), (query, key, parameters))
    )
    np.testing.assert_allclose(scores, exact, atol=0.02 * np.abs(exact).max())


@pytest.mark.parametrize(
    "name", ["dot", "scaled_dot", "cosine", "bilinear", "additive", "concat", "trilinear"]
)
def test_sums_of_half_precision_do_not_overflow(name):
    """No input, parameter or score is near 65504, the largest float16; the sums on the way to the
    score are beyond it.
    """
    query, key, ones = (np.full(shape, 60, np.float16) for shape in ((1, 64), (2, 64), (64, 64)))
    key = key if name in ("dot", "scaled_dot", "trilinear") else -key
    small = np.full((64,), 1 / 64, np.float16)
    score, parameters, expected = {
        "dot": (dot, {}, 64 * 60**2),
        "scaled_dot": (scaled_dot, {}, 8 * 60**2),
        "cosine": (cosine, {}, -1),
        "bilinear": (bilinear, {"kernel": ones}, -(64**2) * 60**3),
        "additive": (additive, {"query_kernel": ones, "key_kernel": ones, "vector": small}, 0),
        "concat": (concat, {"kernel": np.concatenate([ones, ones]), "vector": small}, 0),
        "trilinear": (
            trilinear,
            {"query_vector": query[0], "key_vector": key[0], "product_vector": small},
            2 * 64 * 60**2 + 60**2,
        ),
    }[name]
    np.testing.assert_allclose(jax.jit(score)(query, key, **parameters), expected, rtol=5e-3)


@pytest.mark.parametrize("size", [0.0, 1e-25, 1e-15, 1.0, 1e15, 1e25])
def test_cosine_knows_no_length_and_has_finite_gradients(size):
    query, key = jnp.array([[3.0, 4.0]]) * size, jnp.array([[4.0, 3.0]])
    scores, gradient = jax.jit(jax.value_and_grad(lambda query, key: cosine(query, key).sum()))(
        query, key
    )
    np.testing.assert_allclose(scores, 24 / 25 if size else 0, rtol=1e-5)
    assert jnp.isfinite(gradient).all()


def test_location_is_a_projection_of_the_query_alone():
    query, kernel = (
        np.random.default_rng(seed).normal(size=shape)
        for seed, shape in enumerate(((B, Q, D), (D, K)))
    )
    scores = location(jnp.float32(query), kernel=jnp.float32(kernel))
    expected = [
        [[sum(query[b, q, i] * kernel[i, k] for i in range(D)) for k in range(K)] for q in range(Q)]
        for b in range(B)
    ]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_no_score_is_zero_for_every_pair():
    scores = no_score(jnp.ones((B, 1, Q, D)), jnp.ones((1, 3, K, E)))
    assert scores.shape == (B, 3, Q, K)
    np.testing.assert_array_equal(scores, 0)
