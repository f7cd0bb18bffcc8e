"""Your own texts: a table of texts and labels, with a bidirectional GRU and attention
over its states.

Task     any labels; one file is split 70 / 15 / 15 within each class, or a second file has the
         test split
Source   the model of ag_news_rnn_attention, with a GRU in both directions
Command  python train.py --config=configs/text_csv.py --config.data.file=FILE.csv (or .tsv)
         [--config.data.test_file=FILE.csv] [--config.data.text_column=text
         --config.data.label_column=label]; a column is a name in the first row, or a number from 1
Expect   no figure, it depends on your texts
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {
        "name": "text_csv",
        "valid_fraction": 0.15,
        "test_fraction": 0.15,  # of the one file; none where there is a test_file
        "vocabulary_size": 20_000,
        "max_length": 64 if variant else 200,
        "num_buckets": 1 if variant else 4,
    }
    model = {
        "name": "rnn_attention",
        "cell": "gru",
        "features": 64,
        "bidirectional": True,
        "dropout_rate": 0.5,
        "embedding_dropout_rate": 0.3,
        "initialization": "flax",
    }
    config = recipes.texts("text_csv", variant, data, model)
    config.num_epochs = 5 if variant else 20
    config.steps_per_epoch = 60 if variant else 0  # as many for a small table as for a large one
    config.patience = 4
    return config
