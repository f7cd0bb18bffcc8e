"""Random letters that come twice: the task that an induction head solves.

Task     the next letter of `dafdaf`: 5 to 24 different letters, and the same again; the first half
         cannot be known, the second half can
Source   Elhage et al. 2021 and Olsson et al. 2022 (arXiv:2209.11895): two blocks of attention are
         enough, one is not
Command  python train.py --config=configs/induction.py
Expect   one head has 0.98 of its weight on the token that followed last time (3 seeds, the
         lowest 0.97); a minute a seed on 2 cores
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "repeats", "valid_fraction": 0.05, "test_fraction": 0.05}
    if variant:  # shorter strings, and fewer of them
        data |= {"num_lines": 14_000, "max_length": 34, "max_letters": 16}
    config = recipes.language("induction", variant, data, {"features": 64, "num_blocks": 2})
    config.num_epochs = 2 if variant else 6
    config.steps_per_epoch = 0
    config.batch_size = 64
    config.learning_rate = 4e-3
    return config
