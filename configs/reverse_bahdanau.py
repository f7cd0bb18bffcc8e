"""Letters in reverse: a small translation task with a known alignment.

Task     `d a f` becomes `f a d`: 3 to 12 letters of 26; the decoder has to attend from the last
         letter to the first
Source   made in code; the encoder-decoder of Bahdanau et al. 2015 (arXiv:1409.0473)
Command  python train.py --config=configs/reverse_bahdanau.py
Expect   exact match 1.000, and 0.93 of the weight on the anti-diagonal (5 seeds, the lowest 0.90);
         half a minute a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "reverse", "num_buckets": 1 if variant else 3}  # each is compiled
    model = {"embedding_features": 32, "features": 64, "attention_features": 128}
    # without dropout the neighbours of a letter, whose states know it too, get a fifth of its
    # weight
    model |= {"dropout_rate": 0.2}
    config = recipes.translation("reverse_bahdanau", variant, data, model)
    config.num_epochs = 4 if variant else 12
    config.learning_rate = 5e-3
    config.optimizer.schedule = "cosine"
    return config
