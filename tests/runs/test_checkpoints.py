import os
import shutil
from pathlib import Path

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import checkpoints, sums
from flax_attn.runs.checkpoints import Progress
from tests.runs.conftest import as_on_disk

METADATA = {"train_seconds": 0.0, "config": {}}
LOG = b'{"epoch": 0, "seed": 0, "step": 0, "mse": 1.0}\n'
W = np.arange(1000, dtype=np.float32).reshape(10, 100)
FIRST = {"params": {"w": jnp.asarray(W)}, "step": jnp.int32(1)}
SECOND = {"params": {"w": jnp.asarray(-W)}, "step": jnp.int32(2)}


@pytest.fixture
def directory(tmp_path):
    for number, state in ((1, FIRST), (2, SECOND)):
        metadata = METADATA | {"train_seconds": 0.1 * number}
        checkpoints.save(tmp_path, Progress(number), state, metadata, number * LOG)
    return tmp_path


def restore(directory):
    lines = []
    restored = checkpoints.restore(directory, FIRST, lines.append)
    return restored, lines


def test_all_is_on_the_disk_before_the_list_of_sums_refers_to_it(tmp_path, synced, monkeypatch):
    directory, put, replace = tmp_path / "checkpoints", [], os.replace

    def check(partial, path):
        """All files were synced after their last change, and the folders with all names."""
        folder = directory / "1"
        written = [file for file in folder.iterdir() if file != Path(partial)]
        assert len(written) == 4  # the state, the sums of an epoch, the metrics and the metadata
        for file in (*written, Path(partial)):
            assert synced[file.stat().st_ino] == as_on_disk(file), file
        assert synced[folder.stat().st_ino] >= {file.name for file in written}
        assert synced[directory.stat().st_ino] == {"1"}
        put.append(path)
        replace(partial, path)

    monkeypatch.setattr(os, "replace", check)
    checkpoints.save(directory, Progress(1), FIRST, {}, LOG, {"mse": jnp.float32(0.5)})
    assert put == [directory / "1" / sums.SUMS]
    assert synced[(directory / "1").stat().st_ino] == as_on_disk(directory / "1")


def test_the_newest_is_restored(directory):
    checkpoint, lines = restore(directory)
    chex.assert_trees_all_equal(checkpoint.state, SECOND)
    assert (checkpoint.progress, checkpoint.metric_sums, lines) == (Progress(2), None, [])
    assert checkpoint.metadata["train_seconds"] == 0.2
    assert checkpoint.rows() == 2 * [{"epoch": 0, "seed": 0, "step": 0, "mse": 1.0}]


def files(directory):
    return [path for path in sorted((directory / "2").rglob("*")) if path.is_file()]


