"""Finds where a NaN arises."""

from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.experiment import processes
from flax_attn.experiment.programs import Programs, States
from flax_attn.training.epoch import Metrics
from flax_attn.types import Tree


def find_nan(
    programs: Programs, states: States, sums: Metrics, order: Tree, bounds: Tree, rows: Tree
) -> NoReturn:
    """Takes the steps of a chunk again one by one, and the first bad one operation by operation.

    Raises:
        FloatingPointError: from the operation that gives the first NaN, with the epoch, the step
            and the seed.
    """
    number, step, last = bounds
    while step < last:
        one = (number, step, np.int32(step + 1))
        after, after_sums, finite = programs.train_steps(states, sums, order, *one, rows)
        if not np.asarray(finite).all():
            break
        states, sums, step = after, after_sums, one[2]
    seed = int(np.argmin(np.asarray(finite)))  # the first seed that is not finite
    host = jax.tree.map(lambda leaf: leaf[seed], processes.gather((states, sums, order)))
    state, *rest = jax.device_put(host)
    where = f"in step {step + 1} of epoch {number}, seed {int(state.seed)}"
    try:
        with jax.disable_jit(), jax.debug_nans(True):  # op by op, so that the error names one
            programs.one_seed.train_steps(
                state, *rest, *map(jnp.int32, one), jax.device_put(processes.gather(rows))
            )
    except FloatingPointError as error:
        raise FloatingPointError(f"{where}: {error}") from error
    raise FloatingPointError(f"{where}: no NaN, but an infinite number")
