import re

import numpy as np
import pytest

from flax_attn.data import text
from flax_attn.data.ngrams import pairs
from flax_attn.data.text import PREPROCESSING, RULES, RULES_OF_PAIRS
from flax_attn.errors import UsageError
from tests.by_rules import preprocessed


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("Great week for the NYSE!", "great week nyse"),
        ("Oil (Reuters) rises, again", "oil rises"),
        ("Don't stop 24-7 trading", "stop 24 7 trading"),
        ("", ""),
        ("The of and", ""),
    ],
)
def test_news_are_cleaned_as_in_the_tutorial(raw, expected):
    assert text.clean_news(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("U.S. stocks&lt;b&gt; up 12%", "us stocks up 00 %"),
        ("AT#38;T's 2004 profit", "at t 2004 profit"),
        ("AT&amp;amp;T &amp;mdash; up", "at t up"),
        ("a 1234567-dollar\\deal (Reuters)", "a 00000 - dollar deal ( reuters )"),
        ("", ""),
    ],
)
def test_news_come_apart_into_words_numbers_and_marks(raw, expected):
    assert text.split_news(raw) == expected


def test_there_are_179_stop_words():
    assert len(set(text.STOP_WORDS.split())) == 179


def test_words_clitics_and_punctuation_come_apart():
    assert (
        text.split_words("It's a well-made film, isn't it?")
        == "it 's a well-made film , is n't it ?"
    )


def test_marks_stand_at_both_ends_and_a_space_that_does_not_break_stays():
    assert text.mark_ends("Two 2\xa01/2 stars") == "<S> two 2\xa01/2 stars </S>"


def test_rows_are_filled_up_and_cut():
    tokens, lengths = text.pad([[2, 3, 4], [], [5]])
    np.testing.assert_array_equal(tokens, [[2, 3, 4], [0, 0, 0], [5, 0, 0]])
    np.testing.assert_array_equal(lengths, [3, 0, 1])
    tokens, lengths = text.pad([[2, 3, 4], [5]], 2)
    np.testing.assert_array_equal(tokens, [[2, 3], [5, 0]])
    np.testing.assert_array_equal(lengths, [2, 1])
    assert text.pad([[]])[0].shape == (1, 1)


def test_a_label_that_training_does_not_know_is_told():
    np.testing.assert_array_equal(text.encode_labels(["b", "a"], ["a", "b"]), [1, 0])
    with pytest.raises(UsageError, match="a label of the training split, a, b, got 'c'"):
        text.encode_labels(["c"], ["a", "b"])


HARD = [
    "It's a HIT (really!) for the U.S. team: 12% up, 1999, 123456 or 7.",
    "&lt;b&gt;Fish &amp; chips&lt;/b&gt; &#39;fine&#39; quot;x quot; #39; a\\\\b <i>x</i>",
    "don't can't  they'll   state-of-the-art -- well-\nline\ttab\u00a0no break  ",
    "( open [x] ) ) ( never closed < nor this",
    "\u0130stanbul STRASSE \u00c9t\u00e9 \u6f22\u5b57 \u0663\u0664 x\u00b2 \u0661",
    "",
    "   ",
    "a",
]


@pytest.mark.parametrize("name", sorted(PREPROCESSING))
def test_rules_for_other_programs_do_the_same(name):
    random = np.random.default_rng(0)
    marks = np.array(
        [*"abtT'n.()<>&;#-_ \n%0123456789\u00e9", " the ", "n't ", "'s ", "&amp;", "U.S."]
    )
    texts = HARD + ["".join(random.choice(marks, 30)) for _ in range(300)]
    for raw in texts:
        cleaned = PREPROCESSING[name](raw)
        by_rules = preprocessed(raw, RULES[name])
        assert re.findall("[^ ]+", by_rules) == re.findall("[^ ]+", cleaned), repr(raw)
        assert preprocessed(cleaned, RULES_OF_PAIRS).split() == pairs(cleaned).split(), repr(raw)
