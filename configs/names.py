"""Names of an invented language, letter by letter.

Task     the next letter of a name: all vowels of a name are of one kind (a, o, u or e, i, y), so a
         model has to look back
Source   made in code; github.com/karpathy/makemore has real names
Command  python train.py --config=configs/names.py
Expect   test loss 1.864; all names that are written have vowels of one kind (3 seeds); half a
         minute a seed on 2 cores
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "names", "max_length": 32, "valid_fraction": 0.1}
    config = recipes.language("names", variant, data, {"features": 64, "num_blocks": 2})
    config.num_epochs = 2 if variant else 8
    config.batch_size = 32
    config.learning_rate = 4e-3
    return config
