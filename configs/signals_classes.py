"""Your own signals in classes, from a `.npz` file: heartbeats, gestures, sounds of machines.

Task     any classes. The file has the arrays `train_inputs`, `train_targets`, `test_inputs` and
         `test_targets`, or `inputs` and `targets` alone, which are split 80 / 10 / 10 within each
         class. Inputs are `(n, t)` or `(n, t, channels)`, targets the names of classes `(n,)`
Source   the model of shapes_best, whose logits are the mean over positions
Command  python train.py --config=configs/signals_classes.py --config.data.file=FILE.npz
Expect   no figure, it depends on your signals
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    return recipes.own_signals("signals_classes", variant, "classes")
