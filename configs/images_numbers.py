"""Your own images with a number each, such as ages, angles or counts, by a small Transformer.

Task     any numbers. A folder has pictures and a table `numbers.csv` with the columns `file` and
         `number`; a `.npz` file has the arrays of images_folder with numbers as labels. They are
         split 80 / 10 / 10 at random
Source   the model of images_folder, whose one logit is the number
Command  python train.py --config=configs/images_numbers.py --config.data.file=FOLDER, or
         --config.data.file=FILE.npz
Expect   no figure, it depends on your images
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.own_images("images_numbers", variant)
    config.data.target = "number"
    return config
