"""Several processes that train one run together, each with devices of its own.

All processes take the same steps, so a decision of one must be known to all before the next step.
Process 0 alone writes the run directory. A process alone is the first, and waits for nobody.
"""

import contextlib
import itertools
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from flax_attn.errors import UsageError, one_line
from flax_attn.runs.directory import LOCK
from flax_attn.schema import flatten
from flax_attn.types import Json, JsonObject, Tree

VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
TIMEOUT = 300  # seconds
HEARTBEAT = 100  # seconds after which a process that is gone is missed
NETWORK = 30  # seconds until another machine sees a new file
ALONE = 86_400  # seconds that process 0 may work on data, figures and results

_timeout = TIMEOUT
_meetings = itertools.count()


def join(timeout: int = TIMEOUT) -> None:
    """Joins the other processes of a run, before anything else is done with JAX.

    Three environment variables name them, or JAX finds them under Slurm, Open MPI, and on TPUs.
    Those that are missing or wrong, and processes that do not come within the timeout, which also
    holds before every chunk, are a UsageError.
    """
    global _timeout
    _timeout = timeout
    if jax.distributed.is_initialized():
        return
    address, count, number = [os.environ.get(name) for name in VARIABLES]
    jax.config.update("jax_enable_preemption_service", False)  # `stopping` handles signals
    timer = threading.Timer(timeout, _give_up)  # JAX aborts without a line, a minute later
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            address,
            None if count is None else int(count),
            None if number is None else int(number),
            initialization_timeout=timeout + 60,  # JAX's own limit comes after ours
            heartbeat_timeout_seconds=min(HEARTBEAT, timeout),
            shutdown_timeout_seconds=timeout,
        )
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"cannot join the other processes ({one_line(error)[:200]}); set "
            f"{', '.join(VARIABLES)} in each, or start them under Slurm or Open MPI"
        ) from error
    finally:
        timer.cancel()


def _give_up() -> NoReturn:
    line = f"error: expected all processes to join within {_timeout} s, but some are missing; start"
    print(f"{line} them, or raise --timeout", file=sys.stderr, flush=True)
    os._exit(2)  # `sys.exit` in a thread ends that thread alone


def is_first() -> bool:
    """Returns whether this is the process that writes."""
    return jax.process_index() == 0


def meet(what: str, wait: int | None = None) -> None:
    """Waits until all processes are here, for some seconds; None for the timeout of `join`.

    Raises a UsageError that says `what` some have not come to, and which.
    """
    if jax.process_count() == 1:
        return
    name, wait = f"{next(_meetings)}: {what}", wait or _timeout
    try:
        # `sync_global_devices` waits without a limit, also for a process that hangs
        client: Any = multihost_utils.distributed.global_state.client
        client.wait_at_barrier(name, timeout_in_ms=1000 * wait)
    except RuntimeError as error:
        missing = re.search(r"timed out task names:\s*([\d,\s]*\d)", str(error))
        who = f"process {' '.join(missing[1].split())} is missing" if missing else one_line(error)
        raise UsageError(
            f"expected all processes at {what} within {wait} s, but {who}; look at its output"
        ) from error


def agree(number: int) -> int:
    """Returns the largest number of any process."""
    return number if jax.process_count() == 1 else int(_of_all(np.int32(number)).max())


def broadcast(value: Json, wait: int | None = None) -> Json:
    """Returns the value of process 0 in every process. `wait` is as in `meet`."""
    if jax.process_count() == 1:
        return value
    content = np.frombuffer(json.dumps(value).encode(), np.uint8)
    meet("the value of process 0", wait)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))  # shapes must agree
    padded = np.zeros(size, np.uint8)  # others have nothing to send, but need the shape
    if is_first():
        padded[:] = content
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())


def gather(tree: Tree) -> Tree:
    """Returns arrays from all devices as NumPy arrays, whole in every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    meet("the arrays of all devices")
    return multihost_utils.process_allgather(tree, tiled=True)  # tiled: joined, not stacked


def _of_all(array: np.generic) -> np.ndarray:
    """Stacks the arrays of all processes."""
    meet("the numbers of all processes")
    return np.asarray(multihost_utils.process_allgather(array))  # (processes,)


def check_same(values: JsonObject) -> None:
    """Raises a UsageError in every process where one has other values than process 0."""
    here = json.loads(json.dumps(flatten(values | {"jax": jax.__version__})))  # as JSON has it
    first = broadcast(here)
    keys = [key for key in sorted(here | first) if here.get(key) != first.get(key)]
    others = np.flatnonzero(_of_all(np.int32(len(keys))))  # processes that differ
    if len(others):
        got = f"process {others[0]} has another"
        if keys:
            key, number = keys[0], jax.process_index()
            got = f"{key} is {here.get(key)!r} in process {number} and {first.get(key)!r} in 0"
        raise UsageError(f"expected the same config in every process, but {got}")


def check_shared(workdir: Path) -> None:
    """Raises a UsageError in every process where one does not see the lock that process 0 holds."""
    file = workdir / LOCK
    expected, deadline = broadcast(file.read_text() if is_first() else ""), time.time() + NETWORK
    while not (sees := _sees(file, expected)) and time.time() < deadline:
        time.sleep(0.1)
    blind = np.flatnonzero(_of_all(np.int32(not sees)))  # processes that see nothing
    if len(blind):
        raise UsageError(
            f"expected a run directory that all processes share, but process {blind[0]} does not "
            f"see the files of process 0 in {workdir}; choose a --workdir that all machines mount"
        )


def _sees(file: Path, content: str) -> bool:
    try:
        list(file.parent.parent.iterdir())  # asks the server anew
        return file.read_text() == content
    except OSError:
        return False


def part(code: int) -> NoReturn:
    """Ends this process at an end that all have agreed on, and waits for the others.

    JAX aborts a process when another one is gone too early.
    """
    _flush()
    jax.distributed.shutdown()
    os._exit(code)


def fail(code: int) -> NoReturn:
    """Ends this process after an error of its own.

    It waits for two seconds, in which others may print the same. A longer goodbye would wait for
    those that wait for this one.
    """
    _flush()
    if jax.distributed.is_initialized():
        time.sleep(2)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
