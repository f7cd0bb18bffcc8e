import shutil

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import checkpoints

W = np.arange(1000, dtype=np.float32).reshape(10, 100)
FIRST = {"params": {"w": jnp.asarray(W)}, "step": jnp.int32(1)}
SECOND = {"params": {"w": jnp.asarray(-W)}, "step": jnp.int32(2)}


@pytest.fixture
def directory(tmp_path):
    for number, state in ((1, FIRST), (2, SECOND)):
        checkpoints.save(tmp_path, number, state, {"train_seconds": 0.1 * number})
    return tmp_path


def restore(directory):
    lines = []
    restored = checkpoints.restore(directory, FIRST, lines.append)
    return restored, lines


def test_the_newest_is_restored(directory):
    (number, state, metadata), lines = restore(directory)
    chex.assert_trees_all_equal(state, SECOND)
    assert (number, metadata, lines) == (2, {"train_seconds": 0.2}, [])


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
        (number, state, _), lines = restore(copy)
        chex.assert_trees_all_equal(state, FIRST)
        assert number == 1
        assert len(lines) == 1
        assert "is damaged" in lines[0]
        assert "using that of epoch 1" in lines[0]


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_short_and_missing_files_are_found(directory, damage):
    data = max(files(directory), key=lambda path: path.stat().st_size)
    if damage == "truncate":
        data.write_bytes(data.read_bytes()[:-1])
    else:
        data.unlink()
    (number, _, _), lines = restore(directory)
    assert number == 1
    assert data.name in lines[0]


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


def test_what_orbax_would_take_for_the_latest_step_is_passed_over(directory):
    (directory / "999").mkdir()
    (directory / "007").mkdir()
    (number, _, _), lines = restore(directory)
    assert number == 2
    assert len(lines) == 1
    assert "999 was not written to its end" in lines[0]
    checkpoints.discard_after(directory, 2)
    assert restore(directory)[1] == []
    checkpoints.save(directory, 3, FIRST, {})
    assert restore(directory)[0][0] == 3


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
    checkpoints.save(directory, 3, FIRST, {})
    assert sorted(path.name for path in directory.iterdir() if path.is_dir()) == ["2", "3"]
    assert checkpoints.restore(tmp_path / "nowhere", FIRST, print) is None
