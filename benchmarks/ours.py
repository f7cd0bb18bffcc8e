"""Our side of a comparison: the only file of the benchmarks that knows how the package trains."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flax_attn import schema
from flax_attn.experiment.config import Config
from flax_attn.experiment.face import take_data
from flax_attn.experiment.loading import Model
from flax_attn.experiment.programs import (
    build_model,
    count_steps,
    make_batches,
    make_loss,
    make_one_seed,
    make_programs,
)
from flax_attn.training import epoch, mesh


class Ours(NamedTuple):
    """A config that is ready to train with one seed.

    Attributes:
        sizes: what the data decide of the model, by the name of its field.
        params: the first parameters, as NumPy arrays.
        batch: the first batch.
        loss: of that batch with those parameters, without dropout and smoothing.
        train: trains an epoch, and waits. The next call continues.
    """

    config: Any
    model: nn.Module
    sizes: Mapping[str, int]
    params: Any
    batch: Any
    loss: float
    train: Callable[[], None]


def load(values: Any, data: Any = None, manual_dir: Path | None = None) -> tuple[Any, Any, Any]:
    """Returns the config, the task and the model of a `ConfigDict`, with data from Python."""
    flat, content = schema.flatten(values), None
    if data is not None:
        flat, content = take_data(flat, data)
    config = Config.of(flat, content=content)
    task = config.task.load(config.data, config.recipe, manual_dir)
    return config, task, build_model(config, task.kept.sizes)


def prepare(values: Any, data: Any = None) -> Ours:
    """Loads the data of a config, and makes the programs of its first seed."""
    values.optimizer.warmup_steps, values.optimizer.schedule = 0, "constant"
    config, task, model = load(values, data)
    programs = make_programs(config, model, task)
    now, rows = [programs.create(range(1))], jax.tree.map(jnp.asarray, task.rows.train)
    first = jax.tree.map(lambda leaf: np.asarray(leaf[0]), (now[0].params, now[0].carry))
    if task.rows.draw is None:
        batch = epoch.gather(rows, jnp.arange(config.batch_size))
    else:
        batch = task.rows.draw(rows, jax.random.key(1))
    loss = jax.jit(make_loss(model, task.loss))(*first, batch, None)[0]

    def train() -> None:
        now[0] = jax.block_until_ready(programs.train_epoch(now[0], 1, rows))[0]

    return Ours(config, model, task.kept.sizes, first[0], batch, float(loss), train)


def untrained(values: Any, data: Any) -> Model:
    """Returns a model with its first parameters, which predicts as a trained one does."""
    config, task, model = load(values, data)
    one = make_one_seed(config, model, task, count_steps(config, task))
    return Model(Path(), task, model, {0: one.create(jnp.uint32(0)).params})


def is_regression(batch: Any) -> bool:
    return np.issubdtype(np.asarray(batch["targets"]).dtype, np.floating)


def has_padding(batch: Any) -> bool:
    """Returns whether a target of 0 is padding, as in translation."""
    return isinstance(batch["inputs"], dict) and "target" in batch["inputs"]


def check(losses: Mapping[str, float], ours: float) -> None:
    """Raises an AssertionError if a loss differs from ours by more than 1e-4 of it."""
    wrong = {name: loss for name, loss in losses.items() if abs(loss - ours) > 1e-4 * abs(ours)}
    assert not wrong, f"unequal work: losses {wrong}, ours {ours}"


def some_steps(values: Any, steps: int, manual_dir: Path | None) -> Callable[[], float]:
    """Returns a function that trains some steps from the start.

    The function returns the mean of the first metric over these steps.
    """
    config, task, model = load(values, manual_dir=manual_dir)
    one = make_one_seed(config, model, task, count_steps(config, task))
    state, rows = one.create(jnp.uint32(0)), jax.tree.map(jnp.asarray, task.rows.train)
    order = jax.jit(one.order)(state, jnp.int32(1))
    shapes = jax.eval_shape(one.first_metrics, state, order, rows)
    sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    bounds = jnp.int32(1), jnp.int32(0), jnp.int32(steps)
    train = jax.jit(one.train_steps)

    def run() -> float:
        _, total, *_ = train(state, sums, order, *bounds, rows)
        return float(next(iter(epoch.compute(total).values())))

    return run


def programs_of(values: Any, manual_dir: Path | None) -> tuple[int, list[tuple[Callable, tuple]]]:
    """Returns the number of seeds, and for training and evaluation the function and its shapes."""
    config, task, model = load(values, manual_dir=manual_dir)
    one = make_one_seed(config, model, task, count_steps(config, task))
    state = jax.eval_shape(one.create, jnp.uint32(0))
    order = jax.eval_shape(one.order, state, jnp.int32(1))
    sums = jax.eval_shape(one.first_metrics, state, order, task.rows.train)
    stack = lambda leaf: jax.ShapeDtypeStruct((config.num_seeds, *leaf.shape), leaf.dtype)
    states, all_sums, orders = jax.tree.map(stack, (state, sums, order))
    number = jax.ShapeDtypeStruct((), jnp.int32)
    rows = jax.tree.map(np.asarray, task.rows.train)
    shapes = (states, all_sums, orders, number, number, number, rows)
    train = mesh.vectorized(one.train_steps, 3), shapes
    batches = states.params, states.carry, make_batches(config, task)
    return config.num_seeds, [train, (mesh.vectorized(one.evaluate, 2), batches)]
