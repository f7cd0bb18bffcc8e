import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn.attention import (
    entmax15,
    hard,
    masked_softmax,
    monotonic_expectation,
    monotonic_hard,
    normalizers,
    sampled_hard,
    sparsemax,
    top_k,
)
from tests.attention import naive

B, Q, K = 2, 3, 5  # distinct primes, so that no two axes can be confused

NORMALIZERS = {
    "masked_softmax": masked_softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "hard": functools.partial(hard, temperature=0.7),
    "sampled_hard": functools.partial(sampled_hard, rng=jax.random.key(5), temperature=0.7),
    "top_k": functools.partial(top_k, k=2),
    "monotonic_expectation": monotonic_expectation,
    "monotonic_hard": monotonic_hard,
}
MONOTONIC = ("monotonic_expectation", "monotonic_hard")  # their rows need not sum to 1
SOFTMAX = jax.jit(masked_softmax)

every_normalizer = pytest.mark.parametrize("name", NORMALIZERS)


@functools.cache
def compiled(name):
    """The weights, and the gradient of their sum weighted with a cotangent."""

    @jax.jit
    def run(scores, mask, cotangent):
        weights, pull = jax.vjp(lambda scores: NORMALIZERS[name](scores, mask=mask), scores)
        return weights, pull(cotangent)[0]

    return run


def some_scores(seed=0, shape=(B, Q, K), scale=1.5):
    return scale * np.random.default_rng(seed).normal(size=shape)


def some_mask(shape=(B, Q, K)):
    mask = np.random.default_rng(1).random(shape) < 0.7
    mask[0, 1] = False  # a query with nothing to attend
    mask[1, :, 2] = False  # a key that no query may attend
    return mask


def run(name, scores, mask=None, dtype=jnp.float32):
    mask = np.ones(scores.shape, bool) if mask is None else mask
    cotangent = some_scores(2, scores.shape)
    weights, gradient = compiled(name)(
        jnp.asarray(scores, dtype), jnp.asarray(mask), jnp.asarray(cotangent, jnp.float32)
    )
    return np.asarray(weights), np.asarray(gradient.astype(jnp.float32))


def rowwise(row, scores, mask):
    """Weights `(..., k)` by a function of the allowed scores of one row, in float64."""
    weights = np.zeros(scores.shape)
    for index in np.ndindex(scores.shape[:-1]):
        if mask[index].any():
            weights[(*index, mask[index])] = row(scores[(*index, mask[index])])
    return weights


NAIVE = naive.ROWS | {"top_k": naive.top(2)}


def softmax_gradient(soft, cotangent):
    return soft * (cotangent - (soft * cotangent).sum(-1, keepdims=True))


@pytest.mark.parametrize("name", NAIVE)
@pytest.mark.parametrize("shape", [(B, Q, K), (2, 3, 5, 7)])
@pytest.mark.parametrize("scale", [0.1, 1.5, 50.0])
def test_equals_a_loop_in_float64(name, shape, scale):
    scores, mask = np.float32(some_scores(0, shape, scale)), some_mask(shape)
    weights, _ = run(name, scores, mask)
    assert_allclose(weights, rowwise(NAIVE[name], np.float64(scores), mask), atol=2e-6)


@pytest.mark.parametrize("name", NAIVE)
def test_a_row_alone_and_no_mask(name):
    scores = np.float32(some_scores(3, (K,)))
    expected = NAIVE[name](np.float64(scores))
    both = jax.jit(
        lambda scores: [NORMALIZERS[name](scores), NORMALIZERS[name](scores, jnp.ones(1, bool))]
    )
    for weights in both(jnp.asarray(scores)):
        assert_allclose(weights, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["masked_softmax", "sparsemax", "entmax15"])
def test_gradients_equal_numerical_ones(name):
    with jax.enable_x64(True):
        scores, mask = jnp.asarray(some_scores(4)), jnp.asarray(some_mask())
        weights = jax.jit(lambda scores: NORMALIZERS[name](scores, mask))
        assert weights(scores).dtype == jnp.float64
        check_grads(weights, (scores,), order=1, atol=1e-5, rtol=1e-5)


def test_gradient_of_hard_is_that_of_softmax_at_its_temperature():
    scores, mask = some_scores(4), some_mask()
    soft = rowwise(NAIVE["masked_softmax"], scores / 0.7, mask)
    assert_allclose(
        run("hard", scores, mask)[1], softmax_gradient(soft, some_scores(2)) / 0.7, atol=1e-5
    )


