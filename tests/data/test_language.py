"""Running text: its splits, texts made in code, and files of the user's."""

import hashlib

import pytest

from flax_attn.data import recall, toy
from flax_attn.data.sets import DATA
from flax_attn.errors import UsageError

TEXT = "".join(f"line {i} of a text\n" for i in range(100))


def own(tmp_path, content, **options):
    path = tmp_path / "own.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return DATA["text_file"](file=str(path), **options)


def test_the_end_of_a_text_tests_and_what_is_before_it_validates(tmp_path):
    raw = own(tmp_path, TEXT, valid_fraction=0.2, test_fraction=0.1).load(None)
    splits = {name: columns.inputs for name, columns in raw.splits.items()}
    assert list(splits) == ["train", "test", "valid"]
    assert splits["train"] + splits["valid"] + splits["test"] == TEXT
    assert len(splits["test"]) == pytest.approx(0.1 * len(TEXT), abs=1)
    assert len(splits["valid"]) == pytest.approx(0.2 * len(TEXT), abs=1)
    assert list(raw.files.values()) == [hashlib.sha256(TEXT.encode()).hexdigest()]


def test_shakespeare_is_split_as_in_nano_gpt(manual_dir):
    splits = DATA["tinyshakespeare"]().load(manual_dir).splits
    sizes = {name: len(columns.inputs) for name, columns in splits.items()}
    assert sizes == {"train": 1_003_854, "test": 111_540}
    assert splits["train"].inputs.startswith("First Citizen:\n")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (" \n\n", "own.txt"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "binary file .*own.txt"),
        (b"sch\xf6n", "own.txt, line 1"),
        (b"text\0text" * 100, "own.txt, line 1"),
        ("a", "got 1 characters"),
    ],
)
def test_what_is_no_text_is_told_in_one_line(tmp_path, content, named):
    with pytest.raises(UsageError, match=named):
        own(tmp_path, content).load(None)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"tokenizer": "bytes", "vocabulary_size": 200}, "data.vocabulary_size"),
        ({"valid_fraction": 0.5, "test_fraction": 0.5}, "data.test_fraction"),
    ],
)
def test_options_that_make_no_sense_break_a_rule(options, key):
    broken = [rule for rule, holds in DATA["names"](**options).rules(()).items() if not holds]
    assert len(broken) == 1
    assert key in broken[0]


def test_the_vowels_of_a_made_name_are_of_one_kind():
    names = toy.names(0, 1_000)
    assert all(map(toy.in_harmony, names))
    assert len(set(names)) > 900
    assert not toy.in_harmony("Kalide")
    assert not toy.in_harmony("Krs")


def test_repeated_letters_are_different_letters_twice():
    lines = toy.repeated_letters(0, 200, min_length=5, max_length=24)
    for line in lines:
        half = line[: len(line) // 2]
        assert line == half * 2
        assert len(set(half)) == len(half)
    assert {len(line) // 2 for line in lines} == set(range(5, 25))


def test_an_answer_is_the_newest_value_of_its_key():
    for line in recall.lines(0, 100, 5, 3):
        pairs, answers = line.split("?")
        newest = dict(zip(pairs[::2], pairs[1::2]))  # a dict keeps the last value of a key
        assert dict(zip(answers[::2], answers[1::2])) == newest
        assert [pairs[::2].count(key) for key in newest] == [3] * 5
        assert len(answers) == 10
    data = DATA["recall"](num_lines=40, max_keys=4, test_fraction=0.5)
    text = data.load(None).splits["train"].inputs
    assert {line.index("?") // 6 for line in text.split("\n")} == {1, 2, 3, 4}


def test_empty_lines_are_no_texts_of_a_set_of_lines():
    lines = [f"line {i}" for i in range(40)]
    data = DATA["repeats"](valid_fraction=0.25, test_fraction=0.25)
    splits, apart = data.split("\n\n".join(lines)), data.split("\n".join(lines))
    assert splits == apart
    assert [len(rows.inputs.split("\n")) for rows in splits.values()] == [20, 10, 10]
