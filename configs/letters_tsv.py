"""Your own pairs of words, letter by letter: words to phonemes, inflections, transliteration.

A TSV or CSV file has one pair in each row. The case of letters is kept.

Task     the letters of one column become those of another; 5 % of the sources are for validation,
         5 % for the test
Source   the encoder-decoder of Bahdanau et al. 2015 (arXiv:1409.0473)
Command  python train.py --config=configs/letters_tsv.py --config.data.file=FILE.tsv (or .csv)
Expect   `translations.tsv` in the run directory; of 8,000 English words to phonemes (cmudict)
         exact match 0.49 ± 0.05 and 1.8 ± 0.2 edits of 17; 8 minutes
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    num_buckets = 1 if variant else 3  # each is compiled
    data = {"name": "pairs", "tokenizer": "character", "preprocessing": "cased"}
    data |= {"num_buckets": num_buckets}
    model = {"embedding_features": 64, "features": 112 if variant else 256}
    model |= {"attention_features": 64, "dropout_rate": 0.3}
    config = recipes.translation("letters_tsv", variant, data, model)
    config.num_epochs = 4 if variant else 30
    config.steps_per_epoch = 150 if variant else 0  # as many for a small file as for a large one
    config.learning_rate = 3e-3
    config.optimizer.schedule = "cosine"
    return config
