"""What is told of a data set before training."""

import numpy as np
import pytest

from flax_attn.data.sets import DATA
from flax_attn.errors import UsageError
from flax_attn.tasks import facts

WORDS = ("good", "fine", "bad", "poor")


def texts(folder, copies, **options):
    """A table in which every row stands several times, as the data set reads it."""
    rows = [f"a {WORDS[i % 4]} text {i},{('yes', 'no')[i % 4 // 2]}\n" for i in range(60)]
    (folder / "own.csv").write_text("text,label\n" + "".join(rows * copies))
    return DATA["text_csv"](file=str(folder / "own.csv"), **options)


def told_of(data):
    raw = data.load(None)
    return facts.described(raw, data) + facts.warnings(raw, data), raw


def shared(raw):
    return sum(text in raw.splits["train"].inputs for text in raw.splits["test"].inputs)


def test_rows_that_stand_in_two_splits_are_counted_and_can_be_kept_apart(tmp_path):
    told, raw = told_of(texts(tmp_path, 3))
    assert shared(raw) > 0
    assert f"warning: {shared(raw)} of 18 test inputs are trained on; --data.split_by" in told[2]
    told, raw = told_of(texts(tmp_path, 3, split_by="input"))
    assert (shared(raw), sum(len(rows.inputs) for rows in raw.splits.values())) == (0, 180)
    assert not [line for line in told if line.startswith("warning")]


def test_texts_are_described_and_each_row_once_is_split_alike_by_row_and_by_input(tmp_path):
    told, raw = told_of(texts(tmp_path, 1))
    assert told_of(texts(tmp_path, 1, split_by="input"))[1].splits == raw.splits
    assert told[0].startswith('texts: 4 to 4 words, half of them at most 4; the first: "a good')
    assert told[1] == "classes to train on: yes 24, no 24"


def test_an_identifier_as_label_is_told_with_its_number_of_values(tmp_path):
    with pytest.raises(UsageError, match="60 different values in 60 rows"):
        texts(tmp_path, 1, label_column="text").load(None)


def test_images_and_signals_are_described(tmp_path):
    labels = np.array(["a", "b"] * 20 + ["c"] * 4)
    images = np.random.default_rng(0).random((44, 12, 16, 3), np.float32)
    np.savez(tmp_path / "images.npz", images=images, labels=labels)
    told, _ = told_of(DATA["image_files"](file=str(tmp_path / "images.npz"), size=8))
    assert told[0].startswith("images of 12 x 16 pixels are scaled and padded to 8 x 8")
    assert told[1] == "images: 8 x 8 pixels in colour"
    assert told[-1].startswith("warning: 3 classes with under 5 test examples: a (2), b (2), c (")
    np.savez(tmp_path / "signals.npz", inputs=images[:, :, 0], targets=np.arange(44.0))
    data = DATA["signals_npz"](file=str(tmp_path / "signals.npz"), target="number")
    assert "12 points of 3 series; numbers from 0 to 4" in told_of(data)[0][0]
