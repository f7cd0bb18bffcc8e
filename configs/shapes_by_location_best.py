"""Shapes levelled by location, by the model and recipe of `shapes_best`.

The binary digits of the position are inputs too.

Task     level the two leftmost shapes and the two rightmost, of any kind
Source   this project, as `shapes_best`; the positions are those of François Fleuret's attention on
         synthetic sequences
Command  python train.py --config=configs/shapes_by_location_best.py
Expect   test MSE 0.00025 (the tutorial's recipe: 0.0090), and 0.0070 with
         --config.model.binary_positions=False; 10 minutes a seed
"""

from typing import Any

from flax_attn.configs import shapes_best


def get_config(variant: str = "") -> Any:
    config = shapes_best.get_config(variant)
    config.name = config.name.replace("shapes_best", "shapes_by_location_best")
    config.data.task = "by_location"
    config.model.binary_positions = True
    config.model.num_attentions = 2
    config.model.key_features = 48  # 146,689 parameters in all
    config.reference = {"last/test/mse": 0.0090}
    return config
