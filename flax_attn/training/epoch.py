"""Steps, epochs and evaluations as pure functions, and the two ways to run several seeds.

Steps run in a loop of XLA, many in one call, given a convolution that keeps its speed inside a
loop. `python -m benchmarks.steps --calls` measures it beside a loop over calls of one jitted step,
which on 2 CPU cores took 1.1 to 2.3 times as long, whatever the model.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, Key

from flax_attn.training.metrics import Metric, accumulate, compute
from flax_attn.training.state import TrainState, choose, reset
from flax_attn.types import Batch, Tree

Metrics = dict[str, Metric]
Loss = Callable[..., tuple[Array, tuple[Tree, Metrics]]]
Step = Callable[[TrainState, Batch, Array], tuple[TrainState, Metrics]]
Plan = Callable[[Array, Array], Tree]
Fetch = Callable[[Tree, Tree], Batch] | Sequence[Callable[[Tree, Tree], Batch]]


def train_step(
    state: TrainState,
    batch: Batch,
    key: Key[Array, ""],
    *,
    loss: Loss,
    optimizer: optax.GradientTransformation,
    max_bad_steps: int = 0,
) -> tuple[TrainState, Metrics]:
    """One step of gradient descent.

    `loss(params, carry, batch, key) -> (loss, (carry, metrics))`; the key is for dropout, and None
    at evaluation.

    Args:
        max_bad_steps: above 0, a step that is not finite changes nothing and adds zeros to the
            metrics, and a seed stops after so many in a row. To choose after every step takes up
            to half as long again, so only steps that are known to go wrong are taken so.
    """
    gradient = jax.value_and_grad(loss, has_aux=True)
    (value, (carry, metrics)), grads = gradient(
        state.params, state.carry, batch, jax.random.fold_in(key, state.step)
    )
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, optax.tree.scale(state.rate_scale, updates))
    changes = {"params": params, "carry": carry, "opt_state": opt_state}
    after = state.with_changes(step=state.step + 1, bad_in_a_row=jnp.int32(0), **changes)
    if not max_bad_steps:
        return after, metrics
    finite = is_finite((value, metrics, changes))
    nothing = jax.tree.map(jnp.zeros_like, metrics)
    return choose(
        state.stopped,
        (state, nothing),
        choose(finite, (after, metrics), (state.bad_step(max_bad_steps), nothing)),
    )


def is_finite(tree: Tree) -> Bool[Array, ""]:
    """Whether no number of a tree is infinite or NaN."""
    return jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


def take_step(
    state: TrainState, entry: Tree, *, data: Tree, key: Array, step: Step, fetch: Fetch
) -> tuple[TrainState, Metrics]:
    """The step of an entry of the plan."""
    if callable(fetch):
        return step(state, fetch(data, entry), key)
    number, taken = entry
    return jax.lax.switch(
        number, [lambda s, e, f=f: step(s, f(data, e), key) for f in fetch], state, taken
    )


def first_metrics(
    state: TrainState, data: Tree, *, step: Step, plan: Plan, fetch: Fetch
) -> Metrics:
    """The metrics of the first step of all."""
    key = state.epoch_key(jnp.int32(1))
    entry = jax.tree.map(lambda leaf: leaf[0], plan(key, jnp.int32(1)))
    return take_step(state, entry, data=data, key=key, step=step, fetch=fetch)[1]


def train_steps(
    state: TrainState,
    sums: Metrics,
    epoch: Array,
    first: Array,
    last: Array,
    data: Tree,
    *,
    step: Step,
    plan: Plan,
    fetch: Fetch,
) -> tuple[TrainState, Metrics, Bool[Array, ""]]:
    """The steps of an epoch from `first` to before `last`.

    Returns the state, the sums of the metrics, and whether all of them are finite. What is not
    finite in one step is not finite in any later one.

    Both bounds are arrays, so one compilation serves every part of an epoch. Steps add to `sums`
    one after another, so an epoch in parts is the epoch in one, to the last bit. A stopped seed
    stays as it is.

    `plan(key, epoch)` lays out the epoch along a leading axis, one entry a step: rows to gather, or
    keys to draw from. `fetch(data, entry)` makes a step's batch of it. Where batches differ in
    length there are several of them, and an entry is the number of the one to take and what it
    takes.
    """
    order_key, step_key = jax.random.split(state.epoch_key(epoch))
    take = functools.partial(take_step, data=data, key=step_key, step=step, fetch=fetch)

    def run(state: TrainState, sums: Metrics) -> tuple[TrainState, Metrics]:
        entries = plan(order_key, epoch)

        def body(i: Array | int, both: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, sums = both
            state, metrics = take(state, jax.tree.map(lambda leaf: leaf[i], entries))
            return state, jax.tree.map(jnp.add, sums, metrics)

        state = state.with_changes(carry=choose(first == 0, reset(state.carry), state.carry))
        return jax.lax.fori_loop(first, last, body, (state, sums))

    state, sums = jax.lax.cond(state.stopped, lambda *same: same, run, state, sums)
    return state, sums, is_finite((state.params, state.carry, state.opt_state, sums))


def evaluate(
    params: Tree, carry: Tree, batches: Sequence[Batch], *, loss: Loss
) -> dict[str, Array]:
    """Metrics over stacked batches, as `pad_batches` makes them, one stack a length.

    They are exact: masked rows count nothing.
    """

    def body(carry: Tree, batch: Batch) -> tuple[Tree, Metrics]:
        _, (carry, metrics) = loss(params, carry, batch, None)
        return carry, metrics

    carry, of_stacks = reset(carry), []
    for stack in batches:
        carry, metrics = jax.lax.scan(body, carry, stack)
        of_stacks.append(accumulate(metrics))
    return compute(jax.tree.map(lambda *leaves: sum(leaves), *of_stacks))


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


def vectorized(function: Callable, mapped: int = 1) -> Callable:
    """Maps a function over the leading axis of its first `mapped` arguments, all seeds at once."""
    return lambda *args: jax.vmap(lambda own: function(*own, *args[mapped:]))(args[:mapped])


def sequential(function: Callable, mapped: int = 1) -> Callable:
    """Maps a function over the leading axis of its first `mapped` arguments, a seed at a time.

    The faster way on CPU, where one seed fills the machine and products over a batch of kernels
    lose their fast path.
    """
    return lambda *args: jax.lax.map(lambda own: function(*own, *args[mapped:]), args[:mapped])


def stack_seeds(create: Callable[[Array], TrainState], seeds: range) -> TrainState:
    """One state a seed, stacked.

    Every seed is created alone, so the other seeds change nothing.
    """
    stack_of_one = jax.jit(lambda seed: jax.tree.map(lambda leaf: leaf[None], create(seed)))
    join = jax.jit(lambda states: jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states))
    states = [stack_of_one(np.uint32(seed)) for seed in seeds]
    return states[0] if len(states) == 1 else join(states)
