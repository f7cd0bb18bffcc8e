"""German to English on Multi30k by a small Transformer.

Task     that of `configs/translate_multi30k.py`
Source   Vaswani et al. 2017 (arXiv:1706.03762), with the norm before each part; the same 8,000
         byte-pair tokens
Command  python train.py --config=configs/translate_multi30k_transformer.py --manual_dir=DIR
Expect   test_2016 (seed 0): BLEU 38.9 with a beam of 5, 37.9 greedily, chrF 58.7; 28 minutes on 2
         cores. With :quick, BLEU 12 on captions of at most 8 words
"""

from typing import Any

from flax_attn import recipes
from flax_attn.configs import translate_multi30k


def get_config(variant: str = "") -> Any:
    data = dict(translate_multi30k.get_config(variant).data)
    model = {"name": "translation_transformer", "shared_embeddings": True}
    model |= {"dropout_rate": 0.3, "attention_dropout_rate": 0.1}
    if variant:
        data["num_train"] = 3_500
        model |= {"features": 128, "num_blocks": 1, "hidden_features": 256, "dropout_rate": 0.1}
    config = recipes.translation("translate_multi30k_transformer", variant, data, model)
    config.num_epochs = 3 if variant else 12
    config.batch_size = 32 if variant else 128
    config.learning_rate = 4e-3 if variant else 2e-3
    config.label_smoothing = 0.1
    config.optimizer.update({"b2": 0.98, "schedule": "cosine"})
    config.optimizer.warmup_steps = 50 if variant else 600
    return config
