"""From a config to what trains: the model, the functions of one seed, and programs over all seeds.

`build_model` makes the model, `make_one_seed` the functions of one seed, and `make_programs` what
XLA compiles of them over all seeds and devices.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import FlaxError
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Key

from flax_attn import platforms
from flax_attn.errors import UsageError, one_line, shortened, unknown
from flax_attn.experiment.config import Config
from flax_attn.kinds.task import Task, row_lengths
from flax_attn.models.forward import Inputs, Params, sharing_sequences
from flax_attn.training import buckets, epoch
from flax_attn.training.epoch import TrainState, choose
from flax_attn.training.mesh import (
    EVERYWHERE,
    SEEDS,
    cut_rows,
    make_mesh,
    over_seeds,
    put,
    sequential,
    stack_seeds,
    vectorized,
    zeros_like,
)
from flax_attn.types import Json, Options, Tree

States = TrainState  # of all seeds, stacked along the leading axis
Scores = dict[str, Array]  # (seeds,) by metric
MOST_NUMBERS = 2**28  # of a batch
# what Flax and JAX raise for fields that make no model
NOT_MADE = (ArithmeticError, AssertionError, AttributeError, FlaxError, LookupError)
NOT_MADE += (NotImplementedError, TypeError, ValueError)


def build_model(config: Config, sizes: Mapping[str, int]) -> nn.Module:
    """The model of a config.

    Its fields are those of the config's `model` part, and what the data decide.

    Raises:
        UsageError: an unknown field, or a model that is not for such data.
    """
    name, model_class = config.model["name"], config.model_class
    options = {key: _frozen(value) for key, value in config.model.items() if key != "name"}
    fields = (field.name for field in dataclasses.fields(model_class))
    known = [field for field in fields if field not in ("name", "parent", "across")]
    for option in options:
        if option not in known or option in sizes:
            choices = [field for field in known if field not in sizes]
            message = unknown(f"field of model '{shortened(name)}'", option, choices)
            raise UsageError(f"{message} (or take a config with model.name={shortened(name)})")
    if not sizes.keys() <= set(known):
        decided = " and ".join(sizes)
        raise UsageError(
            f"model '{name}' is not for this data, which decides {decided}; choose another "
            f"model.name"
        )
    try:
        return model_class(**options, **sizes)
    except TypeError as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error


def _frozen(value: Json) -> Json:
    """Lists as tuples: a model with a list has no hash."""
    return tuple(value) if isinstance(value, list) else value


def layer_table(model: nn.Module, sample: Inputs, params: Params) -> str:
    """The outermost layers with their output shapes and parameters. `params` may be shapes.

    Raises:
        UsageError: a model that cannot be built from its fields.
    """
    # a key without a program to compile
    key = jax.random.wrap_key_data(jax.device_put(np.zeros(2, np.uint32)), impl="threefry2x32")
    console = {"width": 110, "force_terminal": False}
    try:
        table = nn.tabulate(model, key, depth=1, console_kwargs=console)(jax.device_put(sample))
    except NOT_MADE as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    # its total of parameters also counts what is carried
    layers, _, _ = table.rpartition("Total Parameters")
    return f"{layers.rstrip()}\nparameters: {count_parameters(params):,}"


def shapes_of_params(model: nn.Module, task: Task) -> Params:
    """The shapes of the parameters of a model whose outputs fit the targets of a task.

    Raises:
        UsageError: a model that cannot be built from its fields, or that is not for such data.
    """
    row = jax.tree.map(lambda array: array[:1], task.rows.train)
    init = functools.partial(model.init_with_output, train=False)
    try:
        output, variables = jax.eval_shape(init, jax.random.key(0), row["inputs"])
        _check_output(output)
        params = variables["params"]
    except NOT_MADE as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    measure = lambda outputs, aux, row: task.measure(outputs, aux, row, True)[0]
    try:
        jax.eval_shape(measure, output[0], output[1], row)
    except NOT_MADE as error:
        raise UsageError(
            f"expected a model.name whose outputs fit targets of shape {row['targets'].shape[1:]}, "
            f"got {type(model).__name__} ({one_line(error)[:200]}); choose another"
        ) from error
    return params


def _check_output(output: Tree) -> None:
    """Raises a TypeError for what a model gives, as shapes, where it is not `(outputs, aux)`."""
    if not isinstance(output, tuple) or len(output) != 2 or not isinstance(output[1], dict):
        got = "an array" if hasattr(output, "shape") else type(output).__name__
        raise TypeError(f"it gives {got}, not (outputs, aux) with aux a dict")
    if not isinstance(output[1].get("attention", {}), dict):
        raise TypeError("it gives an aux['attention'] that is no dict of weights by name")


def count_parameters(params: Params) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def make_loss(model: nn.Module, measure: Callable[..., Tree]) -> epoch.Loss:
    """`loss(params, carry, batch, key) -> (loss, (carry, metrics))`; evaluation has no key."""

    def loss(params: Params, carry: Params, batch: epoch.Batch, key: Key[Array, ""] | None) -> Tree:
        batch = cut_rows(batch)
        variables, train = {"params": params, "carry": carry}, key is not None
        options: Options = {"train": train, "mutable": ["carry"]}
        options["rngs"] = {"dropout": key} if train else None
        (outputs, aux), updates = model.apply(variables, batch["inputs"], **options)
        value, metrics = measure(outputs, aux, batch, train)
        return value, (updates.get("carry", {}), metrics)

    return loss


def make_create(
    config: Config, model: nn.Module, sample: Inputs, num_steps: int
) -> Callable[[Array], TrainState]:
    """`create(seed)` makes the state that a seed begins with."""
    sample = jax.device_put(sample)

    def init(key: Key[Array, ""]) -> tuple[Params, Params]:
        variables = model.init(key, sample)
        return variables["params"], variables.get("carry") or {}

    optimizer = config.optimizer.build(config.learning_rate, num_steps)
    return functools.partial(TrainState.create, init=init, optimizer=optimizer)


def shapes_of_states(config: Config, model: nn.Module, sample: Inputs) -> Tree:
    """The shapes and dtypes of the states of all seeds. Nothing is allocated.

    Raises:
        AttributeError, TypeError, ValueError: a model that cannot be made.
    """
    if sum(leaf.size for leaf in jax.tree.leaves(sample)) > MOST_NUMBERS:
        raise ValueError(f"more than {MOST_NUMBERS:,} numbers in a batch")

    def create(sample: Inputs) -> TrainState:
        # the number of steps decides no shape
        return make_create(config, model, sample, num_steps=1)(jnp.uint32(config.seed))

    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((config.num_seeds, *leaf.shape), leaf.dtype),
        jax.eval_shape(create, sample),
    )


def count_steps(config: Config, task: Task) -> int:
    """The steps of an epoch: those that the config wants, or once through the training examples."""
    train = task.rows.train
    num_examples, lengths = len(jax.tree.leaves(train)[0]), row_lengths(train)
    if config.steps_per_epoch:
        return config.steps_per_epoch
    if lengths is None or task.rows.draw is not None:
        return num_examples // config.batch_size
    return buckets.count_steps(
        buckets.make_buckets(lengths, num_buckets(config)), config.batch_size
    )


def make_plan(config: Config, task: Task, num_steps: int) -> tuple[Callable, Tree]:
    """How an epoch is laid out, and how a batch is made.

    A batch is drawn, gathered, or gathered from a bucket of rows of like length. There is a
    function for each bucket.
    """
    draw, train = task.rows.draw, task.rows.train
    if draw is not None:
        return lambda key, epoch: jax.random.split(key, num_steps), draw
    sizes, lengths = {"batch_size": config.batch_size, "num_steps": num_steps}, row_lengths(train)
    if lengths is None:
        num_examples = len(jax.tree.leaves(train)[0])
        return functools.partial(
            epoch.shuffled_rows, num_examples=num_examples, **sizes
        ), epoch.gather
    row_buckets = buckets.make_buckets(lengths, num_buckets(config))
    order = {"data_seed": config.data.seed, "shuffle": getattr(config.data, "shuffle", True)}
    plan = functools.partial(buckets.plan, buckets=row_buckets, **sizes, **order)
    return plan, [functools.partial(buckets.fetch, length=bucket.length) for bucket in row_buckets]


def make_batches(config: Config, task: Task) -> dict[str, list[epoch.Batch]]:
    """The rows that a run is measured on as stacked batches by split, one stack a length."""

    def stacks(rows: epoch.Batch) -> list[epoch.Batch]:
        if (lengths := row_lengths(rows)) is None:
            return [epoch.pad_batches(rows, config.batch_size)]
        batches = []
        for bucket in buckets.make_buckets(lengths, num_buckets(config)):
            rows_of_bucket = jax.tree.map(lambda array, b=bucket: array[b.first : b.last], rows)
            batches.append(
                epoch.pad_batches(buckets.cut(rows_of_bucket, bucket.length), config.batch_size)
            )
        return batches

    return {name: stacks(rows) for name, rows in task.rows.splits.items()}


def num_buckets(config: Config) -> int:
    """The number of lengths of batches, for data whose rows differ in length."""
    return getattr(config.data, "num_buckets", 1)


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
    layout = {"plan": plan, "fetch": fetch}
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
    mesh: Mesh | None = None,
) -> Programs:
    """Builds the run's programs; one compilation of each serves all epochs.

    Args:
        config, model, task: what is trained.
        mesh: the devices; None for all, as far as they divide the work.

    Raises:
        UsageError: several processes whose devices do not divide the work, or sequences to share in
            a model that does not attend across devices.
    """
    mesh = mesh_of(config) if mesh is None else mesh
    steps_an_epoch = count_steps(config, task)
    alone = one = make_one_seed(config, model, task, steps_an_epoch)
    if len(mesh.axis_sizes) > 2:  # sequences are shared
        try:
            one = make_one_seed(config, sharing_sequences(model), task, steps_an_epoch)
        except ValueError as error:
            raise UsageError(str(error)) from error
    seeds, everywhere = NamedSharding(mesh, SEEDS), NamedSharding(mesh, EVERYWHERE)
    one_by_one = sequential if platforms.current() == platforms.CPU else vectorized

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
        create=lambda seeds: put(mesh, stack_seeds(alone.create, seeds), SEEDS),
        zero_sums=zero_sums,
        train_steps=over_all(one.train_steps, 2, (seeds, seeds, everywhere)),
        guarded_steps=over_all(one.guarded_steps, 2, (seeds, seeds, everywhere)),
        evaluate=over_all(one.evaluate, 2, everywhere),
        after_epoch=jax.jit(after_epoch, out_shardings=seeds),
        choose=jax.jit(over_seeds(mesh, jax.vmap(choose), 3), out_shardings=seeds),
        steps_an_epoch=steps_an_epoch,
    )


def mesh_of(config: Config, num_devices: int | None = None, sequence: int = 1) -> Mesh:
    """Makes the mesh that a run trains on, of the first `num_devices` or of all.

    Args:
        sequence: the number of devices that share each sequence.

    Raises:
        UsageError: several processes whose devices do not divide the work.
    """
    try:
        return make_mesh(config.num_seeds, config.batch_size, num_devices, sequence)
    except ValueError as error:
        raise UsageError(str(error)) from error
