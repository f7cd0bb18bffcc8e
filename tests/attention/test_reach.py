"""Which blocks of queries and keys can meet."""

import numpy as np
import pytest

from flax_attn.attention import reach
from flax_attn.attention.pairs import Pairs
from tests.attention.test_streaming import HEADS, LIMITS, SEGMENTS, K, Q, pairs_of

VISIBLE = LIMITS | {
    "packed the other way round": {
        "query_segments": SEGMENTS[:, :Q][:, ::-1],
        "key_segments": SEGMENTS,
    },
    "a mask of heads": {"mask": np.random.default_rng(22).random((HEADS, 1, K))[None] < 0.1},
}


@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (1, 7)])
@pytest.mark.parametrize("name", VISIBLE)
def test_visible_blocks_hold_every_visible_pair_and_few_others(name, sizes):
    pairs = pairs_of(VISIBLE[name], None)
    mask = pairs.whole().mask
    mask = np.broadcast_to(True if mask is None else mask, pairs.shape).any(axis=(0, 1))
    starts = [range(0, length, size) for length, size in zip(mask.shape, sizes)]
    expected = [
        [mask[q : q + sizes[0], k : k + sizes[1]].any() for k in starts[1]] for q in starts[0]
    ]
    visible = np.asarray(reach.visible_blocks(pairs, *sizes))
    if "segments" in name or "packed" in name:  # the least and the largest id of a block decide
        assert (visible >= expected).all()
        assert visible.sum() < visible.size
    else:
        np.testing.assert_array_equal(visible, expected)


def test_the_longest_length_of_the_batch_bounds_the_blocks():
    pairs = Pairs((3, 16, 16)).padded(None, np.array([3, 9, 0]))
    np.testing.assert_array_equal(reach.visible_blocks(pairs, 4, 4).sum(axis=-1), [3, 3, 3, 3])
