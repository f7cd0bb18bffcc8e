"""German to English on Multi30k: a recurrent encoder-decoder with additive attention.

Task     descriptions of photographs; `data.source` and `data.target` choose among de, en and fr,
         and `data.max_words` leaves out longer ones
Source   Bahdanau et al. 2015 (arXiv:1409.0473); Elliott et al. 2016 (arXiv:1605.00459); 8,000
         byte-pair tokens for both languages
Command  python train.py --config=configs/translate_multi30k.py --manual_dir=DIR
Expect   test_2016 (seed 0): BLEU 41.1 with a beam of 5, 40.0 greedily (sacrebleu
         nrefs:1|case:lc|eff:no|tok:13a|smooth:exp), chrF 60.4; 53 minutes on 2 cores while
         other work ran. With :quick, BLEU 18 on captions of at most 8 words
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "multi30k", "tokenizer": "bpe", "vocabulary_size": 8_000}
    data |= {"shared_vocabulary": True, "num_buckets": 6}
    model = {"features": 512, "dropout_rate": 0.4, "tied_embeddings": True}
    if variant:  # a small model learns short captions in a minute
        data |= {"max_words": 8, "vocabulary_size": 5_000, "num_buckets": 1}
        model |= {"embedding_features": 128, "features": 128, "attention_features": 64}
        model["dropout_rate"] = 0.1
    config = recipes.translation("translate_multi30k", variant, data, model)
    config.num_epochs = 3 if variant else 20
    config.batch_size = 32 if variant else 64
    config.learning_rate = 5e-3 if variant else 1e-3
    config.label_smoothing = 0.1
    config.optimizer.update({"schedule": "cosine", "warmup_steps": 50 if variant else 400})
    return config
