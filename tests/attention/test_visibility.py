"""Which blocks of queries and keys can meet."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as of
from hypothesis import settings
from hypothesis import strategies as st

from flax_attn.attention import masks
from flax_attn.attention.visibility import make_visibility
from tests.attention.compiled import run
from tests.attention.forms.test_blockwise import HEADS, LIMITS, SEGMENTS, K, Q, visibility_of

VISIBLE = LIMITS | {
    "packed the other way round": {
        "query_segments": SEGMENTS[:, :Q][:, ::-1],
        "key_segments": SEGMENTS,
    },
    "a mask function at an offset": {"mask": masks.causal, "query_offset": np.array([4, -2])},
    "a mask of heads": {"mask": np.random.default_rng(22).random((HEADS, 1, K))[None] < 0.1},
}


def visible_blocks(visible, *sizes):
    return visible.visible_blocks(*visible.all_indices().in_blocks(*sizes, visible.shape[-1]))


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (1, 7)])
@pytest.mark.parametrize("name", VISIBLE)
def test_visible_blocks_hold_every_visible_pair_and_few_others(name, sizes):
    def look():
        visible = visibility_of(VISIBLE[name], None)
        mask, _ = visible.block()
        mask = jnp.broadcast_to(True if mask is None else mask, visible.shape)
        return mask, visible_blocks(visible, *sizes)

    mask, visible = run(look)
    mask = mask.any(axis=(0, 1))
    starts = [range(0, length, size) for length, size in zip(mask.shape, sizes)]
    expected = [
        [mask[q : q + sizes[0], k : k + sizes[1]].any() for k in starts[1]] for q in starts[0]
    ]
    if "segments" in name or "packed" in name:  # the least and the largest id of a block decide
        assert (visible >= expected).all()
        assert visible.sum() < visible.size
    else:
        np.testing.assert_array_equal(visible, expected)


def test_the_longest_length_of_the_batch_bounds_the_blocks():
    visible = make_visibility((3, 16, 16), key_lengths=np.array([3, 9, 0]))
    np.testing.assert_array_equal(visible_blocks(visible, 4, 4).sum(axis=-1), [3, 3, 3, 3])


NUM_QUERIES, NUM_KEYS, SIZES = 7, 9, (3, 4)
bounds = st.none() | st.integers(0, 12)
lengths = st.none() | st.tuples(st.integers(0, 11), st.integers(0, 11))


@settings(max_examples=80, deadline=None, derandomize=True)
@of(bounds, bounds, st.booleans(), st.integers(-5, 12), lengths, lengths, lengths)
def test_masks_and_what_they_leave_are_those_of_loops(
    left, right, causal, offset, query_lengths, key_lengths, prefix_lengths
):
    def is_visible(row, q, k):
        distance = k - (q + offset)
        is_near = (
            (left is None or -distance <= left)
            and (right is None or distance <= right)
            and (not causal or distance <= 0)
        )
        in_prefix = prefix_lengths is not None and k < prefix_lengths[row]
        return (
            (is_near or in_prefix)
            and (query_lengths is None or q < query_lengths[row])
            and (key_lengths is None or k < key_lengths[row])
        )

    shape = 2, NUM_QUERIES, NUM_KEYS
    expected = np.array([is_visible(*place) for place in np.ndindex(shape)]).reshape(shape)
    of_rows = lambda rows: None if rows is None else jnp.array(rows)
    if not causal and left is right is None:
        prefix_lengths = None
    visible = make_visibility(
        shape,
        causal=causal,
        window=(left, right),
        query_offset=offset,
        prefix_lengths=of_rows(prefix_lengths),
        query_lengths=of_rows(query_lengths),
        key_lengths=of_rows(key_lengths),
    )
    mask, _ = visible.block()
    mask = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
    np.testing.assert_array_equal(mask, expected)
    has_key, has_query = visible.reachable()
    np.testing.assert_array_equal(np.broadcast_to(has_key, shape[:2]), expected.any(axis=2))
    np.testing.assert_array_equal(np.broadcast_to(has_query, shape[::2]), expected.any(axis=1))
    padded = np.pad(expected.any(axis=0), ((0, -NUM_QUERIES % 3), (0, -NUM_KEYS % 4)))
    blocks = padded.reshape(-1, SIZES[0], padded.shape[1] // SIZES[1], SIZES[1]).any(axis=(1, 3))
    assert (np.asarray(visible_blocks(visible, *SIZES)) >= blocks).all()
