"""From a config to what trains: model, loss, optimiser and compiled programs over all seeds."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from flax_attn.errors import UsageError, one_line, unknown
from flax_attn.experiment.config import Config
from flax_attn.models.forward import Inputs, Params
from flax_attn.tasks import Task, row_lengths
from flax_attn.training import buckets, epoch
from flax_attn.training.mesh import cut_rows
from flax_attn.training.state import TrainState
from flax_attn.types import Json, Options, Tree

States = TrainState  # of all seeds, stacked along the leading axis
Scores = dict[str, Array]  # (seeds,) by metric
MOST_NUMBERS = 2**28  # of a batch


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
            raise UsageError(unknown(f"field of model '{name}'", option, choices))
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


def layer_table(model: nn.Module, sample: Inputs) -> str:
    """The outermost layers with their output shapes and parameters.

    Raises:
        UsageError: a model that cannot be built from its fields.
    """
    sample = jax.device_put(sample)
    # a key without a program to compile
    key = jax.random.wrap_key_data(jax.device_put(np.zeros(2, np.uint32)), impl="threefry2x32")
    try:
        console = {"width": 110, "force_terminal": False}
        table = nn.tabulate(model, key, depth=1, console_kwargs=console)(sample)
        init = functools.partial(model.init_with_output, train=False)
        output, variables = jax.eval_shape(init, key, sample)
        params = variables["params"]
        _check_output(output)
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    layers, _, _ = table.rpartition(
        "Total Parameters"
    )  # Flax counts what is carried among the parameters
    return f"{layers.rstrip()}\nparameters: {count_parameters(params):,}"


def _check_output(output: Tree) -> None:
    """Raises a TypeError for what a model gives, as shapes, where it is not `(outputs, aux)`."""
    if not isinstance(output, tuple) or len(output) != 2 or not isinstance(output[1], dict):
        got = "an array" if hasattr(output, "shape") else type(output).__name__
        raise TypeError(f"it gives {got}, not (outputs, aux) with aux a dict")


def count_parameters(params: Params) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def make_loss(model: nn.Module, measure: Callable[..., Tree]) -> epoch.Loss:
    """`loss(params, carry, batch, key) -> (loss, (carry, metrics))`; evaluation has no key."""

    def loss(params: Params, carry: Params, batch: epoch.Batch, key: Key[Array, ""] | None) -> Tree:
        batch = cut_rows(batch)
        variables, train = {"params": params, "carry": carry}, key is not None
        options: Options = {
            "train": train,
            "mutable": ["carry"],
        }  # Any: options of Flax and the model's
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
            part = jax.tree.map(lambda array, b=bucket: array[b.first : b.last], rows)
            batches.append(epoch.pad_batches(buckets.cut(part, bucket.length), config.batch_size))
        return batches

    return {name: stacks(rows) for name, rows in task.rows.splits.items()}


def num_buckets(config: Config) -> int:
    """The number of lengths of batches, for data whose rows differ in length."""
    return getattr(config.data, "num_buckets", 1)
