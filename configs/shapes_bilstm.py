"""Shapes with a bidirectional LSTM along the 100 points: the fair recurrent model.

Task     level two triangles and two boxes pairwise
Source   Graves & Schmidhuber 2005, one layer; not in the tutorial, which runs its LSTM along the batch
Command  python train.py --config=configs/shapes_bilstm.py
Expect   better than the tutorial's LSTM at a quarter of its parameters, for its recurrence runs along the signal
"""

from typing import Any

from configs import base


def get_config(variant: str = "") -> Any:
    return base.shapes("shapes_bilstm", variant, {"name": "bilstm", "features": 64})
