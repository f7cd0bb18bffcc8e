"""The shapes task: signals whose shapes are to be levelled in pairs, measured by the squared error in normalised units."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.data import shapes
from flax_attn.data.normalization import Normalization
from flax_attn.errors import UsageError
from flax_attn.tasks.task import Batch, Examples, Task
from flax_attn.training.metrics import Mean, squared_error

KIND = "regression"
SCORE = "mse"
NUM_EXAMPLES = 16  # test examples kept for the pictures


def keys(name: str) -> dict[str, type]:
    """The config keys under `data`, and their types."""
    texts, counts = ("data.task", "data.height_rule"), ("data.seed", "data.num_train", "data.num_test", "data.subset")
    return dict.fromkeys(texts, str) | dict.fromkeys(counts, int) | {"data.valid_fraction": float, "data.fresh": bool}


def check(config: Any) -> None:
    """Raises a UsageError for sizes and names that make no examples."""
    if min(config.data.num_train, config.data.num_test) < 1 or config.data.subset < 0:
        raise UsageError("expected data.num_train and data.num_test above 0 and data.subset of 0 or above")
    if not 0 <= config.data.valid_fraction < 1:
        raise UsageError(f"expected config key 'data.valid_fraction' to be a number in [0, 1), got {config.data.valid_fraction}")
    if config.keep_best and round(config.data.num_train * config.data.valid_fraction) == 0:
        raise UsageError("expected validation examples for keep_best=True; raise data.valid_fraction or set keep_best=False")
    if max(config.data.num_train, config.data.num_test) > shapes.MAX_EXAMPLES:
        raise UsageError(f"expected data.num_train and data.num_test of at most {shapes.MAX_EXAMPLES:,}")
    if config.data.fresh and "train" in config.evaluate:
        raise UsageError("expected no 'train' in config key 'evaluate' with data.fresh=True, where every example is seen once")
    if config.data.fresh and config.data.subset:
        raise UsageError(f"expected data.subset=0 with data.fresh=True, got {config.data.subset}; fresh data has no subset")
    if num_train_examples(config) < config.batch_size:
        raise UsageError(f"expected batch_size at most the {num_train_examples(config)} training examples, got {config.batch_size}")
    try:
        shapes.check_names(config.data.task, config.data.height_rule)
    except ValueError as error:
        raise UsageError(f"config keys data.task, data.height_rule: {error}") from error


def num_train_examples(config: Any) -> int:
    """How many examples a run trains on: those that validation leaves, or the subset of them."""
    num_train = config.data.num_train - round(config.data.num_train * config.data.valid_fraction)
    return min(config.data.subset, num_train) if config.data.subset else num_train


def load(config: Any, manual_dir: Any) -> Task:
    """Generates the splits and normalises them by the mean and deviation of inputs and targets of `num_train` examples."""
    options = {key: config.data[key] for key in ("num_train", "num_test", "valid_fraction", "task", "height_rule")}
    splits = jax.device_get(shapes.splits(config.data.seed, **options))
    drawn = [array for name in ("train", "valid") for array in splits[name][:2]]
    normalization = Normalization.of(*drawn)
    used = jax.tree.map(lambda array: array[: num_train_examples(config)], splits["train"])
    train = _batch(used, normalization)
    measured = {name: train if name == "train" else _batch(splits[name], normalization) for name in config.evaluate}

    def draw(key: jax.Array) -> Batch:
        drawn = shapes.generate(key, config.batch_size, task=config.data.task, height_rule=config.data.height_rule)
        return _batch(drawn, normalization)

    return Task(
        train=train,
        splits={name: rows for name, rows in measured.items() if len(rows["inputs"])},
        derived=normalization._asdict(),
        sizes={},
        files={},
        draw=draw if config.data.fresh else None,
        test=splits["test"],
    )


def sample(config: Any) -> Any:
    return np.zeros((config.batch_size, shapes.LENGTH, 1), np.float32)


def make_measure(config: Any, derived: dict[str, Any]) -> Any:
    """The mean squared error."""

    def measure(outputs: Any, aux: dict, batch: Batch, train: bool) -> tuple[jax.Array, dict[str, Mean]]:
        error = squared_error(outputs, batch["targets"], batch.get("mask", jnp.ones(len(outputs), bool)))
        return error.compute(), {"mse": error}

    return measure


def normalization_of(derived: dict[str, Any]) -> Normalization:
    """The normalisation that `load` derived. Raises a ValueError where it is none."""
    try:
        normalization = Normalization(**{key: float(value) for key, value in derived.items()})
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not np.isfinite(normalization).all() or normalization.std <= 0:
        raise ValueError(f"got {derived}")
    return normalization


def check_derived(derived: dict[str, Any]) -> None:
    """Raises a ValueError for what `load` did not derive."""
    normalization_of(derived)


def examples(config: Any, task: Task, predict: Any) -> Examples:
    """The first test examples as drawn, with predictions in their units by the first seed."""
    normalization = normalization_of(task.derived)
    inputs, targets, marks = jax.tree.map(lambda array: np.asarray(array[:NUM_EXAMPLES]), task.test)
    outputs, attention = predict(normalization.apply(inputs))
    kept = {"inputs": inputs, "targets": targets, "predictions": normalization.undo(outputs[0])}
    return Examples(kept | marks._asdict() | attention)


def _batch(examples: shapes.Examples, normalization: Normalization) -> Batch:
    """Inputs and targets of the examples, normalised."""
    return {"inputs": normalization.apply(examples.inputs), "targets": normalization.apply(examples.targets)}
