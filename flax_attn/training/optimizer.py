"""The optimiser and its schedule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import optax

from flax_attn.fields import Part, above_zero, one_of, shares, zero_or_above
from flax_attn.training.epoch import Plateau

SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class Optimizer(Part):
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

    PART: ClassVar[str] = "optimizer"

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    warmup_steps: int = 0
    schedule: str = "constant"
    plateau_patience: int = 0
    plateau_factor: float = 0.1

    def __post_init__(self) -> None:
        shares(self, "b1", "b2", "plateau_factor")
        above_zero(self, "eps")
        zero_or_above(self, "weight_decay", "clip_norm", "warmup_steps", "plateau_patience")
        one_of(self, "schedule", SCHEDULES)

    def idle(self) -> dict[str, str]:
        """Names of fields that decide nothing beside the others, and what they would need."""
        needed = "optimizer.plateau_patience above 0"
        return {} if self.plateau_patience else {"plateau_factor": needed}

    @property
    def plateau(self) -> Plateau:
        return Plateau(self.plateau_patience, self.plateau_factor)

    def build(self, learning_rate: float, num_steps: int) -> optax.GradientTransformation:
        """The optimiser of a training of `num_steps` in all."""
        rate = self._rate(learning_rate, num_steps)
        decayed = lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params)
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
