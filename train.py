"""Trains the experiment of a config.

python train.py --config=configs/NAME.py[:quick] [--workdir=runs/NAME] [--manual_dir=DIR]
[--config.KEY=VALUE ...]

The same command again resumes a run that was stopped, and reports one that is finished. `flax-attn
train NAME` does the same.
"""

import sys

from flax_attn.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
