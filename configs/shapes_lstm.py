"""Shapes with the tutorial's LSTM, as published: a step in time is a signal, not a point.

Its time axis is the batch, so it is a dense layer with gates.

Task     level two triangles and two boxes pairwise
Source   an LSTM that reads each signal as one time step, 130,660 parameters
Command  python train.py --config=configs/shapes_lstm.py
Expect   test MSE 0.078 after 50 epochs (the recipe in PyTorch: 0.0777), 20 seconds a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.shapes("shapes_lstm", variant, {"name": "lstm", "features": 128})
    config.reference = {"last/test/mse": 0.0777}
    return config
