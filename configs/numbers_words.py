"""The largest of the numbers in a text: `the old boats and seven red hats and three birds` has 7.

Task     one number for each text; up to three of its words are numbers, and the model has to find
         the largest
Source   made in code; the model of text_csv, whose one logit is the number
Command  python train.py --config=configs/numbers_words.py
Expect   test MAE 0.053, where always the mean is off by 2.7; the largest number has 0.60 to 0.86 of
         the weight (3 seeds); half a minute a seed on 2 cores
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "largest_count", "num_buckets": 4}
    data |= {"num_train": 4_000, "num_buckets": 1} if variant else {}
    model = {
        "name": "rnn_attention",
        "embedding_features": 32,
        "cell": "gru",
        "features": 32,
        "bidirectional": True,
        "hidden_features": 64,
        "dropout_rate": 0.0,  # every number is exact, and examples are made in code
        "initialization": "flax",
    }
    config = recipes.texts("numbers_words", variant, data, model)
    config.num_epochs = 5 if variant else 20
    config.learning_rate = 3e-3  # for few epochs
    config.optimizer.schedule = "cosine"
    return config
