"""Intervals, simple models, and what is said of a run beside them."""

import math

import numpy as np
import pytest

from flax_attn.tasks import baselines, comparison
from flax_attn.tasks.targets.texts import edits

TRAIN = ["fine film", "lovely film", "fine plot", "dull film", "dull plot", "dull"]
TEST = ["dull plot", "dull dull", "fine fine", "dull dull film"]


def test_intervals_are_those_of_the_textbooks():
    """Wilson's for 81 of 263, as in Newcombe (1998); Student's for ten numbers."""
    hits = np.arange(263) < 81
    found = comparison.wilson(1.0 * hits)
    assert (found["low"], found["high"]) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    numbers = np.arange(10.0)
    room = 2.2622 * numbers.std(ddof=1) / math.sqrt(10)  # the quantile of nine degrees of freedom
    found = comparison.student(numbers)
    assert found["mean"] == 4.5
    assert found["high"] - 4.5 == pytest.approx(room, rel=0.003)


def test_a_verdict_is_seldom_wrong_and_finds_what_is_large():
    """Of 400 pairs of models that differ on a share of the test examples.

    One half has one true accuracy, the other differs by three standard errors of the difference.
    """
    random = np.random.default_rng(0)
    said = {0: 0, 3: 0}  # "better", by the number of standard errors
    for errors in said:
        for _ in range(200):
            number = int(random.integers(30, 3_000))
            differ = random.uniform(max(0.02, 9 / (number + 9)), 0.5)
            gain = errors * math.sqrt(differ / (number + 9))
            shares = (differ + gain) / 2, (differ - gain) / 2, 1 - differ
            kind = random.choice(3, size=number, p=shares)  # the run alone, the other alone, both
            own, other = 1.0 * (kind != 1), 1.0 * (kind != 0)
            (one,) = comparison.compare({"accuracy": own}, {"x": {"accuracy": other}})
            said[errors] += comparison.verdict(one["beside"][0]) == "better than"
    assert said[0] <= 10
    assert said[3] >= 160


def test_less_is_better_of_errors():
    far, near = np.array([3.0, 4, 5, 3]), np.array([1.0, 1.5, 2, 1])
    (one,) = comparison.compare({"mae": near}, {"the mean": {"mae": far}, "x": {"mae": near}})
    assert comparison.sentence(one) == "not distinguishable from x; better than the mean"
    (one,) = comparison.compare({"mae": far}, {"x": {"mae": near}})
    _, beside, verdict = comparison.lines([one])
    assert beside.startswith("  x: 1.375 (difference +2.4, 95 % interval +")
    assert verdict == "  so the run is worse than x"
    gap = comparison.difference("chrF", comparison.against("chrF", "x", near, far))
    assert gap["mean"] == pytest.approx((near - far).mean())
    assert comparison.compare({"mae": near[:1]}, {}) == []  # one example has no interval
    (alone,) = comparison.compare({"mae": near}, {})
    assert comparison.sentence(alone) == ""
    assert len(comparison.lines([alone])) == 1


def test_words_tell_classes_apart():
    labels = np.array([1, 1, 1, 0, 0, 0])
    found = baselines.predicted(baselines.of_words(TRAIN, TEST), labels, of_classes=True)
    assert {name: row.tolist() for name, row in found.items()} == {
        "logistic regression on TF-IDF": [0, 0, 1, 0]
    }
    assert baselines.of_words(["a", "b"], ["a"]) is None  # no word of two letters
    assert baselines.predicted(None, labels, of_classes=True) == {}
    assert baselines.predicted(baselines.of_words(TRAIN, TEST), 0 * labels, True) == {}


@pytest.mark.parametrize("of", [baselines.of_pixels, baselines.of_signals])
def test_what_is_high_is_told_from_what_is_low(of):
    random = np.random.default_rng(0)
    rows, labels = random.normal(size=(200, 20, 2)), np.arange(200) % 2
    rows[np.arange(200), random.integers(0, 20, 200), 0] += np.where(labels, 6, -6)
    features = of(rows[:150], rows[150:])
    (answers,) = baselines.predicted(features, labels[:150], of_classes=True).values()
    is_summed_up = of is baselines.of_signals  # a peak may stand anywhere
    assert (answers == labels[150:]).mean() > (0.95 if is_summed_up else 0.6)
    (numbers,) = baselines.predicted(features, rows[:150].mean(axis=(1, 2)), False).values()
    np.testing.assert_allclose(numbers, rows[150:].mean(axis=(1, 2)), atol=0.05)


@pytest.mark.parametrize(
    ("text", "reference", "number"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2), ("a", "a", 0)],
)
def test_edits_are_counted(text, reference, number):
    assert edits(text, reference) == edits(reference, text) == number
