"""Shapes levelled by location with the 7 binary digits of the position as input channels.

Task     level the two leftmost shapes and the two rightmost, of any kind
Source   François Fleuret's attention on synthetic sequences, with its positional encoding
Command  python train.py --config=configs/shapes_by_location_positions.py
Expect   test MSE 0.005-0.010 after 50 epochs (the recipe in PyTorch: 0.0090; without positions
         0.0556), 5 minutes a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    model = {"name": "cnn_attention", "binary_positions": True}
    config = recipes.shapes("shapes_by_location_positions", variant, model)
    config.data.task = "by_location"
    config.reference = {"last/test/mse": 0.0090}
    return config
