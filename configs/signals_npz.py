"""Your own signals from a `.npz` file, by residual convolutions around one attention layer.

Task     signals of any length and number of channels become other signals of the same length. The
         file has the arrays `train_inputs`, `train_targets`, `test_inputs` and `test_targets`, or
         `inputs` and `targets` alone, which are split 80 / 10 / 10 at random. Inputs are `(n, t)`
         or `(n, t, channels)`, targets `(n, t)`
Source   the model of shapes_best
Command  python train.py --config=configs/signals_npz.py --config.data.file=FILE.npz
Expect   no figure, it depends on your signals; test MSE 0.0014 in normalised units, half a
         minute, for the running sums of 1,000 random signals of 30 points
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    return recipes.own_signals("signals_npz", variant, "signal")
