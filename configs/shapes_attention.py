"""Shapes with a CNN and one attention layer: triangles attend to triangles and boxes to boxes.

Task     level two triangles and two boxes pairwise
Source   François Fleuret's attention on synthetic sequences; unscaled dot-product attention,
         58,177 parameters
Command  python train.py --config=configs/shapes_attention.py
Expect   test MSE 0.0004 to 0.0009 in half a minute (the recipe in PyTorch: 0.00075 at its best;
         the noise floor is 0.00021). Shapes put 0.95 or more of their weight on shapes of their
         kind, with three of eight seeds 0.75 to 0.91. `:tutorial` is the tutorial's own recipe:
         0.0006 in 5 minutes
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.new_shapes("shapes_attention", variant, {"name": "cnn_attention"})
    config.reference = {"test/mse": 0.00075, "last/test/mse": 0.0031}
    return config
