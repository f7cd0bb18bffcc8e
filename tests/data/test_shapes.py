import functools

import chex
import jax
import numpy as np
import pytest
from scipy import stats

from flax_attn.data import shapes
from flax_attn.data.sets.signals import Shapes

RULES = [("by_shape", "triangles"), ("by_shape", "both"), ("by_location", "triangles")]


def rasterise(centers, heights, widths):
    """The four signals of each example by the formulas, point by point, in double precision: (n, 4,
    100).
    """
    c, h, w = (np.asarray(array, np.float64)[:, :, None] for array in (centers, heights, widths))
    distance = np.abs(np.arange(100) - c)
    triangles = np.maximum(h - np.maximum(distance - 0.5, 0) * 2 * h / w, 0)
    boxes = np.where(distance * 2 * h / w < h, h, 0)
    return np.concatenate([triangles[:, :2], boxes[:, 2:]], axis=1)


def most_covered(signals):
    """By how many shapes the most covered point of each example is covered, each also covering the
    point before its first.
    """
    on = signals > 0
    return (on[:, :, :-1] | on[:, :, 1:]).sum(axis=1).max(axis=1)


def levels(centers, heights, task):
    order = (
        np.argsort(centers) if task == "by_location" else np.tile(np.arange(4), (len(centers), 1))
    )
    means = np.take_along_axis(heights, order, axis=1).reshape(-1, 2, 2).mean(axis=2)
    out = np.empty_like(heights)
    np.put_along_axis(out, order, means.repeat(2, axis=1), axis=1)
    return out


def sampler(rng, num_draws, task, rule):
    """A plain rejection sampler: draw, rasterise, reject what overlaps or is too alike."""
    c, h, w = (rng.uniform(*bounds, (num_draws, 4)) for bounds in ((5.5, 94.5), (1, 25), (5, 11)))
    compared = (
        [h[:, :2], h[:, 2:]][: 2 if rule == "both" else 1]
        if task == "by_shape"
        else [levels(c, h, task)]
    )
    kept = np.all([np.ptp(heights, axis=1) > 4 for heights in compared], axis=0) & (
        most_covered(rasterise(c, h, w)) <= 1
    )
    return c[kept], h[kept], w[kept]


@functools.cache
def examples(task="by_shape", rule="triangles"):
    generate = jax.jit(shapes.generate, static_argnums=1, static_argnames=("task", "height_rule"))
    return jax.tree.map(
        np.asarray, generate(jax.random.key(1), 20_000, task=task, height_rule=rule)
    )


@pytest.mark.parametrize(("task", "rule"), RULES)
def test_parameters_are_distributed_as_a_plain_sampler_draws_them(task, rule):
    expected = sampler(np.random.default_rng(0), 12_000, task, rule)
    drawn = examples(task, rule).shapes
    for name, ours, theirs in zip(drawn._fields, drawn, expected):
        for group in (slice(0, 2), slice(2, 4)):
            p = stats.ks_2samp(ours[:, group].ravel(), theirs[:, group].ravel()).pvalue
            assert p > 0.01, f"{name} of {task}, {rule}: p = {p}"
        assert stats.ks_2samp(np.ptp(ours, axis=1), np.ptp(theirs, axis=1)).pvalue > 0.01


@pytest.mark.parametrize(("task", "rule"), RULES)
def test_every_row_is_a_valid_example_of_its_task(task, rule):
    inputs, targets, (centers, heights, widths) = jax.tree.map(
        lambda array: array[:300], examples(task, rule)
    )
    signals, level = rasterise(centers, heights, widths), levels(centers, heights, task)
    assert (most_covered(signals) == 1).all()
    np.testing.assert_allclose(inputs[:, :, 0], signals.max(axis=1), atol=0.15 + 1e-4)
    np.testing.assert_allclose(
        targets[:, :, 0], rasterise(centers, level, widths).max(axis=1), atol=0.15 + 1e-4
    )
    if task == "by_location":
        assert (np.ptp(level, axis=1) > 4).all()
    else:
        assert (abs(heights[:, 0] - heights[:, 1]) > 4).all()
        assert rule == "triangles" or (abs(heights[:, 2] - heights[:, 3]) > 4).all()


@pytest.mark.parametrize(
    ("rule", "acceptance"), [(RULES[0], 0.1654), (RULES[1], 0.1150), (RULES[2], 0.1375)]
)
def test_acceptance(rule, acceptance):
    accepted = jax.jit(
        lambda key: shapes.is_valid(
            shapes.propose(key, 10**6, 10**6), task=rule[0], height_rule=rule[1]
        )
    )
    assert abs(np.asarray(accepted(jax.random.key(2))).mean() / acceptance - 1) < 0.01


