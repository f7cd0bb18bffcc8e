import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.training import buckets

LENGTHS = np.array([0, 1, 1, 2, 2, 2, 3, 5, 5, 9])


def test_buckets_hold_every_row_once_and_none_is_longer_than_its_bucket():
    all_buckets = buckets.make_buckets(LENGTHS, 3)
    assert [bucket.first for bucket in all_buckets] == [
        0,
        *[bucket.last for bucket in all_buckets[:-1]],
    ]
    assert all_buckets[-1].last == len(LENGTHS)
    for bucket in all_buckets:
        assert LENGTHS[bucket.first : bucket.last].max() == bucket.length
    assert len(all_buckets) == 3
    assert buckets.make_buckets(LENGTHS, 1) == (buckets.Bucket(0, 10, 9),)
    assert buckets.make_buckets(np.array([4, 4, 4]), 3) == (buckets.Bucket(0, 3, 4),)


@pytest.mark.parametrize("num_buckets", [1, 3])
def test_texts_that_are_all_empty_have_one_position(num_buckets):
    empty = np.zeros(4, int)
    assert buckets.make_buckets(empty, num_buckets) == (buckets.Bucket(0, 4, 1),)


@pytest.mark.parametrize("num_buckets", [2, 3, 5])
def test_no_other_buckets_have_less_padding(num_buckets):
    tokens = sum(
        (bucket.last - bucket.first) * bucket.length
        for bucket in buckets.make_buckets(LENGTHS, num_buckets)
    )
    cuts = itertools.combinations(range(1, 10), num_buckets - 1)
    assert tokens == min(
        sum((j - i) * max(LENGTHS[j - 1], 1) for i, j in itertools.pairwise((0, *c, 10)))
        for c in cuts
    )


def lay_out(key, epoch, **changes):
    options = {
        "buckets": buckets.make_buckets(LENGTHS, 3),
        "batch_size": 4,
        "num_steps": 4,
        "data_seed": 7,
    } | changes
    numbers, rows = buckets.plan(jax.random.key(key), jnp.int32(epoch), **options)
    return np.asarray(numbers), np.asarray(rows)


def test_a_pass_takes_every_row_once_in_batches_of_its_bucket():
    all_buckets = buckets.make_buckets(LENGTHS, 3)
    numbers, rows = lay_out(0, 1, num_steps=buckets.count_steps(all_buckets, 4))
    assert sorted(rows[rows >= 0].tolist()) == list(range(10))
    for number, batch in zip(numbers, rows):
        real = batch[batch >= 0]
        assert ((all_buckets[number].first <= real) & (real < all_buckets[number].last)).all()


def test_a_further_pass_has_other_batches():
    _, rows = lay_out(0, 1, buckets=buckets.make_buckets(LENGTHS, 1), num_steps=6)
    one, other = ({frozenset(batch.tolist()) for batch in part} for part in np.split(rows, 2))
    assert frozenset.union(*one) == frozenset.union(*other) == {-1, *range(10)}
    assert one != other


def test_the_data_and_the_epoch_decide_the_buckets_the_seed_the_rows():
    one, other, later = (
        lay_out(0, 1, num_steps=12),
        lay_out(1, 1, num_steps=12),
        lay_out(0, 2, num_steps=12),
    )
    np.testing.assert_array_equal(one[0], other[0])
    assert not np.array_equal(one[1], other[1])
    assert not np.array_equal(one[0], later[0])


def test_without_shuffling_rows_come_in_their_order():
    numbers, rows = lay_out(
        0, 1, buckets=buckets.make_buckets(LENGTHS, 1), shuffle=False, num_steps=3
    )
    np.testing.assert_array_equal(rows, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]])
    np.testing.assert_array_equal(numbers, 0)


def test_a_batch_is_cut_to_its_length_and_masks_what_is_not_there():
    data = {
        "inputs": {"tokens": np.arange(30).reshape(10, 3), "lengths": np.arange(10)},
        "targets": np.arange(10),
    }
    batch = jax.jit(buckets.fetch, static_argnums=2)(data, np.array([4, 0, -1]), 2)
    np.testing.assert_array_equal(np.asarray(batch["inputs"]["tokens"])[:2], [[12, 13], [0, 1]])
    assert batch["mask"].tolist() == [True, True, False]


@pytest.mark.parametrize("num_steps", [2, 5, 9])
def test_any_number_of_steps_may_be_asked_for(num_steps):
    numbers, rows = lay_out(0, 1, num_steps=num_steps)
    assert numbers.shape == (num_steps,)
    assert rows.shape == (num_steps, 4)
