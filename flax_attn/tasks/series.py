"""Several input series of which one decides the output: which does input attention weigh?"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.data import toy
from flax_attn.errors import UsageError
from flax_attn.tasks.task import Batch, Examples, Task
from flax_attn.training.metrics import Mean, squared_error, weighted_mean

KIND = "regression"
SCORE = "mse"
NUM_EXAMPLES = 16


def keys(name: str) -> dict[str, type]:
    return dict.fromkeys(
        ("data.seed", "data.num_series", "data.relevant", "data.length", "data.num_train", "data.num_valid", "data.num_test"), int
    )


def check(config: Any) -> None:
    """Raises a UsageError for sizes that make no data."""
    sizes = [config.data[key] for key in ("num_series", "length", "num_train", "num_valid", "num_test")]
    if min(sizes) < 1 or not 0 <= config.data.relevant < config.data.num_series or config.data.num_train < config.batch_size:
        raise UsageError(
            "expected data.num_series, length, num_valid and num_test above 0, relevant from 0 to below num_series, "
            f"and num_train of at least batch_size {config.batch_size}, got {dict(config.data)}"
        )


def load(config: Any, manual_dir: Path | None) -> Task:
    """Draws the splits."""
    data = config.data
    draw = lambda number, split: toy.input_series(
        jax.random.fold_in(jax.random.key(data.seed), split), number, num_series=data.num_series, relevant=data.relevant, length=data.length
    )
    rows = {name: draw(data[f"num_{name}"], i)._asdict() for i, name in enumerate(("train", "valid", "test"))}
    splits = {name: rows[name] for name in config.evaluate}
    return Task(rows["train"], splits, {"relevant": data.relevant}, {}, {}, None, rows["test"])


def sample(config: Any) -> Any:
    return np.zeros((config.batch_size, config.data.length, config.data.num_series), np.float32)


def make_measure(config: Any, derived: dict[str, Any]) -> Any:
    """The mean squared error, and the mean weight of the series that decides the output."""

    def measure(outputs: Any, aux: dict, batch: Batch, train: bool) -> tuple[jax.Array, dict[str, Mean]]:
        mask = batch.get("mask", jnp.ones(len(outputs), bool))
        error = squared_error(outputs, batch["targets"], mask)
        gate = aux["attention"]["input"][..., derived["relevant"]].mean(axis=-1)
        return error.compute(), {"mse": error, "gate": weighted_mean(gate, mask)}

    return measure


def check_derived(derived: dict[str, Any]) -> None:
    """Raises a ValueError for what `load` did not derive."""
    int(derived["relevant"])


def examples(config: Any, task: Task, predict: Any) -> Examples:
    """The first test series with the predictions of the first seed."""
    inputs, targets = (np.asarray(task.test[key][:NUM_EXAMPLES]) for key in ("inputs", "targets"))
    outputs, attention = predict(inputs)
    return Examples({"inputs": inputs, "targets": targets, "predictions": outputs[0]} | attention)
