"""Inputs are padded to few sizes, and no row or token of them is lost."""

import numpy as np
import pytest

from flax_attn.models.sizes import batches, lengths_to, longer, rounded


@pytest.mark.parametrize(("length", "expected"), [(1, 16), (16, 16), (17, 32), (1000, 1024)])
def test_a_text_is_padded_to_a_power_of_two_from_16_on(length, expected):
    assert rounded(length) == expected


def test_padding_is_behind_what_has_a_number_for_each_token():
    ones = {"tokens": np.ones((1, 2)), "lengths": np.ones(1), "ngrams": np.ones((1, 2, 3))}
    padded = longer(ones, 4)
    assert {name: own.shape for name, own in padded.items()} == {
        "tokens": (1, 4),
        "lengths": (1,),
        "ngrams": (1, 4, 3),
    }
    assert padded["tokens"].tolist() == [[1, 1, 0, 0]]
    assert padded["ngrams"][0, :, 0].tolist() == [1, 1, 0, 0]


def test_lengths_are_those_that_texts_are_padded_to():
    for most in (1, 16, 17, 100, 128):
        assert lengths_to(most) == sorted({rounded(length) for length in range(1, most + 1)})


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 16), (64, 16), (65, 64), (130, 64)])
def test_batches_hold_every_row_once_and_are_filled_with_the_last(count, size):
    inputs = {"tokens": np.arange(2 * count).reshape(count, 2), "lengths": np.arange(count)}
    real = []
    for number, batch in batches(inputs):
        assert len(batch["tokens"]) == len(batch["lengths"]) == size
        assert (batch["lengths"][number:] == count - 1).all()
        real += batch["lengths"][:number].tolist()
    assert real == list(range(count))
