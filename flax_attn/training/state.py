"""The state of a training run: everything that an epoch changes, as one pytree.

Seeds are its leading axis.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array

from flax_attn.types import Tree


class Plateau(NamedTuple):
    """The rule of PyTorch's ReduceLROnPlateau.

    The rate is multiplied by `factor` at the epoch after `patience` without a gain.

    A gain is a score below the best by more than the share `threshold` of it. Patience 0 leaves the
    rate alone.
    """

    patience: int = 0
    factor: float = 0.1
    threshold: float = 1e-4


@struct.dataclass
class TrainState:
    """One seed's state; several are stacked along the leading axis of every leaf.

    `carry` is what a model hands from batch to batch, `{}` for most. `best_params` are the
    parameters of the epoch `best_epoch`, whose validation score `best_score` was the lowest.
    `rate_scale` multiplies the learning rate; it falls when validation has not gained on
    `plateau_score` for `plateau_epochs`. A seed that has `stopped` changes no more. `bad_steps`
    were not finite and changed nothing, the last `bad_in_a_row` of all steps among them.
    """

    # uint32; leaves have no types, for jax puts what it likes in their place while it maps over
    # trees
    seed: Tree
    step: Tree  # int32
    params: Tree
    carry: Tree
    opt_state: Tree
    best_params: Tree
    best_score: Tree  # float32
    best_epoch: Tree  # int32
    rate_scale: Tree  # float32
    plateau_score: Tree  # float32
    plateau_epochs: Tree  # int32
    stopped: Tree  # bool
    bad_steps: Tree  # int32
    bad_in_a_row: Tree  # int32

    @classmethod
    def create(
        cls,
        seed: Array,
        init: Callable[[Array], tuple[Tree, Tree]],
        optimizer: optax.GradientTransformation,
    ) -> "TrainState":
        """Initialises from `init(key) -> (params, carry)`."""
        params, carry = init(jax.random.fold_in(jax.random.key(seed), 0))
        return cls(
            seed=jnp.asarray(seed, jnp.uint32),
            step=jnp.int32(0),
            params=params,
            carry=carry,
            opt_state=optimizer.init(params),
            best_params=params,
            best_score=jnp.float32(jnp.inf),
            best_epoch=jnp.int32(0),
            rate_scale=jnp.float32(1),
            plateau_score=jnp.float32(jnp.inf),
            plateau_epochs=jnp.int32(0),
            stopped=jnp.bool_(False),
            bad_steps=jnp.int32(0),
            bad_in_a_row=jnp.int32(0),
        )

    def counts(self) -> dict[str, Tree]:
        """What the loop reads after every epoch."""
        names = ("seed", "step", "stopped", "bad_steps", "bad_in_a_row")
        return {name: getattr(self, name) for name in names}

    def epoch_key(self, epoch: Array) -> Array:
        """The key of everything random in an epoch.

        It depends on the seed and the number of the epoch alone. Epochs count from 1.
        """
        return jax.random.fold_in(jax.random.key(self.seed), epoch)

    def with_changes(self, **changes: Tree) -> "TrainState":
        """The same state with other values of some fields."""
        return self.replace(**changes)  # pyright: ignore

    def bad_step(self, max_bad_steps: int) -> "TrainState":
        """The state after a step that is not finite.

        `max_bad_steps` of them in a row stop the seed.
        """
        bad_in_a_row = self.bad_in_a_row + 1
        return self.replace(  # pyright: ignore
            step=self.step + 1,
            bad_steps=self.bad_steps + 1,
            bad_in_a_row=bad_in_a_row,
            stopped=self.stopped | (bad_in_a_row >= max_bad_steps),
        )

    def after_epoch(
        self, score: Array, epoch: Array, *, plateau: Plateau, patience: int
    ) -> "TrainState":
        """Keeps the parameters where validation is the best so far.

        Lowers the rate or stops where validation gains no more.

        Args:
            score: of validation after the epoch, lower is better.
            epoch: its number.
            plateau: when and how the rate falls.
            patience: stops after so many epochs without a best one; 0 never.
        """
        better = score < self.best_score
        best_epoch = jnp.where(better, jnp.asarray(epoch, jnp.int32), self.best_epoch)
        gained = score < self.plateau_score * (1 - plateau.threshold)
        waited = jnp.where(gained, 0, self.plateau_epochs + 1)
        falls = (waited > plateau.patience) & (plateau.patience > 0)
        after = self.replace(  # pyright: ignore
            best_params=choose(better, self.params, self.best_params),
            best_score=jnp.where(better, score, self.best_score),
            best_epoch=best_epoch,
            rate_scale=jnp.where(falls, self.rate_scale * plateau.factor, self.rate_scale),
            plateau_score=jnp.where(gained, score, self.plateau_score),
            plateau_epochs=jnp.where(falls, 0, waited),
            stopped=jnp.bool_(patience > 0) & (epoch - best_epoch >= patience),
        )
        return choose(self.stopped, self, after)


def reset(carry: Tree) -> Tree:
    """The carry at the start of an epoch or an evaluation: zeros."""
    return jax.tree.map(jnp.zeros_like, carry)


def choose(condition: Array, new: Tree, old: Tree) -> Tree:
    """The leaves of one tree where a condition holds, and of another where it does not."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
