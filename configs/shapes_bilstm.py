"""Shapes with a bidirectional LSTM along the 100 points, which sees the whole signal.

Task     level two triangles and two boxes pairwise
Source   Graves & Schmidhuber 2005, one layer; not in the tutorial, which runs its LSTM along the
         batch
Command  python train.py --config=configs/shapes_bilstm.py
Expect   test MSE 0.0096 after 50 epochs, 8 minutes a seed; the tutorial's LSTM has four times as
         many parameters and 0.078
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.shapes("shapes_bilstm", variant, {"name": "bilstm"})
    if variant:
        config.num_epochs = 3
    return config
