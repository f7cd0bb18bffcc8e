"""What training prints."""

import os
import platform
from pathlib import Path
from typing import Any

from rich.console import Console

from flax_attn import experiment
from flax_attn.analysis import tables
from flax_attn.commands import progress
from flax_attn.experiment.config import Config, Values


def train(config: Values, workdir: Path, console: Console, manual_dir: Path | None = None) -> dict[str, Any]:
    """Trains a config, and shows its progress and its results. Arguments and errors are those of `experiment.run`."""
    say = lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
    checked = Config.of(config)
    with progress.shown(checked.num_epochs, console) as on_epoch:
        summary = experiment.run(config, workdir, manual_dir=manual_dir, say=say, on_epoch=on_epoch)
    tables.print_results(summary, checked.reference, console)
    say(f"run directory: {workdir}")
    return summary


def keep_compiled() -> None:
    """Keeps what XLA compiles for the next start.

    It goes to $JAX_COMPILATION_CACHE_DIR, or else to the user's cache, in a folder for each machine: a home may be shared,
    and programs fit one kind of processor. JAX_ENABLE_COMPILATION_CACHE=false turns it off.
    """
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore
        home = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        folder = os.path.join(home, "flax_attn", platform.node() or "machine")
        jax.config.update("jax_compilation_cache_dir", folder)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