def test_every_flipped_bit_is_found(directory, tmp_path_factory):
    """One bit is flipped in the middle of each file of the newest checkpoint, a file at a time.

    The checkpoint before it is used.
    """
    for i, path in enumerate(files(directory)):
        copy = tmp_path_factory.mktemp(f"flip{i}") / "checkpoints"
        shutil.copytree(directory, copy)
        victim = copy / path.relative_to(directory)
        content = bytearray(victim.read_bytes())
        if not content:
            continue
        content[len(content) // 2] ^= 0x10
        victim.write_bytes(content)
        checkpoint, lines = restore(copy)
        chex.assert_trees_all_equal(checkpoint.state, FIRST)
        assert checkpoint.progress == Progress(1)
        assert len(lines) == 1
        assert "is damaged" in lines[0]
        assert "using 1" in lines[0]


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_short_and_missing_files_are_found(directory, damage):
    data = max(files(directory), key=lambda path: path.stat().st_size)
    if damage == "truncate":
        data.write_bytes(data.read_bytes()[:-1])
    else:
        data.unlink()
    checkpoint, lines = restore(directory)
    assert checkpoint.progress == Progress(1)
    assert data.name in lines[0]
    with pytest.raises(UsageError, match=r"2 is damaged .*; run the command that made it again"):
        checkpoints.restore(directory, FIRST, print, only_newest=True)


def test_metrics_may_be_larger_than_the_arrays(directory):
    checkpoints.save(directory, Progress(3), FIRST, METADATA, 1000 * LOG)
    warn, largest = print, (directory / "3" / "state.msgpack").stat().st_size
    assert (directory / "3" / "metrics.jsonl").stat().st_size > largest
    assert checkpoints.newest_whole(directory, warn, largest) == (Progress(3), [])


def test_metrics_that_are_changed_are_damage(directory):
    (directory / "2" / "metrics.jsonl").write_bytes(2 * LOG.replace(b"1.0", b"1.1"))
    checkpoint, lines = restore(directory)
    assert "2 is damaged (metrics.jsonl has changed); using 1" in lines[0]
    assert checkpoint.rows() == [{"epoch": 0, "seed": 0, "step": 0, "mse": 1.0}]


def test_when_none_is_whole_nothing_is_guessed_or_removed(directory):
    for number in (1, 2):
        (directory / str(number) / "metadata.json").write_text("{}")
    before = sorted(directory.rglob("*"))
    with pytest.raises(
        UsageError,
        match=r"2 is damaged .*metadata.json has changed.* none before "
        r"it is whole; remove",
    ):
        restore(directory)
    assert sorted(directory.rglob("*")) == before


def test_what_is_not_whole_is_passed_over_and_what_is_not_ours_stays(directory):
    (directory / "999").mkdir()
    (directory / "007").mkdir()
    (directory / "998").mkdir()
    (directory / "998" / "letter.txt").write_text("of the user")
    checkpoint, lines = restore(directory)
    assert checkpoint.progress == Progress(2)
    assert len(lines) == 2
    assert "999 was not written to its end" in lines[0]
    checkpoints.discard_after(directory, Progress(2))
    assert not (directory / "999").exists()
    assert (directory / "998" / "letter.txt").exists()
    checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG)
    assert restore(directory)[0].progress == Progress(3)


def test_what_is_further_is_discarded(directory):
    checkpoints.save(directory, Progress(2, 5), FIRST, METADATA, LOG)
    checkpoints.discard_after(directory, Progress(1))
    assert [path.name for path in directory.iterdir()] == ["1"]


def test_saving_where_something_is_raises_and_vouches_for_nothing(directory):
    before = (directory / "2" / sums.SUMS).read_bytes()
    with pytest.raises(UsageError, match="cannot write checkpoint"):
        checkpoints.save(directory, Progress(2), FIRST, METADATA | {"new": True}, LOG)
    assert (directory / "2" / sums.SUMS).read_bytes() == before
    chex.assert_trees_all_equal(restore(directory)[0].state, SECOND)


def test_a_begun_epoch_keeps_its_sums_and_gives_way_to_the_next_end(directory):
    metric_sums = {"mse": jnp.float32(0.5)}
    checkpoints.save(directory, Progress(2, 7), FIRST, METADATA, LOG, metric_sums)
    restored = checkpoints.restore(directory, SECOND, print, metric_sums={"mse": jnp.float32(0)})
    assert restored.progress == Progress(2, 7)
    chex.assert_trees_all_equal((restored.state, restored.metric_sums), (FIRST, metric_sums))
    assert {path.name for path in directory.iterdir()} == {"1", "2", "2+7"}
    checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG)
    assert {path.name for path in directory.iterdir()} == {"2", "3"}


def test_a_begun_epoch_without_its_sums_is_damaged_and_so_is_an_end_with_some(directory):
    checkpoints.save(directory, Progress(2, 7), FIRST, METADATA, LOG)
    checkpoint, lines = restore(directory)
    assert checkpoint.progress == Progress(2)
    assert "metric_sums.msgpack is missing" in lines[0]
    checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG, {"mse": jnp.float32(0.5)})
    checkpoint, lines = restore(directory)
    assert checkpoint.progress == Progress(2)
    assert "metric_sums.msgpack is not of it" in lines[0]


def test_a_list_of_sums_without_the_metadata_vouches_for_nothing(directory):
    (directory / "2" / sums.SUMS).write_text("{}")
    checkpoint, lines = restore(directory)
    assert checkpoint.progress == Progress(1)
    assert "is damaged" in lines[0]


