"""Shapes with a CNN: the baseline that cannot look far enough.

Task     level two triangles and two boxes pairwise; each output sees 21 of the 100 points
Source   François Fleuret's attention on synthetic sequences; five convolutions of 5 taps, 62,337
         parameters
Command  python train.py --config=configs/shapes_cnn.py
Expect   test MSE 0.072 in normalised units, in half a minute. `:tutorial` is the tutorial's own
         recipe: 0.067 in 3 minutes (in PyTorch: 0.0665)
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.new_shapes("shapes_cnn", variant, {"name": "cnn"})
    config.reference = {"last/test/mse": 0.0665}
    return config
