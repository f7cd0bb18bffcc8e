"""The optimiser and its schedule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np
import optax
from jaxtyping import Array

from flax_attn.schema import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat
from flax_attn.training.epoch import Plateau


@dataclass(frozen=True)
class Optimizer:
    """AdamW, whose decay spares the biases and all else with one axis, as fastai's does.

    Attributes:
        b1, b2, eps, weight_decay: of AdamW.
        clip_norm: gradients are scaled down to this norm; 0 for none.
        warmup_steps: steps in which the rate rises from 0; with a cosine no more than half of all.
        schedule: `constant`, or `cosine`, by which the rate falls to 0 with the last step of
            training.
        plateau_patience: epochs without a gain on validation before the rate falls; 0 for never.
        plateau_factor: what the rate is multiplied by then.
    """

    b1: Fraction = 0.9
    b2: Fraction = 0.999
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: NonNegativeFloat = 0.0
    warmup_steps: NonNegativeInt = 0
    schedule: Literal["constant", "cosine"] = "constant"
    plateau_patience: NonNegativeInt = 0
    plateau_factor: Fraction = 0.1

    @property
    def plateau(self) -> Plateau:
        return Plateau(self.plateau_patience, self.plateau_factor)

    def build(self, learning_rate: float, num_steps: int) -> optax.GradientTransformation:
        """Builds the optimiser of a training of `num_steps` in all."""
        rate = self._rate(learning_rate, num_steps)
        decayed = lambda params: jax.tree.map_with_path(is_decayed, params)
        optimizer = optax.adamw(
            rate, b1=self.b1, b2=self.b2, eps=self.eps, weight_decay=self.weight_decay, mask=decayed
        )
        if not self.clip_norm:
            return optimizer
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), optimizer)

    def _rate(self, learning_rate: float, num_steps: int) -> float | Callable:
        warmup_steps = self.warmup_steps
        if self.schedule == "cosine":
            warmup_steps = min(warmup_steps, num_steps // 2)
            if not warmup_steps:
                return optax.cosine_decay_schedule(learning_rate, num_steps)
            return optax.warmup_cosine_decay_schedule(0.0, learning_rate, warmup_steps, num_steps)
        return (
            optax.linear_schedule(0.0, learning_rate, warmup_steps)
            if warmup_steps
            else learning_rate
        )


def is_decayed(path: jax.tree_util.KeyPath, leaf: Array | np.ndarray) -> bool:
    """Tells whether weight decay applies to a parameter: not to biases, nor to one axis or none.

    The biases of queries, keys and values are `(heads, width)`, so their names decide.
    """
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    # the value of an `nnx.Param` and of an `nn.Partitioned` is one step further down
    return leaf.ndim > 1 and "bias" not in name.removesuffix("/value").rpartition("/")[2]
