"""Which of 8 input series decides the output? The weights of input attention have to find it.

Task     y_t = (x_t + x_{t-1}) / 2 of one series; the others have no effect
Source   a tutorial's input-attention RNN, with sharper weights (alpha = 10)
Command  python train.py --config=configs/series_input_attention.py
Expect   0.955 of the weight on the right series (test/gate), 2 seconds a seed
"""

from typing import Any

from ml_collections import ConfigDict

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.common("series_input_attention", variant)
    config.num_epochs = 5 if variant else 60
    config.learning_rate = 3e-3
    config.data.name = "input_series"
    config.data.num_series = 8
    config.data.relevant = 3
    config.data.length = 20
    config.data.num_train = 4_000
    config.data.num_valid = 500
    config.data.num_test = 500
    config.model = ConfigDict({"name": "input_attention", "features": 32, "alpha": 10.0})
    return config
