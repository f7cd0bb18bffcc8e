"""Whether a config and its data can be trained on in a directory."""

from pathlib import Path

import jax

from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from flax_attn.runs.directory import read_config
from flax_attn.tasks import Task, row_lengths


def check_same_data(workdir: Path, task: Task) -> None:
    """Raises a UsageError where a run that goes on began with other files."""
    if not (workdir / "config.json").exists():
        return
    before, now = (
        read_config(workdir).get("derived", {}).get("files"),
        task.kept.derived.get("files"),
    )
    if before is not None and now is not None and before != now:
        changed = sorted(
            name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
        )
        raise UsageError(
            f"the run in {workdir} began with other contents of {', '.join(changed)}; restore "
            f"them or choose another --workdir"
        )


def check_enough(config: Config, task: Task) -> None:
    """Raises a UsageError for a split without rows, or for too few training examples."""
    rows = task.rows
    for split, batch in rows.splits.items():
        if not len(jax.tree.leaves(batch)[0]):
            raise UsageError(
                f"expected examples in the {split} split, got none; change the sizes under "
                f"config.data"
            )
    num_train = len(jax.tree.leaves(rows.train)[0])
    is_filled_up = rows.draw is not None or row_lengths(rows.train) is not None
    if not num_train or (num_train < config.batch_size and not is_filled_up):
        raise UsageError(
            f"expected batch_size at most the {num_train} training examples, got "
            f"{config.batch_size}"
        )
