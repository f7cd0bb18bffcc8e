"""Texts as tokens, in translation."""

import numpy as np
import pytest

from configs import dates_bahdanau
from flax_attn.data.raw import Columns, Raw
from flax_attn.data.sets import Reverse
from flax_attn.data.sets.texts import TextCSV
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from flax_attn.tasks.inputs.pairs import Pairs
from flax_attn.tasks.inputs.texts import Texts
from flax_attn.tasks.translation import TextsOfTexts


def load(config):
    config = Config.of(config)
    return TextsOfTexts.load(config.data, config.recipe, None)


def test_tokens_and_their_marks():
    config = dates_bahdanau.get_config()
    config.data.update({"num_train": 50, "num_valid": 5, "num_test": 5, "num_buckets": 1})
    task = load(config)
    rows, pairs, reader = task.tested, task.raw.splits["test"], task.inputs
    inputs, mark = rows["inputs"], reader.target.size
    assert task.kept.sizes == {
        "source_vocabulary_size": reader.source.size,
        "target_vocabulary_size": mark + 1,
    }
    for i, (source, text) in enumerate(zip(*pairs[:2])):
        target, length = rows["targets"][i], inputs["target_lengths"][i]
        assert reader.write(target[: length - 1].tolist()) == text
        assert target[length - 1] == inputs["target"][i, 0] == mark
        np.testing.assert_array_equal(inputs["target"][i, 1:length], target[: length - 1])
        np.testing.assert_array_equal(target[length:], 0)
        assert inputs["source_lengths"][i] == len(source)
    longest = task.inputs.longest["source"]
    train, test = (
        {
            reader.source.decode(row[:length].tolist())
            for row, length in zip(some["source"], some["source_lengths"])
        }
        for some in (task.rows.train["inputs"], inputs)
    )
    assert (len(train), len(test)) == (50, 5)
    assert max(map(len, train)) == longest
    assert not train & test


def test_a_pair_may_have_as_many_tokens_as_the_data_say():
    config = dates_bahdanau.get_config()
    config.data.update({"num_train": 50, "num_valid": 5, "num_test": 5})
    longest = load(config).inputs.longest["source"]
    config.data.max_length = longest
    assert load(config).inputs.longest["source"] == longest
    config.data.max_length = longest - 1
    with pytest.raises(UsageError, match=f"data.max_length={longest - 1} .* got {longest} and"):
        load(config)


@pytest.mark.parametrize("kind", [Texts, Pairs])
def test_tokenizers_of_other_sizes_than_the_models_are_told(kind):
    if kind is Texts:
        data, texts = TextCSV(file="own.csv", vocabulary_size=50), ["a fine film", "a dull film"]
        encoder = Texts.fit(data, Raw({"train": Columns(texts, ["good", "bad"])}), False)
    else:
        data = Reverse()
        encoder = Pairs.fit(data, Raw({"train": Columns(["a b", "c"], ["b a", "c"])}), False)
    kept = encoder.kept
    assert kind.restore(data, kept).kept == kept
    name = next(iter(kept.sizes))
    wrong = kept._replace(sizes=kept.sizes | {name: 9})
    with pytest.raises(ValueError, match=name):
        kind.restore(data, wrong)
