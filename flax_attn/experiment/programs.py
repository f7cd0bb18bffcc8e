"""Makes the programs of a run: the model, the functions of one seed, and these over all seeds."""

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
from jax.typing import DTypeLike
from jaxtyping import Array, Key

from flax_attn import platforms
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.config import Config
from flax_attn.models.forward import Inputs, Params, sharing_sequences
from flax_attn.tasks.task import Task, row_lengths
from flax_attn.training import buckets, epoch
from flax_attn.training.epoch import TrainState
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
from flax_attn.types import Options, Tree

States = TrainState  # of all seeds, stacked along the leading axis
MetricValues = dict[str, Array]  # (seeds,) by metric
# the errors of Flax and JAX for fields that make no model
NOT_MADE = (ArithmeticError, AssertionError, AttributeError, FlaxError, LookupError)
NOT_MADE += (NotImplementedError, TypeError, ValueError)


def build_model(config: Config, sizes: Mapping[str, int]) -> nn.Module:
    """Builds the model of a config from the fields of its `model` part and those of the data."""
    name, model_class = config.model["name"], config.model_class
    options = {key: value for key, value in config.model.items() if key != "name"}
    # a model with a list has no hash
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    for option in options.keys() & sizes.keys():
        raise UsageError(f"expected no model.{option}, which the data decide")
    if not sizes.keys() <= {field.name for field in dataclasses.fields(model_class)}:
        raise UsageError(
            f"model '{name}' is not for this data, which decides {' and '.join(sizes)}; choose "
            f"another model.name"
        )
    try:
        return model_class(**options, **sizes)
    except TypeError as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error


def build(config: Config, task: Task) -> tuple[nn.Module, str]:
    """Builds the model of a task, tries it, and returns it with a line on its layers."""
    model = build_model(config, task.kept.sizes)
    return model, describe_layers(model, shapes_of_params(model, task))


def describe_layers(model: nn.Module, params: Params) -> str:
    """Describes a model and its outermost layers, with the parameters of each."""
    layers = ", ".join(f"{name} {count_parameters(layer):,}" for name, layer in params.items())
    return f"model: {type(model).__name__}, {count_parameters(params):,} parameters ({layers})"


def shapes_of_params(model: nn.Module, task: Task) -> Params:
    """Returns the shapes of the parameters of a model, and tries it on a training example."""
    row = jax.tree.map(lambda array: array[:1], task.rows.train)
    init = functools.partial(model.init_with_output, train=False)
    try:
        output, variables = jax.eval_shape(init, jax.random.key(0), row["inputs"])
        if not isinstance(output, tuple) or len(output) != 2 or not isinstance(output[1], dict):
            raise TypeError("it does not give (outputs, aux) with aux a dict")
        if not isinstance(output[1].get("attention", {}), dict):
            raise TypeError("it gives an aux['attention'] that is no dict of weights by name")
        params = variables["params"]
    except NOT_MADE as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    measure = lambda outputs, aux, row: task.loss(outputs, aux, row, True)[0]
    try:
        jax.eval_shape(measure, output[0], output[1], row)
    except NOT_MADE as error:
        raise UsageError(
            f"expected a model.name whose outputs fit targets of shape {row['targets'].shape[1:]}, "
            f"got {type(model).__name__} ({one_line(error)[:200]}); choose another"
        ) from error
    return params