def test_mean_and_deviation():
    inputs, targets, _ = examples()
    both = np.concatenate([inputs, targets])
    assert abs(both.mean(dtype=float) / 3.32 - 1) < 0.01
    assert abs(both.std(dtype=float) / 5.98 - 1) < 0.01


def test_noise_is_uniform_and_drawn_afresh_for_the_target():
    inputs, targets, _ = examples()
    quiet = (inputs < 0.15) & (targets < 0.15)  # where nothing is drawn, all is noise
    noise = np.stack([inputs[quiet], targets[quiet]])
    for row in noise:
        assert stats.kstest(row[:20_000], "uniform", (-0.15, 0.3)).pvalue > 0.01
    assert abs(np.corrcoef(noise)[0, 1]) < 0.01


@pytest.mark.parametrize(
    ("n", "block_size", "rule"),
    [(0, None, 0), (1, 1, 0), (7, 1, 0), (7, 3, 1), (7, None, 0), (128, 100, 2), (128, None, 0)],
)
def test_exactly_so_many_rows_whatever_the_luck(n, block_size, rule):
    options = dict(zip(("task", "height_rule"), RULES[rule]))
    sizes = n, block_size or shapes._block_size(n, *RULES[rule])
    draw = jax.jit(lambda key: shapes.sample(key, sizes, sizes, *RULES[rule]))
    drawn = draw(jax.random.key(3))
    assert drawn.centers.shape == (n, 4)
    assert np.asarray(jax.jit(functools.partial(shapes.is_valid, **options))(drawn)).all()
    assert len(np.unique(drawn.centers)) == 4 * n  # none is repeated, none is zero


@pytest.mark.slow
def test_blocks_fill_in_order():
    """Rows are the accepted proposals, one after another: small blocks give other luck and the same
    rule.
    """
    key = jax.random.key(4)
    small, large = (
        shapes.sample(key, sizes, sizes, *RULES[0]) for sizes in ((600, 700), (600, 20_000))
    )
    for a, b in zip(small, large):
        assert stats.ks_2samp(np.ravel(a), np.ravel(b)).pvalue > 0.01


def test_one_key_one_result_and_it_maps_over_keys():
    generate = jax.jit(functools.partial(shapes.generate, num_examples=5))
    keys = jax.random.split(jax.random.key(5), 3)
    mapped = jax.vmap(lambda key: generate(key))(keys)
    for i in range(3):
        for ours, alone in zip(jax.tree.leaves(mapped), jax.tree.leaves(generate(keys[i]))):
            np.testing.assert_allclose(ours[i], alone, atol=1e-5)
    assert not np.allclose(mapped.inputs[0], mapped.inputs[1])


def test_bad_arguments():
    with pytest.raises(ValueError, match="by_size"):
        shapes.generate(jax.random.key(0), 5, task="by_size")
    with pytest.raises(ValueError, match="got -1"):
        shapes.generate(jax.random.key(0), -1)


of_few = jax.jit(shapes.generate, static_argnums=1)


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.slow), 7, -1, pytest.param(2**40, id="2**40")]
)
def test_splits_are_generated_from_keys_of_the_seed(seed):
    splits = shapes.splits(seed, num_train=40, num_test=10)
    keys = jax.random.split(jax.random.key(seed), 3)
    for key, (split, count) in zip(keys, {"train": 32, "valid": 8, "test": 10}.items()):
        chex.assert_trees_all_close(splits[split], of_few(key, count), atol=1e-5)


@pytest.mark.parametrize(("task", "rule"), RULES)
def test_data_stored_and_drawn_afresh_are_of_the_task_and_the_rule_of_the_config(task, rule):
    options = {"task": task, "height_rule": rule}
    data = Shapes(**options, num_train=20, num_test=10, seed=3)
    expected = shapes.splits(3, **options, num_train=20, num_test=10)
    for name, rows in data.load(None).splits.items():
        np.testing.assert_array_equal(rows.inputs, expected[name].inputs)
        np.testing.assert_array_equal(rows.targets, expected[name].targets)
    key = jax.random.key(4)
    rows, expected = data.draw(key, 20), shapes.generate(key, 20, **options)
    np.testing.assert_array_equal(rows.inputs, expected.inputs)
    np.testing.assert_array_equal(rows.targets, expected.targets)


def test_splits_share_nothing():
    splits = jax.jit(lambda: shapes.splits(0, num_train=100, num_test=30))()
    assert [len(splits[name].inputs) for name in ("train", "valid", "test")] == [80, 20, 30]
    centers = np.concatenate([split.shapes.centers for split in splits.values()])
    assert len(np.unique(centers[:, 0])) == 130
