"""SST in three classes with a bidirectional LSTM and structured self-attention.

The tutorial on recurrent networks leaves this model as an exercise.

Task     negative, neutral or positive
Source   Lin et al. 2017 (arXiv:1703.03130), with its squared penalty
Command  python train.py --config=configs/sst_structured.py --manual_dir=DIR
Expect   test accuracy 0.653 +- 0.014 (3 seeds; ensemble 0.666), 45 seconds a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {
        "name": "sst",
        "preprocessing": "marked",
        "vocabulary_size": 20_000,
        "num_buckets": 1 if variant else 4,
    }
    model = {"name": "structured_attention", "features": 64, "hidden_features": 64}
    config = recipes.texts("sst_structured", variant, data, model)
    config.num_epochs = 1 if variant else 20
    config.patience = 4
    config.batch_size = 32
    config.optimizer.update({"weight_decay": 0.01, "clip_norm": 1.0})
    return config
