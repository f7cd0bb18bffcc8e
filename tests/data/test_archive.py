"""Arrays of the user's own: read by split, or told in one line that names the file."""

import numpy as np
import pytest

from flax_attn.data import archive
from flax_attn.errors import UsageError

X, Y = np.arange(6).reshape(2, 3), np.arange(2)


def named(*splits):
    return {f"{split}_{name}": array for split in splits for name, array in (("x", X), ("y", Y))}


@pytest.mark.parametrize(
    ("arrays", "splits"),
    [
        ({"x": X, "y": Y}, ["all"]),
        (named("test", "train"), ["train", "test"]),
        (named("train", "valid", "test") | {"note": Y}, ["train", "valid", "test"]),
    ],
)
def test_arrays_come_by_split(tmp_path, arrays, splits):
    np.savez_compressed(tmp_path / "own.npz", **arrays)
    read = archive.read(tmp_path / "own.npz", "x", "y")
    assert list(read) == splits
    for inputs, targets in read.values():
        np.testing.assert_array_equal(inputs, X)
        np.testing.assert_array_equal(targets, Y)


NAMES = r"expected in .*own.npz the arrays x and y, or train_x, .* got"


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, f"{NAMES} none"),
        ({"x": X}, f"{NAMES} x"),
        ({"a": X, "b": Y}, f"{NAMES} a, b"),
        (named("train"), f"{NAMES} train_x, train_y"),
        (named("train", "valid"), NAMES),
        (named("train", "test") | {"valid_x": X}, NAMES),
        (named("train", "test", "val"), f"{NAMES} .*val_x, val_y"),
        (named("train", "test") | {"x": X, "y": Y}, NAMES),
        ({"x": np.array([{}, None]), "y": Y}, r"numbers in x.npy of .*own.npz, got object"),
    ],
)
def test_arrays_that_are_missing_or_misnamed_are_told(tmp_path, arrays, said):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(UsageError, match=said):
        archive.read(tmp_path / "own.npz", "x", "y")


def test_many_names_are_told_in_a_short_line(tmp_path):
    np.savez(tmp_path / "own.npz", **{f"name{i}": 1 for i in range(2_000)})
    with pytest.raises(UsageError, match=r"got name0, name1, .*\.\.\..*, name1999$") as error:
        archive.read(tmp_path / "own.npz", "x", "y")
    assert len(str(error.value)) < 600


def test_a_file_that_is_no_archive_is_told(tmp_path):
    np.savez_compressed(tmp_path / "own.npz", x=np.random.default_rng(0).random(999), y=Y)
    whole = (tmp_path / "own.npz").read_bytes()
    np.save(tmp_path / "one.npy", X)
    for content, said in (
        (b"", "arrays in"),
        (b"words", "arrays in"),
        (b"\x80\x04K\x01.", "arrays in"),
        (whole[:-50], "arrays in"),
        (whole[:200] + bytes(50) + whole[250:], "arrays in"),
        ((tmp_path / "one.npy").read_bytes(), "an archive of several arrays in"),
    ):
        (tmp_path / "own.npz").write_bytes(content)
        with pytest.raises(UsageError, match=rf"expected {said} .*own\.npz") as error:
            archive.read(tmp_path / "own.npz", "x", "y")
        assert len(str(error.value).splitlines()) == 1
        assert "pickle" not in str(error.value)
    for path in (tmp_path / "gone.npz", tmp_path):
        with pytest.raises(UsageError, match=r"cannot read .*; give a .npz file with the arrays x"):
            archive.read(path, "x", "y")
