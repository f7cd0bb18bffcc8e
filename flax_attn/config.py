"""What a config must hold, and what its values must satisfy."""

import math
from types import NoneType
from typing import Any

from flax_attn.errors import UsageError, unknown
from flax_attn.run_directory import flatten
from flax_attn.tasks import TASKS, task_of
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
    "patience": int,
    "evaluate": (tuple, list),
    "learning_rate": float,
    "class_weights": bool,
    "label_smoothing": float,
    "optimizer.b1": float,
    "optimizer.b2": float,
    "optimizer.eps": float,
    "optimizer.weight_decay": float,
    "optimizer.clip_norm": float,
    "optimizer.warmup_steps": int,
    "optimizer.schedule": str,
    "optimizer.plateau_patience": int,
    "optimizer.plateau_factor": float,
    "data.name": str,
    "data.seed": int,
    "model.name": str,
}
POSITIVE = ("num_epochs", "num_seeds", "batch_size", "learning_rate", "optimizer.eps")
NOT_NEGATIVE = ("steps_per_epoch", "seed", "patience", "optimizer.weight_decay", "optimizer.clip_norm", "optimizer.warmup_steps")
NOT_NEGATIVE += ("optimizer.plateau_patience", "data.seed", "model.max_shift", "model.reach")
SHARES = ("optimizer.b1", "optimizer.b2", "label_smoothing", "optimizer.plateau_factor")
SCHEDULES = ("constant", "cosine")
NUM_SEEDS = 2**32


def check_config(config: Any) -> None:
    """Raises a UsageError for what is missing, has the wrong type, or makes no sense."""
    flat = flatten(config.to_dict())
    if flat.get("data.name") not in TASKS:
        raise UsageError(unknown("data.name", str(flat.get("data.name")), TASKS))
    task = task_of(flat["data.name"])
    known = KEYS | task.keys(flat["data.name"])
    for key, kind in known.items():
        if not isinstance(flat.get(key), kind) or (kind is int and isinstance(flat[key], bool)):
            kind = kind[0] if isinstance(kind, tuple) else kind
            raise UsageError(f"expected {kind.__name__} for config key '{key}', got {flat.get(key)!r}")
    for key, value in flat.items():
        if key not in known and not key.startswith(("model.", "reference.")):
            raise UsageError(unknown("config key", key, known))
        if not isinstance(value, (bool, int, float, str, tuple, list, NoneType)):
            raise UsageError(f"expected a plain value for config key '{key}', got {type(value).__name__}")
    _check_numbers(flat)
    if flat["seed"] + flat["num_seeds"] > NUM_SEEDS or flat["data.seed"] >= NUM_SEEDS:
        raise UsageError(f"expected seeds below 2**32, got seed={flat['seed']} and data.seed={flat['data.seed']}")
    if config.optimizer.schedule not in SCHEDULES:
        raise UsageError(unknown("optimizer.schedule", config.optimizer.schedule, SCHEDULES))
    if config.task != task.KIND:
        raise UsageError(f"expected config key 'task' to be '{task.KIND}' for data.name={config.data.name}, got {config.task!r}")
    by_validation = config.keep_best or config.patience or config.optimizer.plateau_patience
    if not {"test"} <= set(config.evaluate) <= set(SPLITS) or (by_validation and "valid" not in config.evaluate):
        needed = "test and valid" if by_validation else "test"
        raise UsageError(f"expected config key 'evaluate' to name splits of {SPLITS}, among them {needed}, got {config.evaluate}")
    if config.patience and not config.keep_best:
        raise UsageError("expected keep_best=True with patience, which waits for the best epoch")
    task.check(config)


def _check_numbers(flat: dict[str, Any]) -> None:
    sizes = [key for key, value in flat.items() if key.startswith("model.") and isinstance(value, int) and not isinstance(value, bool)]
    bounds = {key: ("above 0", lambda x: x > 0) for key in (*POSITIVE, *sizes)}
    bounds |= {key: ("0 or above", lambda x: x >= 0) for key in NOT_NEGATIVE}
    bounds |= {key: ("in [0, 1)", lambda x: 0 <= x < 1) for key in SHARES}
    bounds |= {key: ("in [0, 1)", lambda x: 0 <= x < 1) for key in flat if key.startswith("model.") and key.endswith("dropout_rate")}
    for key, value in flat.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"expected a finite number for config key '{key}', got {value}")
        said, holds = bounds.get(key, ("", lambda x: True))
        if not holds(value):
            raise UsageError(f"expected config key '{key}' to be a number {said}, got {value}")
