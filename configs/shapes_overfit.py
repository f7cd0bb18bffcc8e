"""The sanity check: a model that cannot overfit 20 examples is broken.

Task     learn 20 training sequences by heart; an epoch is 1,000 steps on all of them
Source   the tutorial, 5,001 steps with Adam at 1e-3
Command  python train.py --config=configs/shapes_overfit.py
Expect   train MSE before training and after each 1,000 steps near 0.97, 0.016, 0.0062, 0.0039,
         0.0020, 0.00055, as the tutorial printed them; 20 seconds
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.shapes("shapes_overfit", variant, {"name": "cnn"})
    config.num_epochs = 1 if variant else 5
    config.steps_per_epoch = 1_000
    config.batch_size = 20
    config.data.subset = 20
    config.keep_best = False  # the question is the training loss
    config.evaluate = ("train", "valid", "test")
    config.reference = {"train/mse": 0.00055}
    return config
