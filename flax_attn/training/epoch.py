"""Training of one seed as pure functions: its state, its steps, an epoch, and an evaluation.

The steps run in a loop of XLA, many in one call, given a convolution that keeps its speed inside a
loop. A loop over calls of one jitted step took 1.1 to 2.3 times as long on 2 CPU cores, whatever
the model. Between the calls, each of which takes a chunk of an epoch, training can stop and save.

Everything random follows from three numbers: the seed, the epoch and the step.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jaxtyping import Array, Bool, Int, Key

from flax_attn.training.mesh import keep_whole
from flax_attn.training.metrics import Metric, compute
from flax_attn.types import Batch, Tree

Metrics = dict[str, Metric]
Loss = Callable[..., tuple[Array, tuple[Tree, Metrics]]]
Step = Callable[["TrainState", Batch, Array], tuple["TrainState", Metrics]]
Plan = Callable[[Array, Array], Tree]
Fetch = Callable[[Tree, Tree], Batch] | Sequence[Callable[[Tree, Tree], Batch]]


class Plateau(NamedTuple):
    """The rule of PyTorch's ReduceLROnPlateau.

    The rate is multiplied by `factor` at the epoch after `patience` without a gain. A gain is a
    score below the best by more than the share `threshold` of it. Patience 0 leaves the rate alone.
    """

    patience: int = 0
    factor: float = 0.1
    threshold: float = 1e-4


@struct.dataclass
class TrainState:
    """The state of one seed; several are stacked along the leading axis of every leaf.

    `carry` is handed from batch to batch, `{}` for most models. `best_params` are the parameters of
    the epoch `best_epoch`, whose validation score `best_score` was the lowest. `rate_scale`
    multiplies the learning rate; it falls when validation has not gained on `plateau_score` for
    `plateau_epochs`. A seed that has `stopped` changes no more. `diverged` is the epoch in which
    its numbers became infinite or NaN, 0 for never.
    """

    # leaves have no types: JAX puts tracers, shapes and shardings in their place
    seed: Tree  # uint32
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
    diverged: Tree  # int32

    @classmethod
    def create(
        cls,
        seed: Array,
        init: Callable[[Array], tuple[Tree, Tree]],
        optimizer: optax.GradientTransformation,
    ) -> "TrainState":
        """Initializes from `init(key) -> (params, carry)`."""
        params, carry = init(jax.random.fold_in(jax.random.key(seed), 0))
        return cls(
            seed=jnp.asarray(seed, jnp.uint32),
            step=jnp.int32(0),
            params=params,
            carry=carry,
            opt_state=optimizer.init(params),
            best_params=params,
            best_score=jnp.float32(jnp.inf),  # so the first score is better
            best_epoch=jnp.int32(0),
            rate_scale=jnp.float32(1),
            plateau_score=jnp.float32(jnp.inf),
            plateau_epochs=jnp.int32(0),
            stopped=jnp.bool_(False),
            diverged=jnp.int32(0),
        )

    def counts(self) -> dict[str, Tree]:
        """Returns the numbers that the loop reads after every epoch."""
        return {name: getattr(self, name) for name in ("seed", "step", "stopped", "diverged")}

    def epoch_key(self, epoch: Array) -> Array:
        """Returns the key of everything random in an epoch, which counts from 1."""
        return jax.random.fold_in(jax.random.key(self.seed), epoch)

    def with_changes(self, **changes: Tree) -> "TrainState":
        """Returns the state with other values of some fields."""
        return self.replace(**changes)  # pyright: ignore

    def after_epoch(
        self, score: Array, epoch: Array, *, plateau: Plateau, patience: int
    ) -> "TrainState":
        """Keeps the parameters if they are the best so far, lowers the rate, or stops.

        It stops after `patience` epochs without a best one; 0 never. A lower `score` is better.
        """
        better = score < self.best_score
        best_epoch = jnp.where(better, jnp.asarray(epoch, jnp.int32), self.best_epoch)
        gained = score < self.plateau_score * (1 - plateau.threshold)
        waited = jnp.where(gained, 0, self.plateau_epochs + 1)
        falls = (waited > plateau.patience) & (plateau.patience > 0)
        after = self.with_changes(
            best_params=choose(better, self.params, self.best_params),
            best_score=jnp.where(better, score, self.best_score),
            best_epoch=best_epoch,
            rate_scale=jnp.where(falls, self.rate_scale * plateau.factor, self.rate_scale),
            plateau_score=jnp.where(gained, score, self.plateau_score),
            plateau_epochs=jnp.where(falls, 0, waited),
            stopped=jnp.bool_(patience > 0) & (epoch - best_epoch >= patience),
        )
        return choose(self.stopped, self, after)  # a stopped seed stays as it is


def train_step(
    state: TrainState,
    batch: Batch,
    key: Key[Array, ""],
    *,
    loss: Loss,
    optimizer: optax.GradientTransformation,
) -> tuple[TrainState, Metrics]:
    """Takes one step of gradient descent.

    `loss(params, carry, batch, key) -> (loss, (carry, metrics))`; the key is for dropout, and None
    at evaluation.
    """
    gradient = jax.value_and_grad(loss, has_aux=True)
    (_, (carry, metrics)), grads = gradient(
        state.params, state.carry, batch, jax.random.fold_in(key, state.step)
    )
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, optax.tree.scale(state.rate_scale, updates))
    changes = {"params": params, "carry": carry, "opt_state": opt_state}
    return state.with_changes(step=state.step + 1, **changes), metrics


def order_of_epoch(state: TrainState, epoch: Array, *, plan: Plan) -> Tree:
    """Lays out an epoch, one entry a step along the leading axis.

    It is a program of its own: to sort 100,000 rows anew for every chunk takes longer than a small
    model takes for its steps.
    """
    order_key, _ = jax.random.split(state.epoch_key(epoch))
    return keep_whole(plan(order_key, epoch))


def take_step(
    state: TrainState, entry: Tree, key: Array, data: Tree, *, step: Step, fetch: Fetch
) -> tuple[TrainState, Metrics]:
    """Takes the step of an entry of the order.

    `fetch(data, entry)` makes its batch. Where batches differ in length there are several of them,
    and an entry is the number of the one to take and its argument.
    """
    if callable(fetch):
        return step(state, fetch(data, entry), key)
    number, rows = entry
    branches = [lambda s, r, f=f: step(s, f(data, r), key) for f in fetch]
    return jax.lax.switch(number, branches, state, rows)  # a branch for each length of a batch


def train_steps(
    state: TrainState,
    sums: Metrics,
    order: Tree,
    epoch: Array,
    first: Array,
    last: Array,
    data: Tree,
    *,
    step: Step,
    fetch: Fetch,
) -> tuple[TrainState, Metrics, Bool[Array, ""]]:
    """Takes the steps of an epoch from `first` to before `last`.

    Returns the state, the sums of the metrics, and whether all numbers are finite. If they are not,
    the seed stops and stays as it was before: a number that is not finite in one step is not finite
    in any later one, so one look at the end of a chunk suffices.

    Both bounds are arrays, so one compilation serves every part of an epoch. Steps add to `sums`
    one after another, so an epoch in chunks is the epoch in one, to the last bit. A stopped seed
    stays as it is.
    """
    _, step_key = jax.random.split(state.epoch_key(epoch))

    def body(i: Array | int, both: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
        state, sums = both
        entry = jax.tree.map(lambda leaf: leaf[i], order)
        state, metrics = take_step(state, entry, step_key, data, step=step, fetch=fetch)
        return state, jax.tree.map(jnp.add, sums, metrics)

    def run(state: TrainState, sums: Metrics) -> tuple[TrainState, Metrics]:
        state = state.with_changes(carry=choose(first == 0, reset(state.carry), state.carry))
        return jax.lax.fori_loop(first, last, body, (state, sums))  # traced bounds: one program

    before = state.with_changes(stopped=jnp.bool_(True), diverged=jnp.int32(epoch)), sums
    after = jax.lax.cond(state.stopped, lambda *same: same, run, state, sums)
    finite = is_finite((after[0].params, after[0].carry, after[0].opt_state, after[1]))
    return *choose(finite, after, before), finite


def is_finite(tree: Tree) -> Bool[Array, ""]:
    """Returns whether no number of a tree is infinite or NaN."""
    return jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]))


def evaluate(
    params: Tree, carry: Tree, batches: Sequence[Batch], *, loss: Loss
) -> dict[str, Array]:
    """Computes metrics over stacked batches, as `pad_batches` makes them, one stack a length.

    They are exact: masked rows do not count.
    """

    @functools.partial(jax.jit, inline=True)  # traced once, for its sums and for its batches
    def measure(carry: Tree, batch: Batch) -> tuple[Tree, Metrics]:
        return loss(params, carry, batch, None)[1]

    def body(both: tuple[Tree, Metrics], batch: Batch) -> tuple[tuple[Tree, Metrics], None]:
        carry, sums = both
        carry, metrics = measure(carry, batch)
        return (carry, jax.tree.map(jnp.add, sums, metrics)), None

    carry = reset(carry)
    first = jax.tree.map(lambda leaf: leaf[0], batches[0])
    _, shapes = jax.eval_shape(measure, carry, first)
    both = carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    for stack in batches:
        both, _ = jax.lax.scan(body, both, stack)
    return compute(both[1])


def reset(carry: Tree) -> Tree:
    """Returns the carry at the start of an epoch or an evaluation: zeros."""
    return jax.tree.map(jnp.zeros_like, carry)


def choose(condition: Array, new: Tree, old: Tree) -> Tree:
    """Returns the leaves of one tree where a condition holds, and of another elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def shuffled_rows(
    key: Key[Array, ""], epoch: Array | int, num_examples: int, batch_size: int, num_steps: int
) -> Int[Array, "steps batch"]:
    """Draws the rows of each step's batch: permutations of the examples, one after another.

    Each goes without its last partial batch. They depend on the key alone, whatever the epoch.
    """
    steps_a_pass = num_examples // batch_size
    keys = jax.random.split(key, -(-num_steps // steps_a_pass))  # one for each pass
    orders = jax.vmap(
        lambda k: jax.random.permutation(k, num_examples)[: steps_a_pass * batch_size]
    )(keys)  # (passes, steps * batch)
    return orders.reshape(-1, batch_size)[:num_steps]  # (steps, batch)


def gather(data: Tree, rows: Int[Array, " batch"]) -> Batch:
    """Returns the batch of the given rows of every array."""
    return jax.tree.map(lambda array: array[rows], data)


def pad_batches(arrays: Batch, batch_size: int) -> Batch:
    """Cuts arrays into batches `(num_batches, batch_size, ...)`.

    The last is padded with zeros and masked out: the added entry `mask` is True on real rows.
    """
    num_examples = len(jax.tree.leaves(arrays)[0])
    num_batches = -(-num_examples // batch_size)

    def cut(array: Tree) -> np.ndarray:
        array = np.asarray(array)
        padding = [(0, num_batches * batch_size - num_examples)] + [(0, 0)] * (array.ndim - 1)
        return np.pad(array, padding).reshape(num_batches, batch_size, *array.shape[1:])

    return jax.tree.map(cut, arrays) | {"mask": cut(np.ones(num_examples, bool))}
