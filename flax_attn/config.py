"""What a config must satisfy beyond its types."""

import functools
import math
from typing import Any

from flax_attn.data import shapes
from flax_attn.errors import UsageError

SPLITS = ("train", "valid", "test")


def check_config(config: Any) -> None:
    """Raises a UsageError for values that have the right type and make no sense."""
    positive = ["num_epochs", "num_seeds", "batch_size", "learning_rate"] + [f"data.{key}" for key in ("num_train", "num_test")]
    model_sizes = [f"model.{key}" for key, value in config.model.items() if isinstance(value, int) and not isinstance(value, bool)]
    for key in positive + model_sizes:
        if not 0 < _get(config, key) < math.inf:
            raise UsageError(f"expected config key '{key}' to be a number above 0, got {_get(config, key)}")
    for key in ("steps_per_epoch", "seed", "data.seed", "data.subset"):
        if _get(config, key) < 0:
            raise UsageError(f"expected config key '{key}' to be 0 or above, got {_get(config, key)}")
    if not 0 <= config.data.valid_fraction < 1:
        raise UsageError(f"expected config key 'data.valid_fraction' in [0, 1), got {config.data.valid_fraction}")
    if config.keep_best and round(config.data.num_train * config.data.valid_fraction) == 0:
        raise UsageError("expected validation examples for keep_best=True; raise data.valid_fraction or set keep_best=False")
    if not {"test"} <= set(config.evaluate) <= set(SPLITS) or (config.keep_best and "valid" not in config.evaluate):
        needed = "test and valid" if config.keep_best else "test"
        raise UsageError(f"expected config key 'evaluate' to name splits of {SPLITS}, among them {needed}, got {config.evaluate}")
    if config.task != "regression":
        raise UsageError(f"expected config key 'task' to be 'regression', got {config.task!r}")
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


def _get(config: Any, key: str) -> Any:
    return functools.reduce(lambda part, name: part[name], key.split("."), config)
