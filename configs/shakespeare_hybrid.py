"""Shakespeare letter by letter: three blocks of gated delta attention, then one of softmax.

Task     that of shakespeare_char
Source   Yang et al. 2025 (arXiv:2412.06464), section 3.4, for blocks of two kinds; three to one, as
         in Qwen3-Next. Narrower feed-forward networks make up for the parameters of convolutions,
         gates and decays
Command  python train.py --config=configs/shakespeare_hybrid.py --manual_dir=DIR
Expect   test loss 1.632 (3 seeds, the highest 1.638), where shakespeare_char has 1.667; a
         training step takes 1.6 to 1.9 times as long on 2 cores, and to write a token a third of
         the time with a cache for 4,096
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    model = {"attention": "gated_delta gated_delta gated_delta full", "hidden_features": 456}
    return recipes.shakespeare("shakespeare_hybrid", variant, model)
