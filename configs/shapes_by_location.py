"""Shapes levelled by location, not kind, with a model that does not know positions.

Attention alone does not know the order of its inputs.

Task     level the two leftmost shapes and the two rightmost, of any kind
Source   announced by the tutorial as its next step; the attention model without positions
Command  python train.py --config=configs/shapes_by_location.py
Expect   test MSE 0.054 after 50 epochs (the recipe in PyTorch: 0.0556), 5 minutes a seed; with
         positions, a tenth of this error
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    model = {"name": "cnn_attention"}
    config = recipes.shapes("shapes_by_location", variant, model)
    config.data.task = "by_location"
    config.reference = {"last/test/mse": 0.0556}
    return config
