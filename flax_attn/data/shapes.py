"""The shapes task: a signal of two triangles and two boxes, to be levelled pairwise.

Every example is a signal over 100 grid points that holds two triangles and two boxes of random
heights. The target is the same signal with the two heights of each pair replaced by their mean, so
every shape has to look across the signal for its partner. The task is François Fleuret's. The
sizes are his:

    center ~ U(5.5, 94.5),  height ~ U(1, 25),  width ~ U(5, 11),  noise ~ U(-0.15, 0.15)

A draw is rejected when two shapes collide or when the heights that are averaged are too close to
tell apart. Everything is pure JAX: `generate` can be jitted with `num_examples` static, mapped over
keys, and called in a scan.
"""

import functools
import itertools
import math
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

Sizes = tuple[int | Int[Array, ""], int | Int[Array, ""]]
LENGTH = 100
CENTER_RANGE = (5.5, 94.5)
HEIGHT_RANGE = (1.0, 25.0)
WIDTH_RANGE = (5.0, 11.0)
NOISE = 0.3  # the noise spans 0.3, that is +-0.15, so its variance is 0.3^2 / 12 = 0.0075
MIN_DIFFERENCE = 4.0
MAX_EXAMPLES = 10_000_000  # in one call, whose random words are counted in 32 bits

# Share of proposals that are accepted, over 8 million of them. It sizes the first block of
# proposals and nothing else.
ACCEPTANCE = {
    ("by_shape", "triangles"): 0.1654,
    ("by_shape", "both"): 0.1150,
    ("by_location", "triangles"): 0.1375,
    ("by_location", "both"): 0.1375,
}


class ShapeBatch(NamedTuple):
    """Parameters of the four shapes of `n` signals, in grid points and signal units.

    Triangles are at 0 and 1, boxes at 2 and 3.
    """

    centers: Float[Array, "n 4"]
    heights: Float[Array, "n 4"]
    widths: Float[Array, "n 4"]


class Examples(NamedTuple):
    """Signals with their targets, in signal units, and the shapes in the inputs."""

    inputs: Float[Array, "n 100 1"]
    targets: Float[Array, "n 100 1"]
    shapes: ShapeBatch


def propose(key: Key[Array, ""], number: int | Int[Array, ""], most: int) -> ShapeBatch:
    """Draws `number` shapes without any rule, and rows of anything from there to `most`.

    Centres, heights and widths are independent and uniform over their ranges.
    """
    ranges = (CENTER_RANGE, HEIGHT_RANGE, WIDTH_RANGE)
    words = _words(key, 12 * number, 12 * most)  # (12 most,)
    parts = [jax.lax.dynamic_slice(words, (4 * i * number,), (4 * most,)) for i in range(3)]
    uniform = [(part.reshape(most, 4) >> 8).astype(jnp.float32) / 2**24 for part in parts]
    return ShapeBatch(*(low + (high - low) * u for (low, high), u in zip(ranges, uniform)))


def collide(shapes: ShapeBatch) -> Bool[Array, " n"]:
    """Finds where two shapes share a grid point, each also covering the point before its first.

    A triangle is positive where `|t - c| < w/2 + 1/2` and a box where `|t - c| < w/2`, so a support
    is an interval of grid points and two of them meet when neither ends before the other begins.
    Nothing is rasterised.
    """
    reach = shapes.widths / 2 + jnp.array([[0.5, 0.5, 0.0, 0.0]])  # (n, 4)
    first = jnp.floor(shapes.centers - reach)  # the point before the first one covered
    last = jnp.ceil(shapes.centers + reach) - 1  # (n, 4)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    meet = [(first[:, i] <= last[:, j]) & (first[:, j] <= last[:, i]) for i, j in pairs]
    return functools.reduce(jnp.logical_or, meet)  # (n,)


def is_left(shapes: ShapeBatch) -> Bool[Array, "n 4"]:
    """Finds the two shapes of each signal whose centres come first.

    Every pair is compared once. XLA may compute a centre twice, and round it differently, so a
    centre must not be compared with itself.
    """
    number_before = [jnp.zeros(len(shapes.centers), int)] * 4  # (n,) each
    for i, j in itertools.combinations(range(4), 2):
        i_is_first = shapes.centers[:, i] < shapes.centers[:, j]
        number_before[j] += i_is_first
        number_before[i] += ~i_is_first
    return jnp.stack(number_before, axis=-1) < 2  # (n, 4)