def test_a_checkpoint_under_another_name_is_damaged(directory):
    (directory / "2").rename(directory / "7")
    checkpoint, lines = restore(directory)
    assert checkpoint.progress == Progress(1)
    assert "it is 2 under another name" in lines[0]


def test_a_link_to_a_checkpoint_is_none(directory, tmp_path_factory):
    outside = (directory / "2").rename(tmp_path_factory.mktemp("outside") / "2")
    (directory / "2").symlink_to(outside)
    checkpoint, lines = restore(directory)
    assert (checkpoint.progress, lines) == (Progress(1), [])
    checkpoints.discard_after(directory, Progress(1))
    assert (outside / "state.msgpack").exists()
    assert (directory / "2").is_symlink()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            {"params": {"w": jnp.zeros((10, 99))}},
            r"\['w'\] float32\[10, 99\], got float32\[10, 100\]",
        ),
        (
            {"params": {"w": jnp.zeros((10, 100), jnp.bfloat16)}},
            r"\['w'\] bfloat16\[10, 100\], got float32",
        ),
        ({"params": {"v": jnp.zeros((10, 100))}}, r"\['v'\] float32\[10, 100\], got None"),
        ({"params": {}}, r"\['w'\] None, got float32"),
    ],
)
def test_the_state_of_another_model_is_refused(directory, template, said):
    with pytest.raises(UsageError, match=r"2 is not of the config beside it: .*" + said):
        checkpoints.restore(directory, FIRST | template, print)


def test_two_are_kept_and_none_is_no_error(directory, tmp_path):
    checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG)
    assert sorted(path.name for path in directory.iterdir() if path.is_dir()) == ["2", "3"]
    assert checkpoints.restore(tmp_path / "nowhere", FIRST, print) is None


def test_a_folder_with_a_users_file_is_left_and_ours_that_is_further_is_not(directory):
    (directory / "3").mkdir()
    (directory / "3" / "notes.txt").touch()
    (directory / "3" / "metadata.json").touch()
    checkpoints.discard_after(directory, Progress(1))
    assert sorted(path.name for path in directory.iterdir()) == ["1", "3"]


def test_only_the_newest_will_do_where_it_is_asked_for(directory):
    (directory / "2" / "metadata.json").write_text("{}")
    with pytest.raises(UsageError, match="run the command that made it again to mend it"):
        checkpoints.restore(directory, FIRST, print, only_newest=True)


def test_what_a_killed_process_did_not_remove_is_removed_later(directory):
    checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG)
    (directory / "1").mkdir()
    (directory / "1" / "state.msgpack").touch()  # half removed
    (directory / "1" / ".sums.1.partial.json").touch()  # and never written to its end
    checkpoints.prune(directory, Progress(3))
    assert sorted(path.name for path in directory.iterdir()) == ["2", "3"]


def test_the_next_epoch_is_discarded_too(directory):
    checkpoints.discard_after(directory, Progress(1))
    assert [path.name for path in directory.iterdir()] == ["1"]


def test_nothing_is_written_into_a_folder_that_is_there(directory):
    (directory / "3").mkdir()
    (directory / "3" / "notes.txt").touch()
    with pytest.raises(UsageError, match="cannot write checkpoint"):
        checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG)
    assert [path.name for path in (directory / "3").iterdir()] == ["notes.txt"]


def test_a_list_of_sums_is_there_whole_or_not_at_all(directory, monkeypatch):
    write = Path.write_text

    def fill_the_disk(path, text):
        write(path, text[:20])
        if sums.SUMS.removesuffix(".json") in path.name:
            raise OSError(28, "No space left on device")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", fill_the_disk)
    with pytest.raises(UsageError, match="no space left on the disk"):
        checkpoints.save(directory, Progress(3), FIRST, METADATA, LOG)
    assert not (directory / "3" / sums.SUMS).exists()
    lines = []
    assert checkpoints.restore(directory, FIRST, lines.append).progress == Progress(2)
    assert "was not written to its end" in lines[0]
