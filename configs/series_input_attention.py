"""Which of 8 input series decides the output? The weights of input attention have to find it.

Task     y_t = (x_t + x_{t-1}) / 2 of one series; the others have no effect
Source   a tutorial's input-attention RNN, with sharper weights (alpha = 10)
Command  python train.py --config=configs/series_input_attention.py
Expect   0.955 of the weight on the right series (test/gate), 2 seconds a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    recipes.check_variant("series_input_attention", variant)
    data, model = {"name": "input_series"}, {"name": "input_attention"}
    config = recipes.common("series_input_attention", variant, data, model)
    config.num_epochs = 5 if variant else 60
    config.learning_rate = 3e-3
    return config
