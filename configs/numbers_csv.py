"""Your own texts and numbers: a CSV or TSV file, such as of reviews and their stars.

Task     any number for each text; one file is split 70 / 15 / 15 at random, or a second file has
         the test split
Source   the model of text_csv, whose one logit is the number
Command  python train.py --config=configs/numbers_csv.py --config.data.file=FILE.csv (or .tsv)
         [--config.data.test_file=FILE.csv] [--config.data.text_column=text
         --config.data.number_column=number]; a column is a name in the first row, or a number
         from 1
Expect   no figure, it depends on your texts
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {
        "name": "number_csv",
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
    config = recipes.texts("numbers_csv", variant, data, model)
    config.num_epochs = 5 if variant else 20
    config.steps_per_epoch = 60 if variant else 0  # as many for a small table as for a large one
    config.patience = 4
    return config
