import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from flax_attn.attention import dot_product_attention, masks

Q, K = 3, 5


def integers(*values):
    return jnp.array(values, jnp.int32)


def test_grid_starts_at_the_offset():
    queries, keys = masks.grid(Q, K, 2)
    assert_array_equal(queries, [[2], [3], [4]])
    assert_array_equal(keys, [[0, 1, 2, 3, 4]])


def test_grid_takes_an_offset_a_row():
    queries, keys = masks.grid(Q, K, integers(0, 2))
    assert_array_equal(queries, [[[0], [1], [2]], [[2], [3], [4]]])
    assert keys.shape == (1, K)
    assert masks.grid(Q, K, jnp.zeros((2, 7), int))[0].shape == (2, 7, Q, 1)


WINDOWS = [(1, 0), (0, 1), (2, 1), (None, 1), (1, None), (None, None), (0, 0), (9, 2**40)]


@pytest.mark.parametrize(("left", "right"), WINDOWS)
@pytest.mark.parametrize("offset", [0, 2, np.int64(4), integers(0, 2)])
def test_windows_and_causality_count_from_the_offset(left, right, offset):
    grid = masks.grid(Q, K, offset)
    near = lambda q, k: (left is None or q - left <= k) and (right is None or k <= q + right)
    for mask, sees in (
        (masks.window(*grid, left, right), near),
        (masks.causal(*grid), lambda q, k: k <= q),
    ):
        rows = [
            [[sees(o + q, k) for k in range(K)] for q in range(Q)]
            for o in np.ravel(offset).tolist()
        ]
        assert_array_equal(mask, rows if np.ndim(offset) else rows[0])


def test_from_lengths_allows_the_first_keys_of_each_row():
    mask = masks.from_lengths(integers(0, 2, 5, 7), K)
    assert_array_equal(mask, [[[k < n for k in range(K)]] for n in (0, 2, 5, 7)])
    assert mask.dtype == bool
    assert masks.from_lengths(3, K).shape == (1, K)
    assert masks.from_lengths(jnp.ones((2, 7), int), K).shape == (2, 7, 1, K)


def test_from_query_lengths_allows_the_first_keys_of_each_query():
    lengths = [[1, 0, 4], [5, 2, 3]]
    mask = masks.from_query_lengths(jnp.array(lengths), K)
    assert_array_equal(mask, [[[k < n for k in range(K)] for n in row] for row in lengths])


def test_segments_keep_to_themselves():
    query, key = [[1, 1, 2], [3, 0, 3]], [[1, 2, 2, 1, 0], [0, 0, 3, 1, 3]]
    mask = masks.segments(jnp.array(query), jnp.array(key))
    assert_array_equal(
        mask, [[[q == k for k in keys] for q in queries] for queries, keys in zip(query, key)]
    )


@pytest.mark.parametrize("ids", [[7, 2**32 + 7], [7, -(2**32) + 7], [np.iinfo(np.uint64).max]])
def test_ids_that_jax_would_cut_are_refused(ids):
    """Two documents would be one, where the last 32 bits of their ids are equal."""
    ids, few = np.array(ids), np.array([-(2**31), 2**31 - 1])
    x = np.ones((1, 1, 1), np.float32)
    for call in (
        lambda ids: masks.segments.__wrapped__(ids, few),
        lambda ids: dot_product_attention(x, x, x, query_segments=ids[-1:], key_segments=few[:1]),
    ):
        with pytest.raises(ValueError, match="jax_enable_x64"):
            call(ids)
    assert_array_equal(masks.segments.__wrapped__(few, few), np.eye(2, dtype=bool))
    with jax.enable_x64(True):
        mask = masks.segments.__wrapped__(ids, ids)
    assert_array_equal(mask, np.eye(len(ids), dtype=bool))


def test_combine_is_all_of_the_masks_whichever_has_more_axes():
    assert masks.combine(None, None) is masks.combine() is None
    rows, early = masks.from_lengths(integers(2, 5), K), masks.causal(*masks.grid(Q, K))
    expected = [[[k < n and k <= q for k in range(K)] for q in range(Q)] for n in (2, 5)]
    assert_array_equal(masks.combine(rows, None, early), expected)
    assert_array_equal(masks.combine(early, rows), expected)
    near = masks.window(*masks.grid(Q, K), left=0)
    assert_array_equal(masks.combine(early, rows, near), np.asarray(expected) & np.asarray(near))


def test_any_of_is_one_of_the_masks_whichever_has_more_axes():
    rows, early = jnp.array([[True], [False]]), jnp.array([True, False, False])
    expected = [[True, True, True], [True, False, False]]
    assert_array_equal(masks.any_of(rows, early), expected)
    assert_array_equal(masks.any_of(early, rows, early), expected)
    assert masks.any_of(early, None) is None
    with pytest.raises(TypeError, match="boolean mask"):
        masks.any_of.__wrapped__(early, jnp.ones(3))
