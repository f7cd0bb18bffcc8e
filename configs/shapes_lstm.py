"""Shapes with the tutorial's LSTM, as published: it reads a whole signal as one time step.

So it is a dense layer with gates, and its state goes from one signal of a batch to the next.

Task     level two triangles and two boxes pairwise
Source   an LSTM that reads each signal as one time step, 130,660 parameters
Command  python train.py --config=configs/shapes_lstm.py
Expect   test MSE 0.078 after 50 epochs (the recipe in PyTorch: 0.0777), 20 seconds a seed
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.shapes("shapes_lstm", variant, {"name": "lstm"})
    config.reference = {"last/test/mse": 0.0777}
    return config
