"""Texts in classes, as a task."""

import numpy as np
import pytest
from flax_attn.tasks.texts import TextClasses

from configs import text_csv
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config


def load(folder, **data):
    lines = [f"{'word ' * (1 + i % 7)}w{i},{'ab'[i % 2]}" for i in range(60)]
    file = folder / "texts.csv"
    file.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    config = text_csv.get_config()
    config.data.update(data | {"file": str(file)})
    config = Config.of(config)
    return TextClasses.load(config.data, config.recipe, None)


def test_words_are_those_of_the_kept_rows_also_where_rows_are_sorted_by_length(tmp_path):
    """`examples` keeps the words beside the tokens and weights of the first test rows."""
    task = load(tmp_path)
    rows, tokenizer = task.test["inputs"], task.encoder.tokenizer
    assert task.data.num_buckets > 1
    assert len(set(rows["lengths"].tolist())) > 3
    for words, tokens, length in zip(task.words, rows["tokens"], rows["lengths"]):
        known = [word.strip("()[]") for word in words]
        np.testing.assert_array_equal(tokens[:length], tokenizer.encode(" ".join(known)))


def test_the_marks_of_start_and_end_are_no_words_that_the_run_knows(tmp_path):
    task = load(tmp_path, preprocessing="marked", num_ngrams=0, num_pairs=0)
    parts = [("<S>", True), ("none", False), ("word", True), ("</S>", True)]
    assert task.encoder.checked_parts(["none word"]) == [parts]
    with pytest.raises(UsageError, match="at least one word that the run has seen, got none in"):
        task.encoder.checked_parts(["none of these"])
