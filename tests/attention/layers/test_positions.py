"""Positions that are learned: tables of rows, and biases by distance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.attention import LearnedPositions, RelativeBias, dot_product_attention, masks
from tests.attention.compiled import apply, init, normal, run

B, T, D = 2, 5, 14


def t5_bucket(distance, bidirectional, num_buckets, max_distance):
    """T5's `_relative_position_bucket` for one distance, with the logarithm done in whole numbers,
    free of rounding.
    """
    bucket = 0
    if bidirectional:
        num_buckets //= 2
        bucket += num_buckets if distance > 0 else 0
        size = abs(distance)
    else:
        size = -min(distance, 0)
    exact = num_buckets // 2
    if size < exact:
        return bucket + size
    # floor(log(size / exact) / log(max_distance / exact) * wide) is the most m with:
    wide = num_buckets - exact
    reached = [m for m in range(wide) if size**wide * exact**m >= max_distance**m * exact**wide]
    return bucket + exact + max(reached)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 50), (6, 9)])
def test_relative_buckets_are_those_of_t5(bidirectional, num_buckets, max_distance):
    module = RelativeBias(1, num_buckets, max_distance, bidirectional)
    distances = np.arange(-300, 301)
    expected = [
        t5_bucket(int(distance), bidirectional, num_buckets, max_distance) for distance in distances
    ]
    np.testing.assert_array_equal(jax.jit(module.bucket)(jnp.asarray(distances)), expected)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_looks_up_key_minus_query_in_every_head(bidirectional):
    module = RelativeBias(3, bidirectional=bidirectional)
    variables = init(module)
    table = np.asarray(variables["params"]["embedding"])
    assert table.shape == (32, 3)
    bias = jax.jit(lambda variables: module.apply(variables)(*masks.grid(2, T, 1)))(variables)
    buckets = [[t5_bucket(k - q - 1, bidirectional, 32, 128) for k in range(T)] for q in range(2)]
    np.testing.assert_array_equal(bias, np.moveaxis(table[np.array(buckets)], -1, 0))


def test_relative_bias_counts_from_the_offset_of_each_row():
    module = RelativeBias(3)
    bias = lambda variables, *offsets: [
        module.apply(variables)(*masks.grid(2, T, offset)) for offset in offsets
    ]
    together, *alone = run(bias, init(module), np.array([0, 3]), 0, 3)
    np.testing.assert_array_equal(together, np.stack(alone))


def test_learned_positions_are_rows_of_their_table_from_the_offset_on():
    module = LearnedPositions(11, 7)
    variables = init(module, 3)
    table = np.asarray(variables["params"]["embedding"])
    assert table.shape == (11, 7)
    np.testing.assert_array_equal(apply(module, variables, 3), table[:3])
    np.testing.assert_array_equal(apply(module, variables, 3, 8), table[8:])
    np.testing.assert_array_equal(apply(module, variables, 3, np.array(5)), table[5:8])


@pytest.mark.parametrize("offset", [-2, 9])
def test_under_jit_positions_outside_the_table_are_nan(offset):
    module = LearnedPositions(11, 7)
    variables = init(module, 3)
    vectors = jax.jit(lambda offset: module.apply(variables, 3, offset))(offset)
    is_outside = (offset + np.arange(3) < 0) | (offset + np.arange(3) >= 11)
    np.testing.assert_array_equal(np.isnan(vectors), np.broadcast_to(is_outside[:, None], (3, 7)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_relative_bias_has_the_dtype_asked_for_and_is_added_to_scores(dtype):
    module = RelativeBias(3, param_dtype=dtype)
    variables = init(module)
    assert variables["params"]["embedding"].dtype == dtype
    query = normal(0, B, T, 3, D)
    weights = run(
        lambda variables: (
            dot_product_attention(query, query, query, bias=module.apply(variables)).weights
        ),
        variables,
    )
    bias = np.float32(run(lambda variables: module.apply(variables)(*masks.grid(T, T)), variables))
    expected = run(
        lambda bias: dot_product_attention(query, query, query, bias=bias).weights, bias[None]
    )
    np.testing.assert_allclose(weights, expected, atol=1e-6)
