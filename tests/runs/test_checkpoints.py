"""Checkpoints that are valid or not there."""

import os

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import checkpoints
from flax_attn.runs.checkpoints import Note, Progress
from flax_attn.training.epoch import TrainState

ROWS = [{"epoch": 0, "seed": 0, "step": 0, "mse": 1 / 3}]
W = np.arange(1000, dtype=np.float32).reshape(10, 100)
FIRST = {"states": {"w": jnp.asarray(W)}, "sums": [jnp.int32(1)]}
SECOND = {"states": {"w": jnp.asarray(-W)}, "sums": [jnp.int32(2)]}


def save(directory, progress, trees=FIRST, **changes):
    note = {"seconds": 0.1 * progress.epoch, "rows": ROWS, "config": {"name": "some"}} | changes
    checkpoints.save(directory, Note(*progress, **note), trees)


@pytest.fixture
def directory(tmp_path):
    save(tmp_path, Progress(1))
    save(tmp_path, Progress(2), SECOND)
    return tmp_path


def restore(directory, template=FIRST):
    lines = []
    return checkpoints.restore(directory, template, lines.append), lines


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_the_newest_is_restored_with_its_note(directory):
    (note, trees), lines = restore(directory)
    chex.assert_trees_all_equal(trees, SECOND)
    assert (note.progress, note.seconds, note.rows, lines) == (Progress(2), 0.2, ROWS, [])
    assert checkpoints.newest(directory).config == {"name": "some"}


def test_every_dtype_shape_and_class_comes_back(tmp_path):
    create = lambda seed: TrainState.create(
        seed, lambda key: ({"w": jax.random.normal(key, (3,))}, {}), optax.adam(1e-3)
    )
    odd = {
        "bfloat16": jnp.asarray([1.5, np.nan, -0.0], jnp.bfloat16),
        "float16": jnp.asarray([[np.inf], [6e-8]], jnp.float16),
        "bool": jnp.asarray([True, False]),
        "uint32": jnp.uint32(2**32 - 1),
        "empty": jnp.zeros((0, 3)),
        "deep": [(jnp.int8(-1), {"a/b": jnp.float32(1)})],
    }
    trees = {"states": create(jnp.uint32(3)), "odd": odd}
    save(tmp_path, Progress(1), trees)
    shapes = jax.eval_shape(lambda: {"states": create(jnp.uint32(3)), "odd": odd})
    restored = restore(tmp_path, shapes)[0][1]
    assert isinstance(restored["states"], TrainState)
    for ours, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(trees), strict=True):
        assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
        assert ours.tobytes() == np.asarray(expected).tobytes()


def test_no_flipped_bit_and_no_cut_gives_other_numbers(directory):
    """The checkpoint before is used instead, or a bit without meaning was flipped."""
    path, rng = directory / "2.npz", np.random.default_rng(0)
    content = path.read_bytes()
    for place in rng.integers(0, len(content), 300):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged if place % 3 else content[:place])
        (note, trees), lines = restore(directory)
        chex.assert_trees_all_equal(trees, FIRST if lines else SECOND)
        assert note.progress == Progress(1 if lines else 2)


def test_when_none_is_valid_nothing_is_guessed_or_removed(directory):
    for number in (1, 2):
        (directory / f"{number}.npz").write_bytes(b"PK")
    with pytest.raises(UsageError, match=rf"remove {directory} to train from the start"):
        restore(directory)
    assert names(directory) == ["1.npz", "2.npz"]
    assert checkpoints.newest(directory) is None
    assert restore(directory / "nowhere") == (None, [])


@pytest.mark.parametrize(
    "states", [{"w": jnp.zeros((10, 99))}, {"w": jnp.zeros((10, 100), jnp.bfloat16)}, {"v": W}]
)
def test_the_arrays_of_another_model_are_refused(directory, states):
    with pytest.raises(UsageError, match=r"is damaged \(expected states"):
        restore(directory, {"states": states})


def test_the_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, fsync, replace = {}, os.fsync, os.replace

    def record(descriptor):
        fsync(descriptor)
        synced[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_mtime_ns

    def check(partial, path):
        assert synced[os.stat(partial).st_ino] == os.stat(partial).st_mtime_ns
        replace(partial, path)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", check)
    save(tmp_path / "checkpoints", Progress(1))
    assert synced[(tmp_path / "checkpoints").stat().st_ino]


def test_one_that_cannot_be_written_leaves_the_others(directory, monkeypatch):
    def fill_the_disk(file, **arrays):
        file.write_bytes(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fill_the_disk)
    with pytest.raises(UsageError, match=r"3\.npz \(No space left on device\)"):
        save(directory, Progress(3))
    assert names(directory) == ["1.npz", "2.npz"]


def test_two_ends_of_epochs_are_kept_and_the_newest(directory):
    save(directory, Progress(2, 7))
    assert names(directory) == ["1.npz", "2+7.npz", "2.npz"]
    assert restore(directory)[0][0].progress == Progress(2, 7)
    save(directory, Progress(3))
    assert names(directory) == ["2.npz", "3.npz"]
    checkpoints.prune(directory, Progress(2))
    assert names(directory) == ["2.npz"]


def test_files_of_the_user_stay_and_a_link_is_removed_itself(directory, tmp_path_factory):
    outside = (directory / "2.npz").rename(tmp_path_factory.mktemp("outside") / "2.npz")
    (directory / "2.npz").symlink_to(outside)
    (directory / "best.npz").touch()
    checkpoints.prune(directory, Progress(1))
    assert names(directory) == ["1.npz", "best.npz"]
    assert outside.exists()
