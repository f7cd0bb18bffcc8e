"""What simple classifiers get right, beside a model."""

import pytest

from flax_attn.tasks import baselines
from flax_attn.tasks.baselines import LARGEST, TF_IDF

TRAIN = ["fine film", "lovely film", "fine plot", "dull film"], ["good", "good", "good", "bad"]
TEST = ["dull plot", "dull dull", "fine fine", "dull dull film"], ["bad", "bad", "good", "bad"]


def test_the_largest_class_is_that_of_training_and_words_tell_more():
    shares = baselines.measure(TRAIN, TEST)
    assert list(shares) == [LARGEST, TF_IDF]
    assert shares[LARGEST] == 0.25
    balanced = TRAIN[0] + ["dull plot", "dull"], TRAIN[1] + ["bad", "bad"]
    assert baselines.measure(balanced, TEST)[TF_IDF] == 1


def test_what_is_missing_is_said_with_how_to_get_it(monkeypatch):
    told = baselines.lines(baselines.measure(TRAIN, TEST), 0.5)
    assert len(told) == 1
    assert "test accuracy 0.500; beside it: the largest class alone 0.250, TF-IDF" in told[0]
    monkeypatch.setattr(baselines, "has_sklearn", lambda: False)
    shares = baselines.measure(TRAIN, TEST)
    assert shares == {LARGEST: 0.25}
    assert 'pip install "flax-attn[baseline]"' in baselines.lines(shares, 0.5)[1]
    assert baselines.clause(shares) == "the largest class alone 25 %"


@pytest.mark.parametrize("texts", [["a", "b", "c", "d"], TRAIN[0] * 5_001])
def test_texts_without_words_and_too_many_have_the_largest_class_alone(texts):
    labels = ["good", "good", "good", "bad"] * (len(texts) // 4)
    assert baselines.measure((texts, labels), TEST) == {LARGEST: 0.25}
