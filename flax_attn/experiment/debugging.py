"""Where a NaN arises."""

from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.experiment import processes
from flax_attn.experiment.programs import Programs, States
from flax_attn.training.epoch import Metrics
from flax_attn.types import Tree


def find_nan(
    programs: Programs, states: States, sums: Metrics, places: Tree, rows: Tree
) -> NoReturn:
    """Takes the steps again one by one, and the first bad one operation by operation.

    Raises:
        FloatingPointError: from the operation that gives the first NaN, with the epoch, the step
            and the seed.
    """
    number, first, last, _ = places
    for step in range(int(first), int(last)):
        bounds = (number, np.int32(step), np.int32(step + 1), rows)
        after, after_sums, finite = programs.train_steps(states, sums, *bounds)
        if not np.asarray(finite).all():
            break
        states, sums = after, after_sums
    seed = int(np.argmin(np.asarray(finite)))
    host = jax.tree.map(lambda leaf: leaf[seed], processes.gather((states, sums)))
    one_state, one_sums = jax.device_put(host)
    where = f"in step {step + 1} of epoch {number}, seed {int(one_state.seed)}"
    bounds = (*map(jnp.int32, bounds[:3]), rows)
    try:
        with jax.disable_jit(), jax.debug_nans(True):
            programs.one_seed.train_steps(one_state, one_sums, *bounds)
    except FloatingPointError as error:
        raise FloatingPointError(f"{where}: {error}") from error
    raise FloatingPointError(f"{where}: no NaN, but an infinite number")
