"""Signals in tables: a row for each, or for each point in time."""

import numpy as np
import pytest

from flax_attn.data import contents, signal_tables
from flax_attn.data.sets import DATA
from flax_attn.errors import UsageError

WIDE = "label,id,t0,t1,t2\nup,7,0,1,2\ndown,9,3,2,1\n"
LONG = "time,label,id,v\n" + "".join(
    f"{t},{label},{name},{v}\n"
    for t, label, name, v in [
        (2, "up", 7, 2), (0, "down", 9, 3), (0, "up", 7, 0),
        (1, "up", 7, 1), (2, "down", 9, 1), (1, "down", 9, 2),
    ]
)  # fmt: skip


def read(tmp_path, text, *columns):
    path = tmp_path / "own.csv"
    path.write_text(text)
    return signal_tables.read(path, *(columns or ("label",)))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (WIDE, ()),
        (WIDE.replace(",", ";"), ()),
        (LONG, ()),
        (LONG.replace("label", "class").replace("time", "at"), ("class", "id", "at")),
        ("0,1,2,up\n3,2,1,down\n", ("4",)),  # no header
    ],
)
def test_all_forms_of_a_table_give_the_same(tmp_path, text, columns):
    signals, labels = read(tmp_path, text, *columns)
    assert labels == ["up", "down"]
    np.testing.assert_array_equal(signals, [[[0], [1], [2]], [[3], [2], [1]]])


def test_signals_may_end_early_and_have_channels_and_no_labels(tmp_path):
    signals, labels = read(tmp_path, "a,b,c\n1,2,3\n4,,\n")
    assert labels is None
    assert [len(signal) for signal in signals] == [3, 1]
    signals, labels = read(tmp_path, "id,time,x,y\n1,1,10,20\n1,0,30,40\n")
    np.testing.assert_array_equal(signals, [[[30, 40], [10, 20]]])
    array = contents.signals("here", [np.ones(3), np.ones(2)])
    np.testing.assert_array_equal(np.isnan(array[..., 0]), [[False] * 3, [False, False, True]])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("label,t0,t1\nup,1,two\n", "line 2, column 't1', got 'two'"),
        ("label,t0,t1\nup,,1\n", "line 2, column 't0'"),
        ("id,time,v,label\n1,0,1,a\n1,1,2,b\n", "one label for all points of '1'"),
        ("id,time,v,label\n1,noon,1,a\n", "column 'time', got 'noon'"),
        ("id,time,v\n1,0,1\n1,0,2\n", "each time once for '1'"),
    ],
)
def test_what_is_no_signal_is_named_with_its_place(tmp_path, text, named):
    with pytest.raises(UsageError, match=named):
        read(tmp_path, text)


def test_a_class_named_1_is_no_header_and_an_index_no_signal(tmp_path):
    signals, labels = read(tmp_path, "1,0.5,2\n2,1,3\n1,4,5\n", "1")
    assert labels == ["1", "2", "1"]
    np.testing.assert_array_equal(signals[0], [[0.5], [2]])
    signals, labels = read(tmp_path, ",label,a,b\n0,up,5,6\n1,up,7\n2,up,8,9\n")
    assert [signal.ravel().tolist() for signal in signals] == [[5, 6], [7], [8, 9]]


def test_a_number_is_the_label_of_a_signal(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(WIDE.replace("up", "1.5").replace("down", "-2"))
    data = DATA["signals_npz"](file=str(path), target="number")
    rows = data.rows_in(str(path))
    np.testing.assert_array_equal(rows.targets, [1.5, -2])
    with pytest.raises(UsageError, match="label_column"):
        DATA["signals_npz"](file=str(path), target="classes", label_column="no").rows_in(str(path))
    with pytest.raises(UsageError, match="classes or numbers"):
        data.__class__(file=str(path)).rows_in(str(path))


def test_nan_stands_only_behind_the_end():
    with pytest.raises(UsageError, match="up to the end"):
        contents.signals("here", [[1.0, np.nan, 2.0]])


def test_a_test_file_may_have_shorter_signals(tmp_path):
    for name, points in (("a.csv", 4), ("b.csv", 3)):
        rows = (
            f"{'up' if i % 2 else 'down'},{','.join(map(str, range(points)))}" for i in range(8)
        )
        head = ",".join(["label", *map(str, "wxyz"[:points])])
        (tmp_path / name).write_text("\n".join([head, *rows]))
    files = {
        name: str(tmp_path / f"{file}.csv") for name, file in (("file", "a"), ("test_file", "b"))
    }
    raw = DATA["signals_npz"](**files, target="classes", valid_fraction=0.25).load(None)
    assert {name: len(rows.targets) for name, rows in raw.splits.items()} == {
        "train": 6, "valid": 2, "test": 8,
    }  # fmt: skip
    assert np.isnan(raw.splits["test"].inputs[:, 3]).all()
