"""Your own pairs of sentences, by a smaller model than that of `configs/translate_multi30k.py`.

A TSV file has one pair in each line, with a tab between. A CSV file works, too.

Task     one column becomes another; 5 % of the sources are for validation, 5 % for the test
Source   Bahdanau et al. 2015 (arXiv:1409.0473)
Command  python train.py --config=configs/translate_tsv.py --config.data.file=FILE.tsv (or .csv)
Expect   `translations.tsv` in the run directory, and BLEU and chrF in the table of results. With
         :quick and 1,500 pairs of Multi30k, BLEU 19
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "pairs", "tokenizer": "bpe", "vocabulary_size": 8_000}
    data["shared_vocabulary"] = True
    model = {"dropout_rate": 0.3, "tied_embeddings": True}
    if variant:  # a small model writes some right words after a minute
        data |= {"vocabulary_size": 2_000, "num_buckets": 1}
        model |= {"embedding_features": 128, "features": 128, "attention_features": 64}
        model["dropout_rate"] = 0.2
    config = recipes.translation("translate_tsv", variant, data, model)
    config.num_epochs = 4 if variant else 20
    config.steps_per_epoch = 150 if variant else 0  # as many for a small file as for a large one
    config.batch_size = 32 if variant else 64
    config.learning_rate = 3e-3 if variant else 1e-3
    config.label_smoothing = 0.1
    return config