def count_parameters(params: Tree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def make_loss(
    model: nn.Module, measure: Callable[..., Tree], precision: str = "float32"
) -> epoch.Loss:
    """Makes `loss(params, carry, batch, key) -> (loss, (carry, metrics))`.

    The key is for dropout; evaluation has none. The precision is that of the model in training.

    Source: Micikevicius et al. 2018 (arXiv:1710.03740), section 3.1, for the float32 parameters.
    """

    def loss(params: Params, carry: Params, batch: epoch.Batch, key: Key[Array, ""] | None) -> Tree:
        batch = cut_rows(batch)  # each device of a group has its rows
        variables, train = {"params": params, "carry": carry}, key is not None
        options: Options = {"train": train, "mutable": ["carry"]}
        options["rngs"] = {"dropout": key} if train else None  # evaluation drops nothing
        taken, is_half = (variables, batch["inputs"]), train and precision == "bfloat16"
        computed = model.apply(*(to_floats(taken, precision) if is_half else taken), **options)
        (outputs, aux), updates = to_floats(computed, "float32") if is_half else computed
        value, metrics = measure(outputs, aux, batch, train)
        return value, (updates.get("carry", {}), metrics)

    return loss


def to_floats(tree: Tree, dtype: DTypeLike) -> Tree:
    """Converts the floats of a tree; other numbers stay as they are."""

    def convert(array: Array) -> Array:
        return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array

    return jax.tree.map(convert, tree)


def make_create(
    config: Config, model: nn.Module, sample: Inputs, num_steps: int
) -> Callable[[Array], TrainState]:
    """Makes `create(seed)`, which makes the state that a seed begins with."""
    sample = jax.device_put(sample)

    def init(key: Key[Array, ""]) -> tuple[Params, Params]:
        variables = model.init(key, sample)
        return variables["params"], variables.get("carry") or {}

    optimizer = config.optimizer.build(config.learning_rate, num_steps)
    return functools.partial(TrainState.create, init=init, optimizer=optimizer)


def shapes_of_states(config: Config, model: nn.Module, sample: Inputs) -> Tree:
    """Returns the shapes and dtypes of the states of all seeds. Nothing is allocated."""

    def create(sample: Inputs) -> TrainState:
        # the number of steps decides no shape
        return make_create(config, model, sample, num_steps=1)(jnp.uint32(config.seed))

    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((config.num_seeds, *leaf.shape), leaf.dtype),
        jax.eval_shape(create, sample),
    )


