"""Training a `flax.linen` model on one batch as Flax's own examples do: a jitted step on a
`TrainState`, called in a loop.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

from benchmarks.ours import has_padding, is_regression


def trainer(
    model: nn.Module, params: Any, batch: Any, config: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Returns a training step that continues from the one before and returns its loss, and the loss
    alone, without dropout and smoothing.
    """
    inputs, targets = jax.tree.map(jnp.asarray, (batch["inputs"], batch["targets"]))
    params = jax.tree.map(jnp.asarray, params)
    carry = {
        name: part
        for name, part in model.init(jax.random.key(0), inputs).items()
        if name != "params"
    }
    carry = jax.tree.map(jnp.zeros_like, carry)
    state = TrainState.create(
        apply_fn=model.apply, params=params, tx=config.optimizer.build(config.learning_rate, 0)
    )

    def loss_of(outputs: Any, targets: Any, label_smoothing: float = 0.0) -> Any:
        if is_regression(batch):
            return jnp.square(outputs - targets).mean()
        labels = optax.smooth_labels(nn.one_hot(targets, outputs.shape[-1]), label_smoothing)
        losses = optax.softmax_cross_entropy(outputs, labels)
        weights = targets > 0 if has_padding(batch) else jnp.ones_like(losses)
        return (losses * weights).sum() / weights.sum()

    @jax.jit
    def train_step(
        state: TrainState, carry: Any, inputs: Any, targets: Any, key: Any
    ) -> tuple[TrainState, Any, Any]:
        def loss_fn(params: Any) -> tuple[Any, Any]:
            rngs = {"dropout": jax.random.fold_in(key, state.step)}
            outputs, updates = state.apply_fn(
                {"params": params, **carry}, inputs, train=True, rngs=rngs, mutable=list(carry)
            )
            return loss_of(outputs, targets, config.label_smoothing), updates

        (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads), updates, loss

    now = [state, carry]
    key = jax.random.key(0)

    def step() -> Any:
        now[0], now[1], loss = train_step(now[0], now[1], inputs, targets, key)
        return loss

    def alone() -> Any:
        outputs, _ = model.apply({"params": params, **carry}, inputs, mutable=list(carry))
        return loss_of(outputs, targets)

    return step, alone
