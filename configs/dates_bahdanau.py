"""Dates as people write them, to ISO 8601, letter by letter.

Task     `tuesday, 11 july 2006` becomes `2006-07-11`: there are eight ways to write a date,
         and the month is always a name
Source   made in code; the encoder-decoder of Bahdanau et al. 2015 (arXiv:1409.0473)
Command  python train.py --config=configs/dates_bahdanau.py
Expect   exact match 1.000; the month's digits put 0.87 of their weight on its name (3 seeds); 1
         minute a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    # each bucket is compiled
    data = {"name": "dates", "tokenizer": "character", "num_buckets": 1 if variant else 3}
    model = {"embedding_features": 32, "features": 128, "attention_features": 64}
    config = recipes.translation("dates_bahdanau", variant, data, model)
    config.num_epochs = 2 if variant else 12
    config.learning_rate = 3e-3
    config.optimizer.schedule = "cosine"
    return config
