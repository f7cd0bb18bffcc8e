"""Whether a config and its data can be trained on in a directory."""

import math
import os
from pathlib import Path

import flax.linen as nn
import jax

from flax_attn.data.contents import NO_TRAINING
from flax_attn.errors import UsageError, one_line
from flax_attn.experiment.building import build_model
from flax_attn.experiment.config import Config
from flax_attn.models.forward import Inputs
from flax_attn.tasks import Task, row_lengths
from flax_attn.types import JsonObject

ALWAYS_SMALL = 2**28  # a product of sizes up to which counting, a quarter of a second, is not worth
COPIES = 4  # of the parameters while they train: theirs, the best, and two moments


def check_same_data(workdir: Path, derived: JsonObject | None, task: Task) -> None:
    """Raises a UsageError where a run that goes on began with other files.

    `derived` is what its data decided; None for a run that has not begun.
    """
    before, now = (derived or {}).get("files"), task.kept.derived.get("files")
    if before is not None and now is not None and before != now:
        changed = sorted(
            name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
        )
        raise UsageError(
            f"the run in {workdir} began with other contents of {', '.join(changed)}; restore "
            f"them or choose another --workdir"
        )


def check_enough(config: Config, task: Task) -> None:
    """Raises a UsageError for a split without rows, for too few training examples, or for a model
    that does not fit into the memory.
    """
    rows = task.rows
    needed = ["test", "valid"] if config.by_validation else ["test"]
    for split in dict.fromkeys([*rows.splits, *needed]):
        if split not in rows.splits or not len(jax.tree.leaves(rows.splits[split])[0]):
            raise UsageError(
                f"expected examples in the {split} split, got none; change the sizes under "
                f"config.data"
            )
    num_train = len(jax.tree.leaves(rows.train)[0])
    is_filled_up = rows.draw is not None or row_lengths(rows.train) is not None
    if not num_train:
        raise UsageError(NO_TRAINING)
    if num_train < config.batch_size and not is_filled_up:
        raise UsageError(
            f"expected batch_size at most the {num_train} training examples, got "
            f"{config.batch_size}"
        )
    if math.prod(sizes_of(config)) > ALWAYS_SMALL:
        check_memory(config, build_model(config, task.kept.sizes), task.sample())


def sizes_of(config: Config) -> list[int]:
    """The numbers of the config that multiply the parameters of a model, at least roughly."""
    options = [*config.model.values(), getattr(config.data, "num_ngrams", 0), config.num_seeds]
    return [size for size in options if isinstance(size, int) and size > 0]


def check_memory(config: Config, model: nn.Module, sample: Inputs) -> None:
    """Raises a UsageError for parameters that, with what trains them, take more than the memory.

    Only their shapes are made. What a batch takes beside them is not counted.
    """
    try:
        shapes = jax.eval_shape(model.init, jax.random.key(0), sample)["params"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"config part 'model' does not make a model: {one_line(error)}") from error
    needed = (
        COPIES
        * config.num_seeds
        * sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    )
    if needed > memory():
        raise UsageError(
            f"expected a model whose training fits into {memory() / 1e9:.1f} GB of memory, got "
            f"parameters that take {needed / 1e9:.3g} GB; lower the sizes under config part "
            f"'model', or num_seeds"
        )


def memory() -> int:
    """The bytes of the memory of the first device."""
    of_device = jax.devices()[0].memory_stats() or {}  # a CPU has none of its own
    return of_device.get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
