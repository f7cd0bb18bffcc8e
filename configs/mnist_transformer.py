"""MNIST with a Transformer over patches of the image, without convolutions.

Task     which digit an image of 28 x 28 pixels shows
Source   the encoder of Vaswani et al. 2017 on patches, as Dosovitskiy et al. 2021
         (arXiv:2010.11929), with attention pooling. In training, images are shifted by up to two
         pixels; without this, the model learns them by heart
Command  python train.py --config=configs/mnist_transformer.py --manual_dir=DIR
Expect   test accuracy 0.9931 +- 0.0004 (3 seeds; ensemble 0.9945), 18 minutes a seed while other
         work ran
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.patch_transformer("mnist_transformer", variant)
    config.num_epochs = 1 if variant else 32
    config.batch_size = 128
    config.data.valid_fraction = 0.1
    config.optimizer.warmup_steps = 400
    return config