def count_steps(config: Config, task: Task) -> int:
    """Counts the steps of an epoch: those of the config, or once through the training examples."""
    train = task.rows.train
    num_examples, lengths = len(jax.tree.leaves(train)[0]), row_lengths(train)
    if config.steps_per_epoch:
        return config.steps_per_epoch
    if lengths is None or task.rows.draw is not None:
        return max(1, num_examples // config.batch_size)  # the last partial batch is left out
    return buckets.count_steps(
        buckets.make_buckets(lengths, num_buckets(config)), config.batch_size
    )


def make_plan(config: Config, task: Task, num_steps: int) -> tuple[Callable, Tree]:
    """Makes the functions that lay out an epoch and make a batch.

    A batch is drawn, gathered, or gathered from a bucket of rows of similar length. There is a
    function for each bucket.
    """
    draw, train = task.rows.draw, task.rows.train
    if draw is not None:
        return lambda key, epoch: jax.random.split(key, num_steps), draw  # a key for each step
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
    """Stacks the batches that a run is evaluated on, by split, one stack for each length."""

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
    """Returns the number of batch lengths, for data whose rows differ in length."""
    return getattr(config.data, "num_buckets", 1)


class OneSeed(NamedTuple):
    """The functions of one seed, not compiled.

    Attributes:
        create: `seed -> state`.
        order: `(state, epoch) -> order`, the layout of an epoch.
        first_metrics: `(state, order, rows) -> metrics` of the first step.
        train_steps: `(state, sums, order, epoch, first, last, rows) -> (state, sums, is_finite)`.
        evaluate: `(params, carry, batches) -> metrics`, both by split.
        after_epoch: `(state, score, epoch) -> state`.
    """

    create: Callable[[Array], TrainState]
    order: Callable[[TrainState, Array], Tree]
    first_metrics: Callable[[TrainState, Tree, epoch.Batch], epoch.Metrics]
    train_steps: Callable
    evaluate: Callable[[Params, Params, dict[str, list[epoch.Batch]]], dict[str, MetricValues]]
    after_epoch: Callable[[TrainState, Array, Array], TrainState]


def make_one_seed(config: Config, model: nn.Module, task: Task, steps_an_epoch: int) -> OneSeed:
    """Makes the functions of one seed."""
    loss = make_loss(model, task.loss, config.precision)
    num_steps = config.num_epochs * steps_an_epoch
    optimizer = config.optimizer.build(config.learning_rate, num_steps)
    plan, fetch = make_plan(config, task, steps_an_epoch)
    step = functools.partial(epoch.train_step, loss=loss, optimizer=optimizer)
    step = jax.jit(step, inline=True)  # traced once, for its sums and for its steps

    def first_metrics(state: TrainState, order: Tree, rows: epoch.Batch) -> epoch.Metrics:
        entry, key = jax.tree.map(lambda leaf: leaf[0], order), state.epoch_key(jnp.int32(1))
        return epoch.take_step(state, entry, key, rows, step=step, fetch=fetch)[1]

    def evaluate(
        params: Params, carry: Params, batches: dict[str, list[epoch.Batch]]
    ) -> dict[str, MetricValues]:
        return {
            name: epoch.evaluate(params, carry, stacks, loss=loss)
            for name, stacks in batches.items()
        }

    rules = {"plateau": config.optimizer.plateau, "patience": config.patience}
    return OneSeed(
        create=make_create(config, model, task.sample(), num_steps),
        order=functools.partial(epoch.order_of_epoch, plan=plan),
        first_metrics=first_metrics,
        train_steps=functools.partial(epoch.train_steps, step=step, fetch=fetch),
        evaluate=evaluate,
        after_epoch=functools.partial(TrainState.after_epoch, **rules),
    )


class Programs(NamedTuple):
    """The functions of `OneSeed`, compiled over all seeds and devices.

    Attributes:
        mesh: the devices. States, sums and order lie on it by seeds, rows and batches as a whole.
        one_seed: the functions themselves, for one device.
        zero_sums: `(states, order, rows) -> sums` of metrics to begin an epoch with.
        steps_an_epoch: how many there are.
    """

    mesh: Mesh
    one_seed: OneSeed
    create: Callable[[range], States]
    order: jax.stages.Wrapped | jax.stages.Compiled
    zero_sums: Callable[[States, Tree, epoch.Batch], epoch.Metrics]
    train_steps: jax.stages.Wrapped | jax.stages.Compiled
    evaluate: jax.stages.Wrapped | jax.stages.Compiled
    after_epoch: jax.stages.Wrapped | jax.stages.Compiled
    steps_an_epoch: int

    def train_epoch(
        self, states: States, number: int | Array, rows: epoch.Batch
    ) -> tuple[States, MetricValues]:
        """Takes a whole epoch in one call. Returns the states and the metrics."""
        order = self.order(states, np.int32(number))
        bounds = (np.int32(number), np.int32(0), np.int32(self.steps_an_epoch))
        sums = self.zero_sums(states, order, rows)
        states, sums, _ = self.train_steps(states, sums, order, *bounds, rows)
        return states, epoch.compute(sums)


def make_programs(
    config: Config, model: nn.Module, task: Task, mesh: Mesh | None = None
) -> Programs:
    """Makes the programs of a run; one compilation of each serves all epochs.

    A mesh of None is of all devices, as far as they divide the work.
    """
    mesh = make_mesh(config.num_seeds, config.batch_size) if mesh is None else mesh
    steps_an_epoch = count_steps(config, task)
    alone = one = make_one_seed(config, model, task, steps_an_epoch)
    if len(mesh.axis_sizes) > 2:  # sequences are shared
        one = make_one_seed(config, sharing_sequences(model), task, steps_an_epoch)
    seeds, everywhere = NamedSharding(mesh, SEEDS), NamedSharding(mesh, EVERYWHERE)
    one_by_one = sequential if platforms.current() == platforms.CPU else vectorized

    def over_all(function: Callable, mapped: int, out: Tree) -> jax.stages.Wrapped:
        return jax.jit(over_seeds(mesh, one_by_one(function, mapped), mapped), out_shardings=out)

    first_metrics = over_all(one.first_metrics, 2, seeds)  # traced, never run

    def zero_sums(states: States, order: Tree, rows: epoch.Batch) -> epoch.Metrics:
        shapes = jax.eval_shape(first_metrics, states, order, rows)
        return put(mesh, zeros_like(shapes), SEEDS)

    after_epoch = over_seeds(mesh, jax.vmap(one.after_epoch, in_axes=(0, 0, None)), 2)
    return Programs(
        mesh=mesh,
        one_seed=alone,
        create=lambda seeds: put(mesh, stack_seeds(alone.create, seeds), SEEDS),
        order=over_all(one.order, 1, seeds),
        zero_sums=zero_sums,
        train_steps=over_all(one.train_steps, 3, (seeds, seeds, everywhere)),
        evaluate=over_all(one.evaluate, 2, everywhere),
        after_epoch=jax.jit(after_epoch, out_shardings=seeds),
        steps_an_epoch=steps_an_epoch,
    )
