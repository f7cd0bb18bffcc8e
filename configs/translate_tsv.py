"""The user's own pairs of sentences, one pair a line with a tab between, as `configs/translate_multi30k.py` translates.

Task     the first column becomes the second; 5 % of the lines validate and 5 % test
Source   Bahdanau et al. 2015 (arXiv:1409.0473)
Command  python train.py --config=configs/translate_tsv.py --config.data.file=FILE.tsv
Expect   `translations.tsv` in the run directory, and BLEU and chrF beside
"""

from typing import Any

from configs import base


def get_config(variant: str = "") -> Any:
    data = {"name": "pairs", "file": "", "valid_fraction": 0.05, "test_fraction": 0.05, "preprocessing": "words", "vocabulary_size": 8_000}
    model = {"embedding_features": 256, "features": 256, "attention_features": 256, "dropout_rate": 0.3}
    config = base.translation("translate_tsv", variant, data, model)
    config.num_epochs = 2 if variant else 20
    config.label_smoothing = 0.1
    return config
