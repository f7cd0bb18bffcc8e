"""Steps, epochs and evaluations as pure functions, and the two ways to run several seeds.

An epoch is one scan over its steps, given a convolution that keeps its speed inside a loop. `python
-m benchmarks.steps --calls` measures it beside a loop over calls of one jitted step, which on 2 CPU
cores took 1.1 to 2.3 times as long, whatever the model.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, Key

from flax_attn.training.metrics import Metric, accumulate, compute
from flax_attn.training.state import TrainState, reset
from flax_attn.types import Batch, Tree

Metrics = dict[str, Metric]
Loss = Callable[..., tuple[Array, tuple[Tree, Metrics]]]


def train_step(
    state: TrainState,
    batch: Batch,
    key: Key[Array, ""],
    *,
    loss: Loss,
    optimizer: optax.GradientTransformation,
) -> tuple[TrainState, Metrics]:
    """One step of gradient descent.

    `loss(params, carry, batch, key) -> (loss, (carry, metrics))`; the key is for dropout, and None
    at evaluation.
    """
    gradient = jax.grad(loss, has_aux=True)
    grads, (carry, metrics) = gradient(
        state.params, state.carry, batch, jax.random.fold_in(key, state.step)
    )
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, optax.tree.scale(state.rate_scale, updates))
    changes = {"step": state.step + 1, "params": params, "carry": carry, "opt_state": opt_state}
    return state.replace(**changes), metrics  # pyright: ignore


def train_epoch(
    state: TrainState,
    epoch: Array,
    data: Tree,
    *,
    step: Callable[[TrainState, Batch, Array], tuple[TrainState, Metrics]],
    plan: Callable[[Array, Array], Tree],
    fetch: Callable[[Tree, Tree], Batch] | Sequence[Callable[[Tree, Tree], Batch]],
) -> tuple[TrainState, dict[str, Array]]:
    """Runs one epoch and returns the state and the mean of each metric over its batches.

    A stopped seed stays as it is.

    `plan(key, epoch)` lays out the epoch along a leading axis, one entry a step: rows to gather, or
    keys to draw from. `fetch(data, entry)` makes a step's batch of it. Where batches differ in
    length there are several of them, and an entry is the number of the one to take and what it
    takes.
    """

    def body(state: TrainState, entry: Tree) -> tuple[TrainState, Metrics]:
        if callable(fetch):
            return step(state, fetch(data, entry), step_key)
        number, taken = entry
        return jax.lax.switch(
            number, [lambda s, e, f=f: step(s, f(data, e), step_key) for f in fetch], state, taken
        )

    def run(state: TrainState) -> tuple[TrainState, Metrics]:
        state = state.replace(carry=reset(state.carry))  # pyright: ignore
        state, metrics = jax.lax.scan(body, state, plan(order_key, epoch))
        return state, accumulate(metrics)

    order_key, step_key = jax.random.split(state.epoch_key(epoch))
    nothing = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(run, state)[1]
    )
    state, metrics = jax.lax.cond(state.stopped, lambda state: (state, nothing), run, state)
    return state, compute(metrics)


def evaluate(
    params: Tree, carry: Tree, batches: Sequence[Batch], *, loss: Loss
) -> dict[str, Array]:
    """Metrics over stacked batches, as `pad_batches` makes them, one stack a length.

    They are exact: masked rows count nothing.
    """

    def body(carry: Tree, batch: Batch) -> tuple[Tree, Metrics]:
        _, (carry, metrics) = loss(params, carry, batch, None)
        return carry, metrics

    carry, found = reset(carry), []
    for stack in batches:
        carry, metrics = jax.lax.scan(body, carry, stack)
        found.append(accumulate(metrics))
    return compute(jax.tree.map(lambda *leaves: sum(leaves), *found))


def shuffled_rows(
    key: Key[Array, ""], epoch: Array | int, num_examples: int, batch_size: int, num_steps: int
) -> Int[Array, "steps batch"]:
    """The rows of each step's batch.

    They are permutations of the examples, one after another, each without its last partial batch.

    They depend on the key alone, whatever the epoch.
    """
    steps_a_pass = num_examples // batch_size
    keys = jax.random.split(key, -(-num_steps // steps_a_pass))
    orders = jax.vmap(
        lambda k: jax.random.permutation(k, num_examples)[: steps_a_pass * batch_size]
    )(keys)
    return orders.reshape(-1, batch_size)[:num_steps]


def gather(data: Tree, rows: Int[Array, " batch"]) -> Batch:
    """The batch of the given rows of every array."""
    return jax.tree.map(lambda array: array[rows], data)


def pad_batches(arrays: Batch, batch_size: int) -> Batch:
    """Cuts arrays into batches `(num_batches, batch_size, ...)`.

    The last is padded with zeros and masked out.

    The added entry `mask` is True on real rows.
    """
    num_examples = len(jax.tree.leaves(arrays)[0])
    num_batches = -(-num_examples // batch_size)

    def cut(array: Tree) -> np.ndarray:
        array = np.asarray(array)
        padding = [(0, num_batches * batch_size - num_examples)] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, padding).reshape(num_batches, batch_size, *array.shape[1:])

    return jax.tree.map(cut, arrays) | {"mask": cut(np.ones(num_examples, bool))}


def vectorized(function: Callable) -> Callable:
    """Maps `function(states, *shared)` over the leading axis of `states`, all seeds at once."""
    return lambda states, *shared: jax.vmap(lambda state: function(state, *shared))(states)


def sequential(function: Callable) -> Callable:
    """Maps `function(states, *shared)` over the leading axis of `states`, a seed at a time.

    The faster way on CPU, where one seed fills the machine and products over a batch of kernels
    lose their fast path.
    """
    return lambda states, *shared: jax.lax.map(lambda state: function(state, *shared), states)


def stack_seeds(create: Callable[[Array], TrainState], seeds: range) -> TrainState:
    """One state a seed, stacked.

    Every seed is created alone, so the other seeds change nothing.
    """
    stack_of_one = jax.jit(lambda seed: jax.tree.map(lambda leaf: leaf[None], create(seed)))
    join = jax.jit(lambda states: jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states))
    states = [stack_of_one(np.uint32(seed)) for seed in seeds]
    return states[0] if len(states) == 1 else join(states)
