import zlib

import numpy as np
import pytest

from flax_attn.data import ngrams


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the stock market", "the_stock stock_market"),
        ("stocks", ""),
        ("", ""),
        ("a b a b", "a_b b_a a_b"),
    ],
)
def test_every_word_is_paired_with_the_next(text, expected):
    assert ngrams.pairs(text) == expected


def test_the_ngrams_of_a_word_are_its_parts_of_3_to_6_characters_with_its_marks():
    (row,) = ngrams.character_ngrams(["cats"], 1_000)
    # and never <cats>, the word itself
    parts = ["<ca", "cat", "ats", "ts>", "<cat", "cats", "ats>", "<cats", "cats>"]
    np.testing.assert_array_equal(
        row, [*[1 + zlib.crc32(part.encode()) % 999 for part in parts], 0, 0, 0]
    )
    assert row.dtype == np.uint16


def test_a_long_word_keeps_some_evenly_and_a_short_one_may_have_none():
    rows = ngrams.character_ngrams(["incomprehensibilities", "a", ""], 50)
    assert rows.shape == (3, ngrams.A_WORD)
    assert (rows[0] > 0).all()
    ends = [1 + zlib.crc32(part) % 49 for part in (b"<in", b"ities>")]
    assert [rows[0, 0], rows[0, -1]] == ends
    np.testing.assert_array_equal(rows[1:], 0)
    assert ngrams.character_ngrams([], 50).shape == (0, ngrams.A_WORD)
