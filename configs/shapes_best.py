"""Shapes with an error near the noise: residual convolutions before and after one attention layer.

Every step trains on new sequences.

Task     level two triangles and two boxes pairwise
Source   this project: the attention of François Fleuret's model, scaled and residual, between
         residual blocks (He et al. 2016)
Command  python train.py --config=configs/shapes_best.py
Expect   test MSE 0.00026, 6 minutes a seed (the noise floor is 0.00021, the tutorial's best
         0.00075). With --config.num_epochs=4 the rate falls to 0 in 4 epochs: 0.0006 in half a
         minute
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    config = recipes.shapes("shapes_best", variant, {"name": "residual_attention"})
    config.batch_size = 32 if variant else 64
    config.num_epochs = 3 if variant else 50
    if variant:
        config.steps_per_epoch = 200
    # 50 epochs see 998,400 sequences, as many as the tutorial's saw of its 20,000 again and again
    config.data.fresh = True
    # three times the tutorial's; the clipping and the residual connections bear it
    config.learning_rate = 3e-3
    config.optimizer.update(
        {"schedule": "cosine", "warmup_steps": 200, "clip_norm": 1.0, "eps": 1e-8}
    )
    config.reference = {"test/mse": 0.00075}
    return config
