import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from flax_attn.data import shapes

RULES = [("by_shape", "triangles"), ("by_shape", "both"), ("by_location", "triangles")]


def rasterise(centers, heights, widths):
    """The four signals of one example by the formulas, point by point, in double precision."""
    t = np.arange(100)
    rows = []
    for i in range(4):
        c, h, w = centers[i], heights[i], widths[i]
        triangle = np.maximum(h - np.maximum(np.abs(t - c) - 0.5, 0) * 2 * h / w, 0)
        rows.append(triangle if i < 2 else np.where(np.abs(t - c) * 2 * h / w < h, h, 0))
    return np.stack(rows)


def levels(centers, heights, task):
    groups = [[0, 1], [2, 3]] if task == "by_shape" else np.split(np.argsort(centers), 2)
    out = np.empty(4)
    for group in groups:
        out[group] = heights[group].mean()
    return out


def sampler(rng, num_draws, task, rule):
    """A plain rejection sampler: draw, rasterise, reject what overlaps or is too alike."""
    kept = []
    for _ in range(num_draws):
        c, h, w = rng.uniform(5.5, 94.5, 4), rng.uniform(1, 25, 4), rng.uniform(5, 11, 4)
        on = rasterise(c, h, w) > 0
        on = on[:, :-1] | on[:, 1:]  # each shape also covers the point before its first
        level = levels(c, h, task)
        compared = [h[:2], h[2:]][: 2 if rule == "both" else 1] if task == "by_shape" else [level]
        if all(np.ptp(heights) > 4 for heights in compared) and on.sum(axis=0).max() <= 1:
            kept.append((c, h, w))
    return [np.array(column) for column in zip(*kept)]


@functools.cache
def examples(task="by_shape", rule="triangles", n=5_000):
    generate = jax.jit(shapes.generate, static_argnums=1, static_argnames=("task", "height_rule"))
    return jax.tree.map(np.asarray, generate(jax.random.key(1), n, task=task, height_rule=rule))


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
    inputs, targets, drawn = examples(task, rule)
    for i in range(300):
        centers, heights, widths = (array[i].astype(float) for array in drawn)
        on = rasterise(centers, heights, widths) > 0
        assert (on[:, :-1] | on[:, 1:]).sum(axis=0).max() == 1
        np.testing.assert_allclose(inputs[i, :, 0], rasterise(centers, heights, widths).max(axis=0), atol=0.15 + 1e-4)
        level = levels(centers, heights, task)
        np.testing.assert_allclose(targets[i, :, 0], rasterise(centers, level, widths).max(axis=0), atol=0.15 + 1e-4)
        if task == "by_location":
            assert np.ptp(level) > 4
        else:
            assert abs(heights[0] - heights[1]) > 4
            assert rule == "triangles" or abs(heights[2] - heights[3]) > 4


@pytest.mark.parametrize(("rule", "acceptance"), [(RULES[0], 0.1654), (RULES[1], 0.1150), (RULES[2], 0.1375)])
def test_acceptance(rule, acceptance):
    proposals = shapes.propose(jax.random.key(2), 1_000_000)
    valid = shapes.is_valid(proposals, task=rule[0], height_rule=rule[1])
    assert abs(float(valid.mean()) / acceptance - 1) < 0.01


def test_mean_and_deviation():
    inputs, targets, _ = examples(n=50_000)
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


@pytest.mark.parametrize(("n", "block_size"), [(0, None), (1, 1), (7, 1), (7, 3), (7, None), (128, 100), (128, None)])
def test_exactly_so_many_rows_whatever_the_luck(n, block_size):
    drawn = shapes.sample(jax.random.key(3), n, block_size=block_size)
    assert drawn.centers.shape == (n, 4)
    assert bool(shapes.is_valid(drawn).all())
    assert len(np.unique(drawn.centers)) == 4 * n  # none is repeated, none is zero


@pytest.mark.full
def test_blocks_fill_in_order():
    """Rows are the accepted proposals, one after another: small blocks give other luck and the same rule."""
    small, large = (shapes.sample(jax.random.key(4), 600, block_size=size) for size in (700, 20_000))
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


def test_splits_share_nothing():
    splits = shapes.splits(0, num_train=100, num_test=30)
    assert [len(splits[name].inputs) for name in ("train", "valid", "test")] == [80, 20, 30]
    centers = jnp.concatenate([split.shapes.centers for split in splits.values()])
    assert len(np.unique(centers[:, 0])) == 130
