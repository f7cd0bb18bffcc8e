"""The compiled programs of a run: what it does with one seed, over all seeds and devices."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from flax_attn.errors import UsageError
from flax_attn.experiment.building import (
    Scores,
    States,
    count_steps,
    make_create,
    make_loss,
    make_plan,
)
from flax_attn.experiment.config import Config
from flax_attn.models.forward import Params, sharing_sequences
from flax_attn.tasks import Task
from flax_attn.training import epoch
from flax_attn.training.mesh import (
    EVERYWHERE,
    SEEDS,
    keep_whole,
    make_mesh,
    over_seeds,
    put,
    zeros_like,
)
from flax_attn.training.state import TrainState, choose
from flax_attn.types import Tree


class OneSeed(NamedTuple):
    """What a run does with one seed, as functions that are not compiled.

    Attributes:
        create: from a seed to its state.
        first_metrics: from a state and rows to the metrics of the first step of all.
        train_steps: from a state, sums of metrics, the number of the epoch, two steps of it and
            rows to the state and the sums after the steps between, and whether they are finite.
        guarded_steps: the same, where a step that is not finite changes nothing.
        evaluate: from parameters, carry and batches by split to metrics by split.
        after_epoch: from a state, the score of validation and the number of the epoch to a state.
    """

    create: Callable[[Array], TrainState]
    first_metrics: Callable[[TrainState, epoch.Batch], epoch.Metrics]
    train_steps: Callable
    guarded_steps: Callable
    evaluate: Callable[[Params, Params, dict[str, list[epoch.Batch]]], dict[str, Scores]]
    after_epoch: Callable[[TrainState, Array, Array], TrainState]


def make_one_seed(config: Config, model: nn.Module, task: Task, steps_an_epoch: int) -> OneSeed:
    """The functions of one seed, from its state at the start to what follows an epoch."""
    loss = make_loss(model, task.measure)
    num_steps = config.num_epochs * steps_an_epoch
    optimizer = config.optimizer.build(config.learning_rate, num_steps)
    plan, fetch = make_plan(config, task, steps_an_epoch)
    layout = {"plan": lambda *key_and_epoch: keep_whole(plan(*key_and_epoch)), "fetch": fetch}
    take_step = functools.partial(epoch.train_step, loss=loss, optimizer=optimizer)
    step = jax.jit(take_step, inline=True)  # traced once, for its sums and for its steps
    guarded = functools.partial(take_step, max_bad_steps=config.max_bad_steps)

    def evaluate(
        params: Params, carry: Params, batches: dict[str, list[epoch.Batch]]
    ) -> dict[str, Scores]:
        return {
            name: epoch.evaluate(params, carry, stacks, loss=loss)
            for name, stacks in batches.items()
        }

    return OneSeed(
        create=make_create(config, model, task.sample(), num_steps),
        first_metrics=functools.partial(epoch.first_metrics, step=step, **layout),
        train_steps=functools.partial(epoch.train_steps, step=step, **layout),
        guarded_steps=functools.partial(epoch.train_steps, step=guarded, **layout),
        evaluate=evaluate,
        after_epoch=functools.partial(
            TrainState.after_epoch, plateau=config.optimizer.plateau, patience=config.patience
        ),
    )


class Programs(NamedTuple):
    """The functions of `OneSeed`, compiled over all seeds and devices.

    Attributes:
        mesh: the devices. States and sums lie on it by seeds, rows and batches as a whole.
        one_seed: the functions themselves, for one device.
        zero_sums: from states and rows to sums of metrics to begin an epoch with.
        choose: from truth values, one a seed, and two trees to the leaves of the one or the other.
        steps_an_epoch: how many there are.
    """

    mesh: Mesh
    one_seed: OneSeed
    create: Callable[[range], States]
    zero_sums: Callable[[States, epoch.Batch], epoch.Metrics]
    train_steps: jax.stages.Wrapped
    guarded_steps: jax.stages.Wrapped
    evaluate: jax.stages.Wrapped
    after_epoch: Callable[[States, Array, np.int32], States]
    choose: Callable[[Array, Tree, Tree], Tree]
    steps_an_epoch: int

    def train_epoch(
        self, states: States, number: int | Array, rows: epoch.Batch
    ) -> tuple[States, Scores]:
        """A whole epoch in one call: the states and the metrics."""
        bounds = (np.int32(number), np.int32(0), np.int32(self.steps_an_epoch))
        states, sums, _ = self.train_steps(states, self.zero_sums(states, rows), *bounds, rows)
        return states, epoch.compute(sums)


def make_programs(
    config: Config,
    model: nn.Module,
    task: Task,
    num_devices: int | None = None,
    sequence: int = 1,
) -> Programs:
    """Builds the run's programs; one compilation of each serves all epochs.

    They run on the first `num_devices`, or on all, as far as these divide the work.

    Raises:
        UsageError: several processes whose devices do not divide the work, or sequences to share in
            a model that does not attend across devices.
    """
    steps_an_epoch = count_steps(config, task)
    alone = one = make_one_seed(config, model, task, steps_an_epoch)
    mesh = mesh_of(config, num_devices, sequence)
    if sequence > 1:
        try:
            one = make_one_seed(config, sharing_sequences(model), task, steps_an_epoch)
        except ValueError as error:
            raise UsageError(str(error)) from error
    seeds, everywhere = NamedSharding(mesh, SEEDS), NamedSharding(mesh, EVERYWHERE)
    one_by_one = epoch.sequential if jax.default_backend() == "cpu" else epoch.vectorized

    def over_all(function: Callable, mapped: int, out: Tree) -> jax.stages.Wrapped:
        return jax.jit(over_seeds(mesh, one_by_one(function, mapped), mapped), out_shardings=out)

    first_metrics = jax.jit(over_seeds(mesh, one_by_one(one.first_metrics)))  # traced, never run

    def zero_sums(states: States, rows: epoch.Batch) -> epoch.Metrics:
        shapes = jax.eval_shape(first_metrics, states, rows)
        return put(mesh, zeros_like(shapes), SEEDS)

    after_epoch = over_seeds(mesh, jax.vmap(one.after_epoch, in_axes=(0, 0, None)), 2)
    return Programs(
        mesh=mesh,
        one_seed=alone,
        create=lambda seeds: put(mesh, epoch.stack_seeds(alone.create, seeds), SEEDS),
        zero_sums=zero_sums,
        train_steps=over_all(one.train_steps, 2, (seeds, seeds, everywhere)),
        guarded_steps=over_all(one.guarded_steps, 2, (seeds, seeds, everywhere)),
        evaluate=over_all(one.evaluate, 2, everywhere),
        after_epoch=jax.jit(after_epoch, out_shardings=seeds),
        choose=jax.jit(over_seeds(mesh, jax.vmap(choose), 3), out_shardings=seeds),
        steps_an_epoch=steps_an_epoch,
    )


def mesh_of(config: Config, num_devices: int | None = None, sequence: int = 1) -> Mesh:
    """The mesh that a run trains on. Errors are those of `make_programs`."""
    try:
        return make_mesh(config.num_seeds, config.batch_size, num_devices, sequence)
    except ValueError as error:
        raise UsageError(str(error)) from error
