"""AG News, title and description: the best model that is trained on its own files alone.

Its inputs are words, character n-grams and pairs of words. Several attention hops pool them.

Task     World, Sports, Business or Sci/Tech, from title and description, on the official test split
Source   the training file alone; nothing pretrained
Command  python train.py --config=configs/ag_news_best.py --config.num_seeds=5 --manual_dir=DIR
Expect   weighted F1 0.8988 +- 0.0028, the five as an ensemble 0.9034 (TF-IDF bigrams and logistic
         regression: 0.901), 7 minutes a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {
        "name": "ag_news",
        "valid_fraction": 0.0,  # the choices below were made with 0.1; now every row trains
        "preprocessing": "news words",
        "vocabulary_size": 17_000,
        "max_length": 128,
        "num_ngrams": 30_000,
        "num_pairs": 63_000,
        "num_buckets": 5,
    }
    model = {
        "name": "ngram_attention",
        "encoders": ("convolution", "gru"),
        "num_hops": 8,
        "word_dropout_rate": 0.65,
        "embedding_dropout_rate": 0.5,
    }
    config = recipes.texts("ag_news_best", variant, data, model)
    if variant:  # fewer words and n-grams, in batches of one length, at a higher rate
        config.data.update({"vocabulary_size": 10_000, "num_ngrams": 10_000, "num_pairs": 10_000})
        config.data.update({"max_length": 32, "num_buckets": 1})
    config.num_epochs = 1 if variant else 6
    config.steps_per_epoch = 40 if variant else 264  # once through the 16,925 rows
    config.evaluate = ("test",)
    config.keep_best = False
    config.patience = 0
    config.learning_rate = 5e-3 if variant else 2e-3
    config.class_weights = True
    config.label_smoothing = 0.1
    config.optimizer.update({"schedule": "cosine", "clip_norm": 1.0})
    config.optimizer.warmup_steps = config.get_oneway_ref("steps_per_epoch") // 2
    return config