def target_heights(shapes: ShapeBatch, task: str) -> Float[Array, "n 4"]:
    """Averages heights over each shape's group: its kind (`by_shape`) or side (`by_location`)."""
    if task == "by_shape":
        return jnp.repeat(shapes.heights.reshape(-1, 2, 2).mean(axis=-1), 2, axis=-1)  # (n, 4)
    left = is_left(shapes)
    mean_left = jnp.where(left, shapes.heights, 0).sum(axis=-1, keepdims=True) / 2  # (n, 1)
    mean_right = jnp.where(left, 0, shapes.heights).sum(axis=-1, keepdims=True) / 2  # (n, 1)
    return jnp.where(left, mean_left, mean_right)  # (n, 4)


def is_valid(
    shapes: ShapeBatch, *, task: str = "by_shape", height_rule: str = "triangles"
) -> Bool[Array, " n"]:
    """Finds examples among proposals: no collision, and heights that differ by more than 4.

    `by_shape` compares the two triangles, and with `height_rule="both"` the two boxes too;
    `by_location` compares the mean height of the left two shapes with that of the right two, under
    either rule.
    """
    check_names(task, height_rule)
    heights = shapes.heights
    if task == "by_location":
        levels = target_heights(shapes, task)  # (n, 4)
        differ = levels.max(axis=-1) - levels.min(axis=-1) > MIN_DIFFERENCE  # (n,)
    else:
        differ = jnp.abs(heights[:, 0] - heights[:, 1]) > MIN_DIFFERENCE  # (n,)
        if height_rule == "both":
            differ &= jnp.abs(heights[:, 2] - heights[:, 3]) > MIN_DIFFERENCE
    return differ & ~collide(shapes)


def _block_size(num_examples: int, task: str, height_rule: str) -> int:
    """Returns so many proposals that the first block nearly always suffices."""
    # four standard deviations of the count above its mean, and a few for the small ones
    most = num_examples + 4 * math.sqrt(num_examples) + 8
    return math.ceil(most / ACCEPTANCE[task, height_rule])


def sample(
    key: Key[Array, ""], sizes: Sizes, most: tuple[int, int], task: str, height_rule: str
) -> ShapeBatch:
    """Draws valid sets of shapes by rejection, and rows of anything from there to `most`.

    `sizes` are the number of examples and that of proposals in a block. Blocks are drawn until
    every row is filled with the accepted proposals, in the order in which they were drawn. One
    program draws splits of several `sizes`.
    """
    (num_examples, block_size), (most_rows, most_proposals) = sizes, most
    rows, numbers = jnp.arange(most_rows), jnp.arange(most_proposals)

    def fill(carry: tuple[Array, Array, ShapeBatch]) -> tuple[Array, Array, ShapeBatch]:
        key, count, filled = carry
        key, block_key = jax.random.split(key)
        proposals = propose(block_key, block_size, most_proposals)
        valid = is_valid(proposals, task=task, height_rule=height_rule) & (numbers < block_size)
        # row i takes the (i - count + 1)-th valid one
        source = jnp.searchsorted(jnp.cumsum(valid), rows - count + 1)  # (rows,)
        fresh = (rows >= count) & (source < block_size)  # (rows,)
        inside = jnp.minimum(source, most_proposals - 1)
        merge = lambda new, old: jnp.where(fresh[:, None], new[inside], old)
        return key, count + valid.sum(dtype=count.dtype), jax.tree.map(merge, proposals, filled)

    empty = ShapeBatch(*(jnp.zeros((most_rows, 4)) for _ in ShapeBatch._fields))
    is_short = lambda carry: carry[1] < num_examples
    return jax.lax.while_loop(is_short, fill, (key, jnp.int32(0), empty))[2]


@jax.jit  # traced once for inputs and targets
def draw(shapes: ShapeBatch, heights: Float[Array, "n 4"]) -> Float[Array, "n 100"]:
    """Rasterises the shapes at the given heights, without noise: the maximum over the four.

    A triangle is `relu(h - relu(|t - c| - 1/2) * 2h/w)`; a box is `h` where `|t - c| < w/2`.
    """
    time = jnp.arange(LENGTH, dtype=heights.dtype)[None, :]  # (1, 100)
    signals = []
    for i in range(4):
        sizes = (shapes.centers, heights, shapes.widths)
        center, height, width = (array[:, i : i + 1] for array in sizes)  # (n, 1) each
        distance = jnp.abs(time - center)  # (n, 100)
        triangle = jax.nn.relu(height - jax.nn.relu(distance - 0.5) * 2 * height / width)
        box = jnp.where(2 * distance < width, height, 0.0)  # (n, 100)
        signals.append(triangle if i < 2 else box)
    return functools.reduce(jnp.maximum, signals)


