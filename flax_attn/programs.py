"""From a config to what trains: the model, its loss and optimiser, and the compiled programs over all seeds."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax

from flax_attn.errors import UsageError, one_line, unknown
from flax_attn.models import MODELS
from flax_attn.tasks import Task, row_lengths, task_of
from flax_attn.training import buckets, epoch
from flax_attn.training.state import Plateau, TrainState


def build_model(fields: Any, sizes: dict[str, int]) -> nn.Module:
    """The model of a config's `model` part: `name` chooses the class, the rest and what the data decides are its fields."""
    options = dict(fields)
    name = options.pop("name")
    if name not in MODELS:
        raise UsageError(unknown("model.name", name, MODELS))
    known = [field for field in MODELS[name].__dataclass_fields__ if field not in ("name", "parent")]
    for option in options:
        if option not in known or option in sizes:
            raise UsageError(unknown(f"field of model '{name}'", option, [field for field in known if field not in sizes]))
    if not sizes.keys() <= set(known):
        raise UsageError(f"model '{name}' is not for this data, which decides {' and '.join(sizes)}; choose another model.name")
    try:
        return MODELS[name](**options, **sizes)
    except TypeError as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error


def layer_table(model: nn.Module, sample: Any) -> str:
    """The layers with their output shapes and parameters. A model that cannot be built from its fields is a UsageError."""
    key = jax.random.wrap_key_data(jax.device_put(np.zeros(2, np.uint32)), impl="threefry2x32")  # a key without a program to compile
    try:
        table = nn.tabulate(model, key, console_kwargs={"width": 110, "force_terminal": False})(sample)
        params = jax.eval_shape(model.init, key, sample)["params"]
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    layers, _, _ = table.rpartition("Total Parameters")  # Flax counts what is carried among the parameters
    return f"{layers.rstrip()}\nparameters: {count_parameters(params):,}"


