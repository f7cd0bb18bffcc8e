"""Texts in classes, as a task."""

import numpy as np

from configs import text_csv
from flax_attn.experiment.config import Config
from flax_attn.tasks import TextClasses


def test_words_are_those_of_the_kept_rows_also_where_rows_are_sorted_by_length(tmp_path):
    """`examples` keeps the words beside the tokens and weights of the first test rows."""
    lines = [f"{'word ' * (1 + i % 7)}w{i},{'ab'[i % 2]}" for i in range(60)]
    file = tmp_path / "texts.csv"
    file.write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    config = text_csv.get_config()
    config.data.train_file = str(file)
    config = Config.of(config)
    task = TextClasses.load(config.data, config.recipe, None)
    rows, tokenizer = task.test["inputs"], task.encoder.tokenizer
    assert config.data.num_buckets > 1
    assert len(set(rows["lengths"].tolist())) > 3
    for words, tokens, length in zip(task.words, rows["tokens"], rows["lengths"]):
        known = [word.strip("()[]") for word in words]
        np.testing.assert_array_equal(tokens[:length], tokenizer.encode(" ".join(known)))
