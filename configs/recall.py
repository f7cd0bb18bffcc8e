"""Associative recall: a memory keeps pairs, and overwrites those whose key comes again.

Task     the values after the question mark of `d3f8d5f1?f1d5`: the newest of each key. A line has 1
         to 7 keys, each with 3 values
Source   Arora et al. 2023 (arXiv:2312.04927), there without overwritten keys. Linear attention has
         short convolutions. Softmax has none, so it follows a block that has one
Command  python train.py --config=configs/recall.py
         and the same with --model.attention=linear, gated, gated_delta, or "delta full"
Expect   accuracy 0.986 (3 seeds, the lowest 0.982); linear 0.60, gated 0.70, gated_delta 0.98. With
         "delta full" 0.99, but one seed of three has 0.48
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "recall", "valid_fraction": 0.05, "test_fraction": 0.05}
    sizes = {"features": 64, "num_blocks": 2, "num_heads": 2, "hidden_features": 128}
    config = recipes.language("recall", variant, data, {"attention": "delta", **sizes})
    config.num_epochs = 1 if variant else 2
    config.steps_per_epoch = 0
    config.batch_size = 64
    config.learning_rate = 4e-3
    config.optimizer.warmup_steps = 50
    return config
