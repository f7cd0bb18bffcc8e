"""Splits hold every row once, and each class in its share."""

import numpy as np
import pytest

from flax_attn.data.raw import Columns, at_random, by_class, complete, stratified
from flax_attn.data.sets import InputSeries
from flax_attn.errors import UsageError


@pytest.mark.parametrize("counts", [[100, 37, 63], [1, 1, 1, 1], [3, 0, 200], [7600]])
@pytest.mark.parametrize("shares", [(0.7, 0.15, 0.15), (0.9, 0.1), (1.0,)])
def test_parts_hold_every_row_once_with_each_class_in_its_share(counts, shares):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = stratified(labels, shares, 5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for part, share in zip(parts, shares):
        assert abs(len(part) - share * len(labels)) < 1
        for label, count in enumerate(counts):
            assert abs((labels[part] == label).sum() - share * count) <= 1.5


def test_the_seed_decides_which_rows():
    labels = np.zeros(100, int)
    one, other = stratified(labels, (0.5, 0.5), 1)[0], stratified(labels, (0.5, 0.5), 2)[0]
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(one, stratified(labels, (0.5, 0.5), 1)[0])


def test_the_tutorials_split():
    labels = np.repeat(np.arange(4), 1900)
    sizes = [len(part) for part in stratified(labels, (0.7, 0.15, 0.15), 42)]
    assert sizes == [5_320, 1_140, 1_140]


def test_a_class_has_a_row_for_each_split_at_least():
    labels, thirds = ["cat"] * 3 + ["dog"] * 3, (1 / 3, 1 / 3)
    parts = by_class(labels, thirds, 0)
    assert list(parts) == ["train", "valid", "test"]
    assert [[labels[i] for i in rows] for rows in parts.values()] == [["cat", "dog"]] * 3
    assert list(by_class(labels[:-1], thirds, 0, has_test=True)) == ["train", "valid"]
    with pytest.raises(UsageError, match="2 of 'dog'"):
        by_class(labels[:-1], thirds, 0)


def test_parts_at_random_have_each_row_once_in_ascending_order():
    parts = at_random(20, (0.25, 0.1), 7)
    assert [len(part) for part in parts] == [5, 2, 13]
    assert sorted(np.concatenate(parts).tolist()) == list(range(20))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert parts[0].tolist() != at_random(20, (0.25, 0.1), 8)[0].tolist()


def test_no_series_is_in_two_splits():
    splits = InputSeries(num_train=11, num_valid=5, num_test=5, length=7).load(None).splits
    sizes = {name: len(rows.inputs) for name, rows in splits.items()}
    assert sizes == {"train": 11, "valid": 5, "test": 5}
    everything = np.concatenate([rows.inputs.ravel() for rows in splits.values()])
    assert len(np.unique(everything)) > 0.99 * everything.size


def test_all_texts_train_or_validate_where_the_test_is_given():
    own, labels = [f"text {i}" for i in range(40)], ["a", "b"] * 20
    given = {"train": Columns(own, labels), "test": Columns(["another"], ["a"])}
    splits = complete(given, "classes", 0.1, 0.3, 0)
    assert splits["test"] == given["test"]
    assert [len(splits[name].inputs) for name in ("train", "valid")] == [36, 4]
    assert sorted(splits["train"].inputs + splits["valid"].inputs) == sorted(own)
