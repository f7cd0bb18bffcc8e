"""The state of a run, and its steps, epochs and evaluations as pure functions of one seed.

Steps run in a loop of XLA, many in one call, given a convolution that keeps its speed inside a
loop. `python -m benchmarks.steps --calls` measures it beside a loop over calls of one jitted step,
which on 2 CPU cores took 1.1 to 2.3 times as long, whatever the model.

Between the calls, which are segments of an epoch, training can stop and save. A segment takes about
a second with every model. The number of its steps follows from the operations of one step, not from
a clock, so it is the same in every process and on every start.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.extend import core
from jaxtyping import Array, Bool, Int, Key

from flax_attn.training.mesh import keep_whole
from flax_attn.training.metrics import Metric, compute
from flax_attn.types import Batch, Tree


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


Metrics = dict[str, Metric]
Loss = Callable[..., tuple[Array, tuple[Tree, Metrics]]]
Step = Callable[[TrainState, Batch, Array], tuple[TrainState, Metrics]]
Plan = Callable[[Array, Array], Tree]
Fetch = Callable[[Tree, Tree], Batch] | Sequence[Callable[[Tree, Tree], Batch]]

SEGMENT = 50_000_000_000  # what 2 CPU cores do in one or two seconds, in weights of operations
CALL = 20_000  # what it costs to begin an operation


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
    entry = jax.tree.map(lambda leaf: leaf[0], keep_whole(plan(key, jnp.int32(1))))
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
        entries = keep_whole(plan(order_key, epoch))

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


def steps_a_segment(jaxpr: core.ClosedJaxpr) -> int:
    """The steps of a segment, from the operations of a program whose loop takes one step."""
    return max(1, SEGMENT // weigh(jaxpr.jaxpr))


def weigh(jaxpr: core.Jaxpr) -> int:
    """The weight of a program: multiplications of products, elements of all else, and the calls.

    The body of a loop counts as often as a `scan` runs it, and once in a `while`, whose number
    is not known. Of branches the heaviest counts.
    """
    return sum(_weigh_equation(equation) for equation in jaxpr.eqns)


def _weigh_equation(equation: Any) -> int:  # Any: of JAX, which has no public type for it
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        return max(weigh(branch.jaxpr) for branch in params["branches"])
    programs = core.Jaxpr, core.ClosedJaxpr  # the one is the other from JAX 0.12 on
    inner = [_opened(value) for value in params.values() if isinstance(value, programs)]
    if inner:
        return (params["length"] if name == "scan" else 1) * sum(map(weigh, inner))
    size = sum(math.prod(out.aval.shape) for out in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        size *= math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, features = equation.invars[1].aval.shape, params["dimension_numbers"].rhs_spec[0]
        size *= math.prod(kernel) // kernel[features]
    return size + CALL


def _opened(program: core.Jaxpr | core.ClosedJaxpr) -> core.Jaxpr:
    return program.jaxpr if isinstance(program, core.ClosedJaxpr) else program
