"""Sequences of different lengths in batches of a few lengths.

Little is then padding, and little is compiled.

Rows are sorted by length and cut into buckets; a batch is of one bucket and as long as the longest
row in it. Which bucket a step takes depends on the data's seed and the epoch, shared by the seeds
of a run; which rows of it on the run's seed too.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from flax_attn.types import Batch, Tree


class Bucket(NamedTuple):
    """The rows from `first` to before `last`, none longer than `length`."""

    first: int
    last: int
    length: int


def make_buckets(lengths: Int[np.ndarray, " n"], num_buckets: int) -> tuple[Bucket, ...]:
    """Makes at most `num_buckets` buckets with the least padding possible.

    Lengths are in ascending order. One bucket takes rows in any order.
    """
    if num_buckets == 1:
        return (Bucket(0, len(lengths), max(int(lengths.max()), 1)),)
    distinct, counts = np.unique(np.maximum(lengths, 1), return_counts=True)  # (lengths,)
    ends = np.concatenate([[0], np.cumsum(counts)])  # (lengths + 1,)
    # of a bucket of lengths i to j
    is_bucket = np.tri(len(distinct)).T > 0  # (i, j), True for i <= j
    size = np.where(is_bucket, (ends[1:] - ends[:-1, None]) * distinct, np.inf)  # (i, j)
    least, begins = size[0], []  # (j,): lengths up to j in one bucket
    for _ in range(min(num_buckets, len(distinct)) - 1):
        sizes = least[:-1, None] + size[1:]  # the last bucket begins with length i + 1
        begins.append(1 + sizes.argmin(axis=0))  # (j,): where the last bucket begins
        least = sizes.min(axis=0)  # (j,)
    cuts = [len(distinct)]
    for begin in reversed(begins):
        cuts.insert(0, int(begin[cuts[0] - 1]))
    return tuple(
        Bucket(int(ends[i]), int(ends[j]), int(distinct[j - 1]))
        for i, j in itertools.pairwise([0, *cuts])
    )


def plan(
    key: Key[Array, ""],
    epoch: Array,
    *,
    buckets: tuple[Bucket, ...],
    batch_size: int,
    num_steps: int,
    data_seed: int,
    shuffle: bool = True,
) -> tuple[Int[Array, " steps"], Int[Array, "steps batch"]]:
    """Lays out an epoch: for each step the number of its bucket and the rows of its batch.

    A row is -1 where a bucket has no more.

    Every row comes once, and again in further passes where there are more steps than that takes.
    Without `shuffle` rows and buckets come in their order.
    """
    steps_a_pass = count_steps(buckets, batch_size)
    order_key = jax.random.fold_in(jax.random.key(data_seed), epoch)  # shared by the seeds

    def one_pass(number: int) -> tuple[Array, Array]:
        keys = jax.random.split(jax.random.fold_in(key, number), len(buckets))
        rows = [_rows(key, bucket, batch_size, shuffle) for key, bucket in zip(keys, buckets)]
        numbers = jnp.repeat(
            jnp.arange(len(buckets)),
            np.array([len(of_bucket) for of_bucket in rows]),
            total_repeat_length=steps_a_pass,
        )
        order = jnp.arange(steps_a_pass)  # (steps,)
        if shuffle:
            order = jax.random.permutation(jax.random.fold_in(order_key, number), steps_a_pass)
        return numbers[order], jnp.concatenate(rows)[order]  # (steps,), (steps, batch)

    passes = [one_pass(number) for number in range(-(-num_steps // steps_a_pass))]
    numbers, rows = (jnp.concatenate(parts)[:num_steps] for parts in zip(*passes))
    return numbers, rows


def count_steps(buckets: tuple[Bucket, ...], batch_size: int) -> int:
    """Counts the steps of one pass over all rows."""
    return sum(-(-(bucket.last - bucket.first) // batch_size) for bucket in buckets)


def fetch(data: Tree, rows: Int[Array, " batch"], length: int) -> Batch:
    """Returns the batch of the given rows, cut to a length; rows of -1 are masked out."""
    batch = jax.tree.map(lambda array: array[jnp.maximum(rows, 0)], data)  # (batch, ...)
    return cut(batch, length) | {"mask": rows >= 0}  # a row of -1 is row 0, masked


def cut(batch: Batch, length: int) -> Batch:
    """Cuts the sequences of a batch, and arrays that go with their elements, to a length."""
    return jax.tree.map(lambda array: array[:, :length] if array.ndim > 1 else array, batch)


def _rows(key: Array, bucket: Bucket, batch_size: int, shuffle: bool) -> Array:
    rows = jnp.arange(bucket.first, bucket.last)  # (rows,)
    rows = jax.random.permutation(key, rows) if shuffle else rows
    return jnp.pad(rows, (0, -len(rows) % batch_size), constant_values=-1).reshape(-1, batch_size)
