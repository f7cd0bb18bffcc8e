import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn.attention import alibi, binary_digits, masks, rotary, sinusoidal
from tests.attention.compiled import normal, run

B, T, D = 2, 5, 14
TURN = jax.jit(rotary)


def test_binary_digits_spell_the_position():
    digits = run(binary_digits, 100)
    assert digits.shape == (100, 7)
    assert_array_equal(digits @ 2 ** np.arange(7), np.arange(100))
    assert [run(binary_digits, length).shape[1] for length in (1, 4, 5, 8, 9)] == [0, 2, 3, 3, 4]
    assert_array_equal(run(binary_digits, 3, 4), [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("max_period", [10_000.0, 100.0])
def test_sinusoidal_is_its_formula(max_period):
    table = np.array(
        [
            [(math.sin, math.cos)[j % 2](t / max_period ** ((j - j % 2) / D)) for j in range(D)]
            for t in range(101)
        ]
    )
    assert_allclose(jax.jit(lambda: sinusoidal(101, D, max_period=max_period))(), table, atol=2e-5)


def test_rotary_turns_each_pair_by_its_angle():
    vectors = np.random.default_rng(0).normal(size=(B, T, D))
    expected = np.zeros_like(vectors)
    for b, t, i in np.ndindex(B, T, D // 2):
        angle = t / 10_000 ** (2 * i / D)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        expected[b, t, 2 * i : 2 * i + 2] = turn @ vectors[b, t, 2 * i : 2 * i + 2]
    assert_allclose(TURN(jnp.float32(vectors)), expected, atol=1e-5)


@pytest.mark.parametrize("features", [D, 6])
def test_the_order_of_its_docstring_turns_halves_as_other_models_do(features):
    """Pairs `(i, i + features/2)` by hand, and the same vectors in our order."""
    vectors, half = normal(0, B, T, D), features // 2
    expected = vectors.copy()
    for t, i in np.ndindex(T, half):
        angle = t / 10_000 ** (2 * i / features)
        first, second = vectors[:, t, i], vectors[:, t, i + half]
        expected[:, t, i] = first * math.cos(angle) - second * math.sin(angle)
        expected[:, t, i + half] = second * math.cos(angle) + first * math.sin(angle)
    order = np.concatenate([np.arange(features).reshape(2, -1).T.ravel(), np.arange(features, D)])
    assert "np.arange(d).reshape(2, -1).T.ravel()" in rotary.__doc__
    turned = run(rotary, vectors[..., order], features=features)
    assert_allclose(turned, expected[..., order], atol=1e-5)


def test_a_product_of_rotary_vectors_depends_on_their_distance_alone():
    query, key = (np.tile(normal(seed, D), (11, 1)) for seed in (0, 1))
    products = np.asarray(TURN(query)) @ np.asarray(TURN(key)).T
    for distance in range(-10, 11):
        assert_allclose(
            np.diagonal(products, distance), np.diagonal(products, distance)[0], atol=1e-4
        )
    assert abs(products[0, 3] - products[3, 0]) > 1e-2  # and on its sign
    assert np.ptp(products[0]) > 1


def test_rotary_from_the_number_of_cached_keys_on_continues():
    vectors = normal(0, B, T, D)
    whole = np.asarray(TURN(vectors))
    assert_allclose(TURN(vectors[:, 3:], np.arange(3, T)), whole[:, 3:], atol=1e-5)
    rows = np.asarray(TURN(vectors[:, :2], np.array([[0, 1], [7, 8]])))
    assert_allclose(rows[0], whole[0, :2], atol=1e-5)
    assert_allclose(rows[1], TURN(vectors[1, :2], np.array([7, 8])), atol=1e-5)
    assert not np.allclose(rows[1], whole[1, :2], atol=0.1)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_rotary_keeps_half_precision_and_turns_in_float32(dtype):
    vectors = normal(0, 1, D).astype(dtype)
    turned = TURN(vectors, np.array([1001]))  # bfloat16 knows no 1001
    assert turned.dtype == dtype
    assert_array_equal(
        turned, np.asarray(TURN(vectors.astype(np.float32), np.array([1001]))).astype(dtype)
    )


def slopes_of_the_paper(heads):
    """`get_slopes` of the ALiBi authors' code, as published."""

    def power_of_2(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_2(heads)
    below = 2 ** math.floor(math.log2(heads))
    return power_of_2(below) + slopes_of_the_paper(2 * below)[0::2][: heads - below]


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20])
def test_alibi_falls_with_the_distance_by_the_slopes_of_the_paper(heads):
    bias = run(lambda: alibi(heads)(*masks.grid(3, T, 1)))
    expected = [
        [[-slope * abs(1 + q - k) for k in range(T)] for q in range(3)]
        for slope in slopes_of_the_paper(heads)
    ]
    assert_allclose(bias, expected, rtol=1e-6)


def test_alibi_counts_from_the_offset_of_each_row():
    together, *alone = run(
        lambda *offsets: [alibi(3)(*masks.grid(2, T, offset)) for offset in offsets],
        np.array([0, 3]),
        0,
        3,
    )
    assert_array_equal(together, np.stack(alone))