def test_gradient_of_top_k_is_that_of_softmax_over_the_kept():
    scores, mask = some_scores(4), some_mask()
    weights = rowwise(NAIVE["top_k"], scores, mask)
    assert_allclose(
        run("top_k", scores, mask)[1], softmax_gradient(weights, some_scores(2)), atol=1e-5
    )


def test_gradient_of_sampled_hard_is_that_of_softmax_of_what_it_compared():
    """Nothing is said of how the noise is drawn: the softmax is read off its Jacobian, and the same
    rng gives the same noise.
    """
    temperature, scores = 0.7, np.array([some_scores(6, (4,)), some_scores(7, (4,))])
    weights_and_jacobian = jax.jit(
        lambda row: (NORMALIZERS["sampled_hard"](row), jax.jacrev(NORMALIZERS["sampled_hard"])(row))
    )
    perturbed = []
    for row in scores:
        chosen, jacobian = weights_and_jacobian(jnp.float32(row))
        jacobian = np.float64(jacobian) * temperature  # diag(p) - p p^T
        first = math.sqrt(-jacobian[0, 1] * jacobian[0, 2] / jacobian[1, 2])
        soft = np.concatenate([[first], -jacobian[0, 1:] / first])
        assert_allclose(jacobian, np.diag(soft) - np.outer(soft, soft), atol=1e-5)
        assert_allclose(soft.sum(), 1, rtol=1e-4)
        assert soft.argmax() == np.argmax(chosen)
        perturbed.append(temperature * np.log(soft))
    # the noise is gone, a constant is left
    moved = (perturbed[1] - perturbed[0]) - (scores[1] - scores[0])
    assert_allclose(moved, moved[0], atol=1e-3)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_sampled_hard_draws_with_the_probabilities_of_softmax(temperature):
    row, mask, draws = (
        np.array([0.3, -1.0, 9.0, 1.2, 0.1], np.float32),
        np.array([[True, True, False, True, True]]),
        20_000,
    )
    sample = jax.jit(functools.partial(sampled_hard, temperature=temperature))
    weights = np.asarray(sample(np.tile(row, (draws, 1)), mask, rng=jax.random.key(0)))
    assert ((weights == 0) | (weights == 1)).all()
    counts, expected = (
        weights.sum(axis=0),
        draws * NAIVE["masked_softmax"](np.float64(row)[[0, 1, 3, 4]]),
    )
    assert counts[2] == 0
    assert scipy.stats.chisquare(counts[[0, 1, 3, 4]], expected).pvalue > 0.01
    # rows that follow one another are drawn apart
    together = (weights[1:] * weights[:-1]).sum(axis=1).mean()
    assert_allclose(together, np.sum((expected / draws) ** 2), atol=0.02)


