"""The state of a training run: everything that an epoch changes, as one pytree. Seeds are its leading axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array


@struct.dataclass
class TrainState:
    """One seed's state; several are stacked along the leading axis of every leaf.

    `carry` is what a model hands from batch to batch, `{}` for most. `best_params` are the parameters of the epoch
    `best_epoch`, whose validation score `best_score` was the lowest.
    """

    seed: Any  # uint32; leaves are typed Any, for jax puts what it likes in their place while it maps over trees
    step: Any  # int32
    params: Any
    carry: Any
    opt_state: Any
    best_params: Any
    best_score: Any  # float32
    best_epoch: Any  # int32

    @classmethod
    def create(cls, seed: Array, init: Callable[[Array], tuple[Any, Any]], optimizer: optax.GradientTransformation) -> "TrainState":
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
        )

    def epoch_key(self, epoch: Array) -> Array:
        """The key of everything random in an epoch, from the seed and the number of the epoch alone; epochs count from 1."""
        return jax.random.fold_in(jax.random.key(self.seed), epoch)

    def keep_best(self, score: Array, epoch: Array) -> "TrainState":
        """Keeps the present parameters where the score is lower than the best so far."""
        better = score < self.best_score
        choose = lambda new, old: jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)
        return self.replace(  # pyright: ignore
            best_params=choose(self.params, self.best_params),
            best_score=choose(score, self.best_score),
            best_epoch=choose(jnp.asarray(epoch, jnp.int32), self.best_epoch),
        )


def reset(carry: Any) -> Any:
    """The carry at the start of an epoch or an evaluation: zeros."""
    return jax.tree.map(jnp.zeros_like, carry)
