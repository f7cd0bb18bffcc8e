"""Your own images in classes, by a small Transformer over patches.

Task     any classes. A folder has `train/CLASS/*.png` and `test/CLASS/*.png`, or `CLASS/*.png`
         alone, which are split 80 / 10 / 10 within each class. A `.npz` file has the arrays
         `train_images`, `train_labels`, `test_images` and `test_labels`, or `images` and `labels`
         alone. Images keep their colours, and are scaled and padded to 32 x 32 pixels
Source   the model of mnist_transformer
Command  python train.py --config=configs/images_folder.py --config.data.file=FOLDER, or
         --config.data.file=FILE.npz
Expect   no figure, it depends on your images; test accuracy 0.908 with 1,500 training and
         2,000 test digits of MNIST, 7 minutes (two dense layers: 0.864, 30 epochs)
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    return recipes.own_images("images_folder", variant)