def test_sampled_hard_draws_by_its_key():
    scores = np.zeros((100, K), np.float32)
    sample = jax.jit(sampled_hard)
    first, again, other = (
        np.asarray(sample(scores, rng=jax.random.key(seed))) for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert (first != other).any()


@every_normalizer
@pytest.mark.parametrize("hidden", [jnp.nan, jnp.inf, -jnp.inf, 1e30])
def test_what_a_masked_position_holds_is_never_read(name, hidden):
    scores, mask = some_scores(), some_mask()
    weights, gradient = run(name, np.where(mask, scores, hidden), mask)
    plain_weights, plain_gradient = run(name, scores, mask)
    assert_array_equal(weights, plain_weights)
    assert_array_equal(gradient, plain_gradient)
    assert_array_equal(weights[~mask], 0)
    assert_array_equal(gradient[~mask], 0)


@every_normalizer
@pytest.mark.parametrize("scale", [0.1, 1.5, 1e4])
def test_rows_sum_to_one_or_zero(name, scale):
    mask = np.tile(some_mask(), (20, 1, 1, 1))
    scores = some_scores(8, mask.shape, scale)
    weights, gradient = map(np.stack, zip(*(run(name, *row) for row in zip(scores, mask))))
    sums = weights.sum(axis=-1)
    assert (weights >= 0).all()
    assert np.isfinite(gradient).all()
    if name in MONOTONIC:
        assert (sums <= 1 + 1e-6).all()
        assert_array_equal(sums[~mask.any(-1)], 0)
    else:
        assert_allclose(sums, mask.any(-1), atol=2e-6)


@pytest.mark.parametrize("name", [name for name in NORMALIZERS if name not in MONOTONIC])
def test_a_constant_added_changes_nothing(name):
    scores, mask = np.round(some_scores(), 2), some_mask()
    plain, moved = run(name, scores, mask), run(name, scores + 64, mask)
    assert_allclose(moved[0], plain[0], atol=1e-5)
    assert_allclose(moved[1], plain[1], atol=1e-4)


@every_normalizer
def test_a_mask_broadcasts(name):
    scores = np.float32(some_scores())
    masks = [some_mask()[:1, :1], some_mask()[:, :, :1], np.ones((1, 1, 1), bool)]
    all_weights = jax.jit(
        lambda scores, masks: [NORMALIZERS[name](scores, mask) for mask in masks]
    )(scores, masks)
    for mask, weights in zip(masks, all_weights):
        assert_allclose(
            weights, run(name, scores, np.broadcast_to(mask, scores.shape))[0], atol=1e-6
        )


@every_normalizer
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_normalised_in_float32(name, dtype):
    scores, mask = some_scores(scale=8), some_mask()
    rounded = np.asarray(jnp.asarray(scores, dtype), np.float32)
    weights, _ = run(name, scores, mask, dtype)
    assert weights.dtype == jnp.float32
    assert_array_equal(weights, run(name, rounded, mask)[0])


@every_normalizer
@pytest.mark.parametrize("masked", [False, True])
def test_minus_infinity_masks_as_the_mask_does(name, masked):
    """Also where a row holds nothing else."""
    scores, mask = some_scores(), some_mask()
    rest = np.random.default_rng(3).random(mask.shape) < 0.5 if masked else np.ones_like(mask)
    hidden = np.where(mask, scores, -np.inf)
    mask_or_none = jnp.asarray(rest) if masked else None
    cotangent = jnp.float32(some_scores(2))
    weights, gradient = compiled(name)(jnp.float32(hidden), mask_or_none, cotangent)
    expected_weights, expected_gradient = run(name, scores, mask & rest)
    assert_allclose(weights, expected_weights, atol=1e-6)
    assert_allclose(gradient, expected_gradient, atol=1e-6)
    assert_array_equal(np.asarray(gradient)[~mask], 0)


@every_normalizer
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("key", [1, 3])  # the largest score of the row, and the smallest
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_nan_in_nan_out(name, dtype, key, bad):
    scores, mask = some_scores(), np.ones((B, Q, K), bool)
    scores[0, 1], mask[0, 1, 4], mask[0, 2] = [0.0, 3, 1, -3, 0], False, False
    plain, plain_gradient = run(name, scores, mask, dtype)
    scores[0, 1, key] = bad
    weights, gradient = run(name, scores, mask, dtype)
    nan = np.zeros((B, Q), bool)
    nan[0, 1] = np.isnan(bad) or name not in MONOTONIC
    assert_array_equal(np.isnan(weights).all(-1), nan)
    assert_array_equal(np.isnan(weights).any(-1), nan)
    assert np.isnan(gradient[0, 1, :4]).all() == nan[0, 1]
    assert_array_equal(gradient[0, 1, 4], 0)  # the mask hides it
    assert_array_equal(weights[0, 2], 0)  # an empty row, after the one with the NaN
    assert_array_equal(gradient[0, 2], 0)
    others = (1, slice(None)) if name in MONOTONIC else ~nan  # its rows hang together
    assert_array_equal(weights[others], plain[others])
    assert_array_equal(gradient[others], plain_gradient[others])


@every_normalizer
@pytest.mark.parametrize("hidden", [-jnp.inf, jnp.nan])
def test_tangents_of_hidden_scores_do_not_count(name, hidden):
    """With and without a mask, in forward mode."""
    scores, mask, change = np.float32(some_scores()), some_mask(), np.float32(some_scores(5))
    mask_or_none = None if hidden == -jnp.inf else mask

    @jax.jit
    def tangent(scores, change, mask):
        normalizer = functools.partial(NORMALIZERS[name], mask=mask)
        return jax.jvp(normalizer, (scores,), (change,))[1]

    expected = tangent(scores, np.where(mask, change, 0), mask)
    scores = np.where(mask, scores, np.float32(hidden))
    for garbage in np.float32([np.nan, np.inf]):
        result = tangent(scores, np.where(mask, change, garbage), mask_or_none)
        assert_allclose(result, expected, atol=1e-6)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev])