def count_parameters(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def make_sample(config: Any) -> Any:
    """Inputs of the shapes and types that the model is built for."""
    return jax.device_put(task_of(config.data.name).sample(config))


def make_loss(model: nn.Module, measure: Callable) -> epoch.Loss:
    """`loss(params, carry, batch, key) -> (loss, (carry, metrics))`; without a key, at evaluation."""

    def loss(params: Any, carry: Any, batch: epoch.Batch, key: Any) -> tuple[jax.Array, tuple[Any, dict]]:
        variables, train = {"params": params, "carry": carry}, key is not None
        rngs = {"dropout": key} if train else None
        (outputs, aux), updates = model.apply(variables, batch["inputs"], train=train, rngs=rngs, mutable=["carry"])  # pyright: ignore
        value, metrics = measure(outputs, aux, batch, train)
        return value, (updates.get("carry", {}), metrics)

    return loss


def make_optimizer(config: Any, num_steps: int) -> optax.GradientTransformation:
    """AdamW, whose decay spares the biases and all else with one axis, as fastai's does; clipped, warmed up and decayed on request.

    A cosine falls to 0 with the last of `num_steps`, all of training, and rises for no more than half of them before.
    """
    options = dict(config.optimizer)
    clip_norm, warmup_steps, schedule = (options.pop(key) for key in ("clip_norm", "warmup_steps", "schedule"))
    adam = {key: value for key, value in options.items() if not key.startswith("plateau")}
    rate = config.learning_rate
    if schedule == "cosine":
        warmup_steps = min(warmup_steps, num_steps // 2)
        rate = optax.warmup_cosine_decay_schedule(0.0 if warmup_steps else rate, rate, warmup_steps, num_steps)
    elif warmup_steps:
        rate = optax.linear_schedule(0.0, rate, warmup_steps)
    decayed = lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params)
    optimizer = optax.adamw(rate, **adam, mask=decayed)
    return optax.chain(optax.clip_by_global_norm(clip_norm), optimizer) if clip_norm else optimizer


class Programs(NamedTuple):
    """The compiled parts of a run, over all seeds at once."""

    create: Any  # seeds -> states
    train_epoch: Any  # (states, epoch, rows) -> (states, metrics)
    evaluate: Any  # (params, carry, batches) -> metrics by split
    after_epoch: Any  # (states, scores, epoch) -> states


def make_programs(config: Any, model: nn.Module, task: Task) -> Programs:
    """Builds the run's programs; one compilation of each serves all epochs."""
    loss = make_loss(model, task_of(config.data.name).make_measure(config, task.derived))
    steps_an_epoch = count_steps(config, task)
    num_steps = config.num_epochs * steps_an_epoch
    optimizer = make_optimizer(config, num_steps)
    over_seeds = epoch.sequential if jax.default_backend() == "cpu" else epoch.vectorized

    def evaluate(weights: tuple[Any, Any], batches: dict[str, list[epoch.Batch]]) -> dict[str, Any]:
        return {name: epoch.evaluate(*weights, stacks, loss=loss) for name, stacks in batches.items()}

    plan, fetch = make_plan(config, task, steps_an_epoch)
    step = functools.partial(epoch.train_step, loss=loss, optimizer=optimizer)
    train_epoch = functools.partial(epoch.train_epoch, step=step, plan=plan, fetch=fetch)
    plateau = Plateau(config.optimizer.plateau_patience, config.optimizer.plateau_factor)
    after_epoch = functools.partial(TrainState.after_epoch, plateau=plateau, patience=config.patience)
    return Programs(
        create=functools.partial(epoch.stack_seeds, make_create(config, model, num_steps)),
        train_epoch=jax.jit(over_seeds(train_epoch), donate_argnums=0),
        evaluate=jax.jit(lambda params, carry, batches: over_seeds(evaluate)((params, carry), batches)),
        after_epoch=jax.jit(jax.vmap(after_epoch, in_axes=(0, 0, None))),
    )


def make_create(config: Any, model: nn.Module, num_steps: int) -> Callable[[jax.Array], TrainState]:
    """`create(seed)` makes the state that a seed begins with."""
    sample = make_sample(config)

    def init(key: jax.Array) -> tuple[Any, Any]:
        variables = model.init(key, sample)
        return variables["params"], variables.get("carry", {})

    return functools.partial(TrainState.create, init=init, optimizer=make_optimizer(config, num_steps))


def count_steps(config: Any, task: Task) -> int:
    """The steps of an epoch: those that the config wants, or once through the training examples."""
    num_examples, lengths = len(jax.tree.leaves(task.train)[0]), row_lengths(task.train)
    if config.steps_per_epoch:
        return config.steps_per_epoch
    if lengths is None or task.draw is not None:
        return num_examples // config.batch_size
    return buckets.count_steps(buckets.make_buckets(lengths, config.data.num_buckets), config.batch_size)


def make_plan(config: Any, task: Task, num_steps: int) -> tuple[Callable, Any]:
    """How an epoch of so many steps is laid out, and how a batch is made: drawn, gathered, or gathered from buckets of like length."""
    lengths = row_lengths(task.train)
    if task.draw is not None:
        draw = task.draw
        return lambda key, epoch: jax.random.split(key, num_steps), lambda _, key: draw(key)
    sizes = {"batch_size": config.batch_size, "num_steps": num_steps}
    if lengths is None:
        return functools.partial(epoch.shuffled_rows, num_examples=len(jax.tree.leaves(task.train)[0]), **sizes), epoch.gather
    found = buckets.make_buckets(lengths, config.data.num_buckets)
    plan = functools.partial(buckets.plan, buckets=found, **sizes, data_seed=config.data.seed, shuffle=config.data.shuffle)
    return plan, [functools.partial(buckets.fetch, length=bucket.length) for bucket in found]


def make_batches(config: Any, task: Task) -> dict[str, list[epoch.Batch]]:
    """The rows that a run is measured on as stacked batches by split, one stack a length."""

    def stacks(rows: epoch.Batch) -> list[epoch.Batch]:
        if (lengths := row_lengths(rows)) is None:
            return [epoch.pad_batches(rows, config.batch_size)]
        found = buckets.make_buckets(lengths, config.data.num_buckets)
        parts = [buckets.cut(jax.tree.map(lambda a, b=b: a[b.first : b.last], rows), b.length) for b in found]
        return [epoch.pad_batches(part, config.batch_size) for part in parts]

    return jax.device_put({name: stacks(rows) for name, rows in task.splits.items()})