def generate(
    key: Key[Array, ""],
    num_examples: int,
    *,
    task: str = "by_shape",
    height_rule: str = "triangles",
) -> Examples:
    """Generates exactly `num_examples` examples of the shapes task.

    Args:
        key: a typed key, `jax.random.key(seed)`; the same key gives the same examples.
        num_examples: how many; static under `jax.jit`.
        task: `"by_shape"` levels the triangles and the boxes, each among themselves;
            `"by_location"` levels the two leftmost shapes and the two rightmost, of any kind.
        height_rule: which heights must differ by more than 4 under `"by_shape"`. `"triangles"`, the
            default, tests the triangles alone: the published generator compares them twice and
            never the boxes, and published figures come from such data. `"both"` tests the boxes
            too, as was meant.

    Returns:
        Inputs and targets of shape `(n, 100, 1)` in signal units, and the shapes' centres, heights
        and widths.

    Raises a ValueError for an unknown `task` or `height_rule`, or a number of examples below 0 or
    above `MAX_EXAMPLES`.
    """
    if not 0 <= num_examples <= MAX_EXAMPLES:
        raise ValueError(f"expected num_examples to {MAX_EXAMPLES:,}, got {num_examples}")
    check_names(task, height_rule)
    sizes = num_examples, _block_size(num_examples, task, height_rule)
    return _generate(key, sizes, sizes, task, height_rule)


def _generate(
    key: Key[Array, ""], sizes: Sizes, most: tuple[int, int], task: str, height_rule: str
) -> Examples:
    """Does what `generate` does, with arguments and rows as in `sample`."""
    sample_key, noise_key = jax.random.split(key)
    shapes = sample(sample_key, sizes, most, task, height_rule)
    # One random word a grid point serves both signals: 16 bits each, that is noise in steps of
    # 5e-6, near the spacing of float32 at the height of a shape. The random numbers are most of the
    # work, so this nearly halves it.
    words = _words(noise_key, LENGTH * sizes[0], LENGTH * most[0]).reshape(most[0], LENGTH)
    noise = lambda bits: (bits.astype(jnp.float32) + 0.5) * (NOISE / 2**16) - NOISE / 2
    inputs = draw(shapes, shapes.heights) + noise(words >> 16)  # (n, 100)
    targets = draw(shapes, target_heights(shapes, task)) + noise(words & 0xFFFF)  # (n, 100)
    return Examples(inputs[..., None], targets[..., None], shapes)  # (n, 100, 1), (n, 100, 1)


def splits(
    seed: int,
    *,
    num_train: int,
    num_test: int,
    valid_fraction: float = 0.2,
    task: str = "by_shape",
    height_rule: str = "triangles",
) -> dict[str, Examples]:
    """Generates `train`, `valid` and `test`, where `valid` is the given share of `num_train`."""
    num_valid = round(num_train * valid_fraction)
    sizes = {"train": num_train - num_valid, "valid": num_valid, "test": num_test}
    names = {"task": task, "height_rule": height_rule}
    return _generate_splits(np.int64(operator.index(seed)), tuple(sizes.items()), **names)


@functools.partial(jax.jit, static_argnames=("sizes", "task", "height_rule"))
def _generate_splits(
    seed: Array, sizes: tuple[tuple[str, int], ...], *, task: str, height_rule: str
) -> dict[str, Examples]:
    """Generates the examples of each split, whose name and size `sizes` gives, by its own key.

    All are drawn by the same equations, of the largest, which are compiled once.
    """
    keys = jax.random.split(jax.random.key(seed), len(sizes))  # a key for each split
    pairs = [(number, _block_size(number, task, height_rule)) for _, number in sizes]
    make = lambda one: _generate(one[0], (one[1], one[2]), max(pairs), task, height_rule)
    drawn = jax.lax.map(make, (keys, *map(jnp.array, zip(*pairs))))  # (splits, most, ...)
    cut = lambda i, number: jax.tree.map(lambda leaf: leaf[i, :number], drawn)
    return {name: cut(i, number) for i, (name, number) in enumerate(sizes)}


def _words(key: Key[Array, ""], total: int | Int[Array, ""], most: int) -> UInt32[Array, " most"]:
    """Random 32-bit words, as `jax.random.bits`, with both words of every Threefry block used.

    That is half the work, and on CPU five times faster, for XLA vectorises this form at every size.
    Those from `total`, an even number, to `most` are not random.
    """
    counts = jnp.arange(most // 2, dtype=jnp.uint32)
    half = jnp.uint32(total // 2)
    blocks = jnp.concatenate([counts, counts + half])  # (most,)
    words = threefry_2x32(jax.random.bits(key, (2,), jnp.uint32), blocks)  # (most,)
    if isinstance(total, int):
        return words
    return jax.lax.dynamic_update_slice(words, words[most // 2 :], (half,))


def check_names(task: str, height_rule: str) -> None:
    """Raises a ValueError for an unknown task or height rule."""
    if (task, height_rule) not in ACCEPTANCE:
        known, got = sorted(ACCEPTANCE), (task, height_rule)
        raise ValueError(f"expected task and height_rule of {known}, got {got}")
