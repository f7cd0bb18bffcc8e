"""Which words mattered: a token that is left out, and words over many texts."""

import io

import numpy as np
import pytest
from rich.console import Console

from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets.texts import TextCSV
from flax_attn.tasks import evidence
from flax_attn.tasks.evidence import Mattered
from flax_attn.tasks.inputs.texts import Texts

TEXTS = ["a fine old film , not dull", "dull", "fine fine film"]


def encoder(**data):
    rows = Columns(TEXTS, ["good", "bad", "good"])
    data_set = TextCSV(file="own.csv", vocabulary_size=50, **data)
    return Texts.fit(data_set, Raw({"train": rows}), False)


@pytest.mark.parametrize("data", [{}, {"num_ngrams": 30}, {"num_ngrams": 30, "num_pairs": 20}])
@pytest.mark.parametrize("text", [*TEXTS, "a fine unheard film"])
def test_a_row_has_the_inputs_of_the_text_without_one_of_its_words(text, data):
    made, words = encoder(**data), text.split()
    rows = evidence.leaving_out(made, text)
    assert {len(own) for own in rows.values()} == {len(words) + 1}
    for i in range(-1, len(words)):
        fewer = words if i < 0 else [*words[:i], *words[i + 1 :]]
        expected = made.inputs([" ".join(fewer)])
        assert rows["lengths"][i + 1] == len(fewer)
        for name in expected.keys() - {"lengths"}:
            own, right = rows[name][i + 1], expected[name][0]
            np.testing.assert_array_equal(own[: len(right)], right)
            assert not own[len(right) :].any()


def test_a_text_that_is_cut_stays_cut():
    made = encoder(max_length=3)
    rows = evidence.leaving_out(made, "a fine old film")
    numbers = made.tokenizer.encode("a fine old")
    np.testing.assert_array_equal(rows["tokens"][0, :3], numbers)
    np.testing.assert_array_equal(rows["tokens"][1, :3], [*numbers[1:], 0])
    assert rows["lengths"].tolist() == [3, 2, 2, 2]


def test_words_are_those_without_which_a_class_falls_most_on_average():
    tokens = [["a", "fine", "film"], ["a", "dull", "film"]] * 3 + [["rare", "fine"]]
    good, bad = [[0.1, -0.1], [-0.5, 0.5], [0.0, 0.0]], [[-0.1, 0.1], [0.4, -0.4], [0.1, -0.1]]
    moved = [np.array(own) for own in [good, bad] * 3 + [[[-0.9, 0.9], [-0.1, 0.1]]]]
    table = evidence.words_by_class(tokens, moved, ["good", "bad"], 5)
    (fine,) = table["good"]  # "a" moves nothing on average, and "rare" comes once
    assert (fine.word, fine.count) == ("fine", 4)
    np.testing.assert_allclose(fine.change, (3 * -0.5 - 0.1) / 4)
    assert [(own.word, own.count) for own in table["bad"]] == [("dull", 3), ("film", 6)]
    np.testing.assert_allclose([own.change for own in table["bad"]], [-0.4, -0.05])
    assert len(evidence.words_by_class(tokens, moved, ["good", "bad"], 1)["bad"]) == 1
    once = evidence.words_by_class([["fine"]], [np.array([[-0.5, 0.5]])], ["good", "bad"], 5)
    assert once == {"good": [Mattered("fine", -0.5, 1, once["good"][0].distinct)], "bad": []}


def test_a_word_that_moves_a_class_is_told_from_noise():
    random = np.random.default_rng(0)
    tokens = [["noise", "more", "film", "fine"]] * 100
    moved = [random.normal(0, 0.01, (4, 2)) for _ in tokens]
    for own in moved:
        own[3] = -0.2, 0.0
    table = evidence.words_by_class(tokens, moved, ["good", "never"], 5)
    first, *others = table["good"]
    assert (first.word, first.distinct) == ("fine", True)
    assert not any(own.distinct for own in [*others, *table["never"]])


def test_small_changes_have_digits_enough():
    assert [evidence.points(own).strip() for own in (-0.107, 0.24, 0.0000123, 0.0)] == [
        "-10.7",
        "+24.0",
        "+0.00123",
        "+0.00",
    ]
    words = {"token": "fine", "change": -0.0312, "weight": 0.1}
    row = {"classes": {"good\x1b[31m": 0.9}, "tokens": [words] * 12}
    lines = printed(row)
    assert lines[1].split() == ["-3.12", "fine", "weight", "0.10"]
    assert len(lines) == 1 + evidence.SHOWN + 1
    assert lines[-1] == "  2 further words: by at most 3.1"
    assert "\x1b" not in "".join(lines)
    row["tokens"] = row["tokens"][:-1]
    assert printed(row)[-1] == "  1 further word: by at most 3.1"


def printed(row):
    file = io.StringIO()
    evidence.print_why(row, Console(file=file, width=100))
    return file.getvalue().splitlines()


def test_words_are_printed_whole_lines_each_with_escapes():
    console = Console(file=io.StringIO(), width=200)
    evidence.print_words({"good": [Mattered("a\x1b[31mb\n", -0.125, 7, True)]}, 12, console)
    heading, name, line = console.file.getvalue().splitlines()
    assert heading.endswith("(the mean over their occurrences in 12 texts):")
    assert name == "good"
    assert line.split() == ["-12.5", "7", "times", "a\\x1b[31mb↵"]
