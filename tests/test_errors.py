"""How an error is shortened, and what is counted and escaped in it."""

import pytest

from flax_attn.errors import (
    LONGEST,
    UsageError,
    counted,
    escaped,
    escaped_lines,
    one_line,
    shortened,
    unknown,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a" * 9, "a" * 9), ("abcdefghij", "abc...hij"), ("abcdefghijk", "abc...ijk")],
)
def test_a_long_text_keeps_its_beginning_and_its_end(text, expected):
    assert shortened(text, 9) == expected


@pytest.mark.parametrize("longest", range(5, 12))
def test_a_shortened_text_is_never_longer_than_it_may_be(longest):
    assert len(shortened("0123456789" * 3, longest)) <= longest


def test_an_error_is_one_line_of_some_length():
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(ValueError()) == "ValueError"
    assert len(one_line(ValueError("x" * 10**6))) <= LONGEST
    assert len(str(UsageError("x" * 10**6))) <= LONGEST
    assert str(UsageError("a\nb\x1b")) == "a\\nb\\x1b"


def test_a_number_has_its_noun():
    assert counted(1, "row") == "1 row"
    assert counted(0, "row") == "0 rows"
    assert counted(1234, "row") == "1,234 rows"
    assert counted(2, "class", "classes") == "2 classes"
    assert counted(1, "class", "classes") == "1 class"


def test_lines_stay_lines_where_they_may():
    assert escaped("a\tb\nc") == "a\\tb\\nc"
    assert escaped_lines("a\tb\nc\u202e") == "a\\tb\nc\\u202e"
    assert escaped("é 漢 😀") == "é 漢 😀"


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("model.droput", ["model.dropout", "data.dropout"], "model.dropout"),
        ("lr", ["learning_rate", "batch_size"], "learning_rate"),
        ("data.path", ["data.file", "data.name"], "data.file"),
        ("data.train_file", ["data.file", "data.train_fraction"], "data.file"),
        ("batchsize", ["batch_size", "num_epochs"], "batch_size"),
    ],
)
def test_the_nearest_name_is_told(name, known, nearest):
    assert unknown("key", name, known).endswith(f"; did you mean '{nearest}'?")


def test_names_without_a_near_one_are_listed():
    said = unknown("key", "zzz", ["one", "two"])
    assert said == "unknown key 'zzz'; expected one of one, two"
    many = unknown("key", "zzz", [f"a_long_name_{i:03}" for i in range(100)])
    assert len(many) <= LONGEST
    assert many.endswith(" more")
