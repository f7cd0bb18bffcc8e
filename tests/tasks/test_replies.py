"""What a reply to a page holds: classes, arrays and numbers."""

import numpy as np
import pytest

from flax_attn.tasks import replies


@pytest.mark.parametrize(("count", "is_whole"), [(3, True), (1_000, True), (1_001, False)])
def test_a_reply_names_the_likeliest_classes_and_has_all_of_a_thousand(count, is_whole):
    shares = np.linspace(0, 1, count, dtype=np.float32)
    reply = replies.classified(shares, [f"class {i}" for i in range(count)])
    assert len(reply["classes"]) == min(count, 12)
    assert reply["classes"][0] == [f"class {count - 1}", 1.0]
    assert (reply["outputs"] is not None) is is_whole
    if is_whole:
        np.testing.assert_array_equal(replies.numbers_of(reply["outputs"]), shares)


def test_numbers_have_five_digits_that_count():
    assert replies.numbers(np.array([[123456.7, 1 / 3], [0, -1e-7]])) == [
        [123460.0, 0.33333],
        [0.0, -1e-7],
    ]


def test_weights_have_the_axes_of_heads_queries_and_keys():
    """Pooling has one head and one query; the rows of other weights of two axes are queries."""
    assert replies.by_heads("pooling", np.zeros(4)).shape == (1, 1, 4)
    assert replies.by_heads("attention", np.zeros((3, 4))).shape == (1, 3, 4)
    assert replies.by_heads("attention", np.zeros((2, 3, 4))).shape == (2, 3, 4)
    assert replies.by_heads("attention", np.zeros((2, 5, 3, 4))).shape == (10, 3, 4)


def test_a_text_that_is_padded_is_sent_without_its_padding():
    looked = {"attention": {"own": np.arange(16.0).reshape(1, 1, 4, 4)}}
    reply = replies.attended(looked, padded=4, length=2)
    assert replies.numbers_of(reply["attention"]["own"]).tolist() == [[[0, 1], [4, 5]]]
    assert reply["scores"] is None
    last = replies.attended(looked | {"last": np.int32(2)}, padded=4, length=3)
    assert replies.numbers_of(last["attention"]["own"]).tolist() == [[[8, 9, 10]]]
