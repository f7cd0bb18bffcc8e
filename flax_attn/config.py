"""What a config must hold, and what its values must satisfy."""

import math
from types import NoneType
from typing import Any

from flax_attn.data import shapes
from flax_attn.errors import UsageError, unknown
from flax_attn.run_directory import flatten
from flax_attn.training.results import SPLITS

KEYS = {
    "name": str,
    "task": str,
    "seed": int,
    "num_seeds": int,
    "num_epochs": int,
    "steps_per_epoch": int,
    "batch_size": int,
    "keep_best": bool,
    "evaluate": (tuple, list),
    "learning_rate": float,
    "optimizer.b1": float,
    "optimizer.b2": float,
    "optimizer.eps": float,
    "optimizer.weight_decay": float,
    "data.name": str,
    "data.task": str,
    "data.height_rule": str,
    "data.seed": int,
    "data.num_train": int,
    "data.valid_fraction": float,
    "data.num_test": int,
    "data.subset": int,
    "data.fresh": bool,
    "model.name": str,
}
POSITIVE = ("num_epochs", "num_seeds", "batch_size", "learning_rate", "optimizer.eps", "data.num_train", "data.num_test")
NOT_NEGATIVE = ("steps_per_epoch", "seed", "optimizer.weight_decay", "data.seed", "data.subset")
SHARES = ("optimizer.b1", "optimizer.b2", "data.valid_fraction")
NUM_SEEDS = 2**32


def check_config(config: Any) -> None:
    """Raises a UsageError for what is missing, has the wrong type, or makes no sense."""
    flat = flatten(config.to_dict())
    for key, kind in KEYS.items():
        if not isinstance(flat.get(key), kind) or (kind is int and isinstance(flat[key], bool)):
            kind = kind[0] if isinstance(kind, tuple) else kind
            raise UsageError(f"expected {kind.__name__} for config key '{key}', got {flat.get(key)!r}")
    for key, value in flat.items():
        if key not in KEYS and not key.startswith(("model.", "reference.")):
            raise UsageError(unknown("config key", key, KEYS))
        if not isinstance(value, (bool, int, float, str, tuple, list, NoneType)):
            raise UsageError(f"expected a plain value for config key '{key}', got {type(value).__name__}")
    _check_numbers(flat)
    if flat["seed"] + flat["num_seeds"] > NUM_SEEDS or flat["data.seed"] >= NUM_SEEDS:
        raise UsageError(f"expected seeds below 2**32, got seed={flat['seed']} and data.seed={flat['data.seed']}")
    if config.keep_best and round(config.data.num_train * config.data.valid_fraction) == 0:
        raise UsageError("expected validation examples for keep_best=True; raise data.valid_fraction or set keep_best=False")
    if not {"test"} <= set(config.evaluate) <= set(SPLITS) or (config.keep_best and "valid" not in config.evaluate):
        needed = "test and valid" if config.keep_best else "test"
        raise UsageError(f"expected config key 'evaluate' to name splits of {SPLITS}, among them {needed}, got {config.evaluate}")
    for key, known in (("task", "regression"), ("data.name", "shapes")):
        if flat[key] != known:
            raise UsageError(f"expected config key '{key}' to be '{known}', got {flat[key]!r}")
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


def _check_numbers(flat: dict[str, Any]) -> None:
    sizes = [key for key, value in flat.items() if key.startswith("model.") and isinstance(value, int) and not isinstance(value, bool)]
    bounds = {key: ("above 0", lambda x: x > 0) for key in (*POSITIVE, *sizes)}
    bounds |= {key: ("0 or above", lambda x: x >= 0) for key in NOT_NEGATIVE}
    bounds |= {key: ("in [0, 1)", lambda x: 0 <= x < 1) for key in SHARES}
    for key, value in flat.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"expected a finite number for config key '{key}', got {value}")
        said, holds = bounds.get(key, ("", lambda x: True))
        if not holds(value):
            raise UsageError(f"expected config key '{key}' to be a number {said}, got {value}")
