import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn.attention import monotonic_expectation, monotonic_hard
from tests.attention import naive

B, Q, K = 2, 5, 7
BIG = 1e4  # a score whose probability is 1, and below 0, is 0


def make(leading=(B,), seed=0):
    """Scores and a mask with a query in the middle that has nothing to attend, and a key that no
    query may attend.
    """
    random = np.random.default_rng(seed)
    scores, mask = random.normal(size=(*leading, Q, K)), random.random((*leading, Q, K)) < 0.7
    mask[..., 2, :] = False
    mask[..., 3] = False
    return scores, mask


def naive_rows(scores, mask, is_hard):
    weights = [
        naive.monotonic(*row, is_hard)
        for row in zip(scores.reshape(-1, Q, K), mask.reshape(-1, Q, K))
    ]
    return np.reshape(weights, scores.shape)


@pytest.mark.parametrize(
    ("leading", "masked"), [((), True), ((B,), True), ((2, 3), True), ((B,), False)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_a_loop_over_queries_and_keys(leading, masked, seed):
    scores, mask = make(leading, seed)
    mask = mask if masked else np.ones_like(mask)
    arguments = jnp.float32(scores + 0.3), jnp.asarray(mask) if masked else None
    assert_allclose(
        jax.jit(monotonic_expectation)(*arguments), naive_rows(scores + 0.3, mask, False), atol=1e-6
    )
    assert_array_equal(jax.jit(monotonic_hard)(*arguments), naive_rows(scores + 0.3, mask, True))


def test_gradient_of_the_expectation_equals_the_numerical_one():
    with jax.enable_x64(True):
        scores, mask = map(jnp.asarray, make())
        check_grads(
            jax.jit(lambda s: monotonic_expectation(s, mask)),
            (scores,),
            order=1,
            modes=["rev"],
            atol=1e-5,
            rtol=1e-5,
        )


def test_gradient_of_hard_is_that_of_the_expectation():
    scores, mask = map(jnp.asarray, make())
    scores, cotangent = (
        jnp.float32(scores),
        jnp.float32(np.random.default_rng(3).normal(size=scores.shape)),
    )

    @jax.jit
    def gradients(scores):
        return [
            jax.grad(lambda s, f=f: jnp.vdot(f(s, mask), cotangent))(scores)
            for f in (monotonic_hard, monotonic_expectation)
        ]

    chosen, expected = gradients(scores)
    assert np.abs(expected).max() > 0.1
    assert_allclose(chosen, expected, atol=1e-6)


@pytest.mark.parametrize("normalizer", [monotonic_hard, monotonic_expectation])
def test_tensorflow_addons_case(normalizer):
    scores = np.where(np.array([[0, 0, 0, 1, 1, 0, 1, 1]]) == 1, BIG, -BIG)
    assert_array_equal(jax.jit(normalizer)(scores), [[0, 0, 0, 1, 0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("score", "weight"), [(1e-3, 1), (1e-9, 1), (1e-30, 1), (0.0, 0), (-1e-9, 0)]
)
def test_hard_stops_at_a_score_above_zero_however_small(score, weight):
    assert_array_equal(jax.jit(monotonic_hard)(np.array([[score]], np.float32)), [[weight]])


def test_a_query_with_no_key_allowed_moves_nothing():
    scores, mask = make()
    without = np.delete(np.arange(Q), 2)
    for normalizer in map(jax.jit, (monotonic_hard, monotonic_expectation)):
        weights = np.asarray(normalizer(np.float32(scores), mask))
        assert_allclose(
            weights[:, without],
            normalizer(np.float32(scores[:, without]), mask[:, without]),
            atol=1e-6,
        )
        assert_array_equal(weights[:, 2], 0)


@pytest.mark.parametrize("normalizer", [monotonic_hard, monotonic_expectation])
@pytest.mark.parametrize("key", [0, K - 1])
def test_a_nan_reaches_its_query_and_all_later_ones(normalizer, key):
    scores, mask = np.float32(make()[0]), np.ones((B, Q, K), bool)
    mask[0, 3] = False
    plain = jax.jit(normalizer)(scores, mask)
    scores[0, 1, key] = np.nan
    weights = np.array(jax.jit(normalizer)(scores, mask))
    assert np.isnan(weights[0, [1, 2, 4]]).all()
    weights[0, [1, 2, 4]] = plain[0, [1, 2, 4]]
    assert_array_equal(weights, plain)  # query 3 is empty: 0
    assert_array_equal(weights[0, 3], 0)


@pytest.mark.parametrize("normalizer", [monotonic_hard, monotonic_expectation])
def test_plus_infinity_stops_a_query_and_minus_infinity_does_not(normalizer):
    scores = np.array([[-np.inf, np.inf, 0], [-np.inf, -np.inf, -np.inf], [BIG, -np.inf, np.inf]])
    gradient = jax.jit(jax.grad(lambda scores: normalizer(scores)[:, 1].sum()))(np.float32(scores))
    weights = jax.jit(normalizer)(np.float32(scores))
    assert_array_equal(weights, [[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert np.isfinite(gradient).all()