def test_second_derivatives_of_softmax(masked, outer, inner):
    """Those of the visible scores alone; 0 for the two others."""
    scores, visible = jnp.array([0.3, -0.2, -jnp.inf, 0.7, -jnp.inf]), np.array([0, 1, 3])
    mask = None
    if masked:
        scores, mask = scores.at[2].set(jnp.nan), jnp.arange(K) != 2
    hessian = lambda normalizer: jax.jit(outer(inner(normalizer)))
    plain = lambda scores: jnp.exp(scores) / jnp.exp(scores).sum()
    expected = np.zeros((K, K, K))
    expected[np.ix_(visible, visible, visible)] = hessian(plain)(scores[visible])
    result = hessian(functools.partial(masked_softmax, mask=mask))(scores)
    assert_allclose(result, expected, atol=1e-6)
    assert np.abs(expected).max() > 0.05


def test_softmax_reduces_without_an_initial_value_which_onnx_has_not():
    """The translators to ONNX replace `jnp.max`, and refuse its `initial`."""
    initials, largest = [], jnp.max

    def counted(*args, **options):
        initials.append(options.get("initial"))
        return largest(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jnp, "max", counted)
        weights = masked_softmax(jnp.array([1.0, 2.0]), mask=jnp.array([True, False]))
    assert_array_equal(weights, [1.0, 0.0])
    assert initials == [None]


def test_half_precision_does_not_overflow():
    # 4 exp(11) > 65504, were the largest not taken off
    scores = jnp.array([11.0, 11.0, 11.0, 11.0], jnp.float16)
    assert_allclose(SOFTMAX(scores), 0.25)


@pytest.mark.parametrize("normalizer", [sparsemax, entmax15])
def test_thresholds_hold_over_many_keys(normalizer):
    expected = NAIVE[normalizer.__name__]
    for scores in (
        some_scores(1, (20_011,), 0.01),
        some_scores(1, (20_011,), 3.0),
        np.zeros(20_011),
    ):
        assert_allclose(
            jax.jit(normalizer)(jnp.float32(scores)),
            expected(np.float64(np.float32(scores))),
            atol=3e-5,
        )


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [(hard, [0, 1, 0, 0, 0]), (functools.partial(top_k, k=2), [0, 0.5, 0, 0.5, 0])],
)
def test_the_first_of_equal_scores_wins(normalizer, expected):
    assert_allclose(jax.jit(normalizer)(np.array([0.0, 2, 1, 2, 2], np.float32)), expected)


def test_top_k_of_all_is_softmax_and_of_one_is_the_largest():
    scores, mask, largest = (
        np.float32(some_scores()),
        some_mask(),
        jax.jit(top_k, static_argnames="k"),
    )
    for k in (K, K + 2):
        assert_allclose(largest(scores, mask, k=k), SOFTMAX(scores, mask), atol=1e-6)
    assert_allclose(
        largest(scores, mask, k=1), rowwise(NAIVE["hard"], some_scores(), some_mask()), atol=1e-6
    )


def test_temperature_changes_the_gradient_and_not_the_weights():
    normalizers = [functools.partial(hard, temperature=temperature) for temperature in (0.5, 2.0)]
    scores = jnp.float32(some_scores())
    weights = jax.jit(lambda scores: [normalizer(scores) for normalizer in normalizers])(scores)
    gradients = jax.jit(
        lambda scores: [jax.grad(lambda s, n=n: n(s)[0, 0, 0])(scores) for n in normalizers]
    )(scores)
    assert_array_equal(*weights)
    assert not np.allclose(*gradients, atol=1e-2)


def test_a_draw_is_finite_whatever_the_random_bits(monkeypatch):
    for bits in (0, 2**32 - 1):
        monkeypatch.setattr(
            normalizers,
            "positional_bits",
            lambda *a, bits=bits: jnp.full((1, 2, 3), bits, jnp.uint32),
        )
        assert_allclose(sampled_hard(jnp.zeros((2, 3)), rng=jax.random.key(0)), [[1, 0, 0]] * 2)
