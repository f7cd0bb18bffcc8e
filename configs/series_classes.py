"""Your own series in classes, from a `.npz` file. Input attention shows which series decide.

Task     any classes of several series that were measured at the same steps. The file is that of
         signals_classes, with inputs `(n, t, series)`
Source   the model of series_input_attention, whose logits are the mean over steps
Command  python train.py --config=configs/series_classes.py --config.data.file=FILE.npz
Expect   no figure, it depends on your series
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    model = {"name": "input_attention"}
    return recipes.own_signals("series_classes", variant, "classes", model)
