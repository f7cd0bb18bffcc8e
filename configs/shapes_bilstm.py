"""Shapes with a bidirectional LSTM along the 100 points: the fair recurrent model.

Task     level two triangles and two boxes pairwise
Source   Graves & Schmidhuber 2005, one layer; not in the tutorial, which runs its LSTM along the
         batch
Command  python train.py --config=configs/shapes_bilstm.py
Expect   test MSE 0.0096 after 50 epochs, 8 minutes a seed; the tutorial's LSTM, four times its
         size, has 0.078
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    return recipes.shapes("shapes_bilstm", variant, {"name": "bilstm", "features": 64})
