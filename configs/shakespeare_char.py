"""Shakespeare letter by letter, by a small GPT: the recipe that nanoGPT has for a CPU.

Task     the next of 65 characters, of tiny Shakespeare; the last tenth tests, as in nanoGPT
Source   the sizes, the batch and the 2,000 steps of github.com/karpathy/nanoGPT, with rotary
         positions, a higher rate and a cosine to 0
Command  python train.py --config=configs/shakespeare_char.py --manual_dir=DIR
Expect   test loss 1.667 (3 seeds, the highest 1.678; nanoGPT: 1.88); two minutes a seed on 2 cores
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    return recipes.shakespeare("shakespeare_char", variant, {})
