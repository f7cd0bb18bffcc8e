"""Several processes that train one run together, each with devices of its own.

All processes take the same steps. What one of them decides or hears must be known to all before the
next step, so they meet there. Process 0 alone writes the run directory. A process alone is the
first, and waits for nobody.
"""

import contextlib
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from flax_attn.errors import UsageError, one_line
from flax_attn.runs.lock import LOCK
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

    Who they are is said by three environment variables, or found by JAX under Slurm, Open MPI, and
    on TPUs.

    Args:
        timeout: the seconds that a process waits for the others, here and before every segment.

    Raises:
        UsageError: variables that are missing or wrong, or an address that cannot be used.
    """
    global _timeout
    _timeout = timeout
    if jax.distributed.is_initialized():
        return
    variables = read_variables()
    jax.config.update("jax_enable_preemption_service", False)  # signals are heard by `stopping`
    timer = threading.Timer(timeout, _give_up, [variables])
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            variables.address,
            variables.count,
            variables.number,
            initialization_timeout=timeout + 60,  # where JAX aborts without a line
            heartbeat_timeout_seconds=min(HEARTBEAT, timeout),
            shutdown_timeout_seconds=timeout,
        )
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"cannot join the other processes ({one_line(error)}); set {', '.join(VARIABLES)}, or "
            f"start under Slurm or Open MPI"
        ) from error
    finally:
        timer.cancel()


class Variables(NamedTuple):
    """What the environment says of the processes: the first one's address, how many, and which.

    JAX finds what is None.
    """

    address: str | None = None
    count: int | None = None
    number: int | None = None


def read_variables() -> Variables:
    """What the environment says of the processes.

    Raises:
        UsageError: a variable that is missing, or a number that is not one.
    """
    address, count, number = values = [os.environ.get(name) for name in VARIABLES]
    if count is None and number is None:
        return Variables()
    if address is None or count is None or number is None:
        missing = VARIABLES[values.index(None)]
        raise UsageError(f"expected all of {', '.join(VARIABLES)}, but {missing} is not set")
    if not count.isdecimal() or not int(count):
        raise UsageError(f"expected {VARIABLES[1]} to be a number of processes, got {count!r}")
    if not number.isdecimal() or int(number) >= int(count):
        raise UsageError(
            f"expected JAX_PROCESS_ID to be 0 to JAX_NUM_PROCESSES - 1, got {number!r} of {count!r}"
        )
    if not re.fullmatch(r".+:\d+", address):
        raise UsageError(
            f"expected {VARIABLES[0]} to be HOST:PORT, such as 10.0.0.1:8476, got {address!r}"
        )
    return Variables(address, int(count), int(number))


def _give_up(variables: Variables) -> NoReturn:
    address, count, number = variables
    who = f"process {number} of {count} at {address}" if address else "this one"
    print(
        f"error: expected all processes to join within {_timeout} s, but {who} still waits; start "
        f"the missing ones, or raise --timeout",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def is_first() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def meet(what: str, wait: int | None = None) -> None:
    """Waits until all processes are here.

    Args:
        what: names the place in the error.
        wait: seconds; None for the timeout of `join`.

    Raises:
        UsageError: some are not, after the timeout. It names them.
    """
    if jax.process_count() == 1:
        return
    from orbax.checkpoint import multihost

    name = f"{next(_meetings)}: {what}"
    everyone, wait = set(range(jax.process_count())), wait or _timeout
    try:
        multihost.sync_global_processes(name, timeout=wait, processes=everyone)
    except Exception as error:  # of the type that JAX takes from its runtime
        missing = re.search(r"timed out task names:\s*([\d,\s]*\d)", str(error))
        who = f"process {' '.join(missing[1].split())} is missing" if missing else one_line(error)
        raise UsageError(
            f"expected all processes at {what} within {wait} s, but {who}; look at its output"
        ) from error


def agree(number: int) -> int:
    """The largest number of any process. Raises a UsageError that names a missing one."""
    if jax.process_count() == 1:
        return number
    return int(_all_of(np.int32(number)).max())


def tell(value: Json, wait: int | None = None) -> Json:
    """What process 0 has as `value`, in all of them. `wait` is as in `meet`."""
    if jax.process_count() == 1:
        return value
    content = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(tell_arrays(np.int32(len(content)), wait))
    padded = np.zeros(size, np.uint8)
    if is_first():
        padded[:] = content
    return json.loads(tell_arrays(padded).tobytes())


def tell_arrays(tree: Tree, wait: int | None = None) -> Tree:
    """The arrays that process 0 has, in all of them. All have trees of the same shapes."""
    if jax.process_count() == 1:
        return tree
    meet("what process 0 tells", wait)
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    # the sum that tells would turn -0.0 into 0.0
    as_bytes = [np.frombuffer(leaf.tobytes(), np.uint8) for leaf in leaves]
    told = [np.asarray(part).tobytes() for part in multihost_utils.broadcast_one_to_all(as_bytes)]
    arrays = [np.frombuffer(t, leaf.dtype).reshape(leaf.shape) for t, leaf in zip(told, leaves)]
    return jax.tree.unflatten(structure, arrays)


def gather(tree: Tree) -> Tree:
    """Arrays from all devices, whole, as NumPy's, in every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    meet("what all devices hold")
    return multihost_utils.process_allgather(tree, tiled=True)


def _all_of(array: np.generic) -> np.ndarray:
    """An array from every process, stacked."""
    meet("what all tell")
    return np.asarray(multihost_utils.process_allgather(array))


@contextlib.contextmanager
def first_ahead(what: str) -> Iterator[None]:
    """Lets process 0 through before the others, which then find what it wrote."""
    if not is_first():
        meet(what, ALONE)
    yield
    if is_first():
        meet(what, ALONE)


def check_same(values: JsonObject) -> None:
    """Raises a UsageError in every process where one has other values than process 0."""
    if jax.process_count() == 1:
        return
    here = json.loads(json.dumps(flatten(values | {"jax": jax.__version__})))
    first = tell(here)
    assert isinstance(first, dict)
    other = [key for key in sorted(here | first) if here.get(key) != first.get(key)]
    differs = np.flatnonzero(_all_of(np.int32(len(other))))
    if other:
        raise UsageError(
            f"expected the same config in every process, but {other[0]} is {here.get(other[0])!r} "
            f"in process {jax.process_index()} and {first.get(other[0])!r} in process 0"
        )
    if len(differs):
        raise UsageError(
            f"expected the same config in every process, but process {differs[0]} has another"
        )


def check_shared(workdir: Path) -> None:
    """Raises a UsageError in every process where one does not see the lock that process 0 holds."""
    if jax.process_count() == 1:
        return
    file = workdir / LOCK
    expected, deadline = tell(file.read_text() if is_first() else ""), time.monotonic() + NETWORK
    while not (sees := _sees(file, expected)) and time.monotonic() < deadline:
        time.sleep(0.1)
    blind = np.flatnonzero(_all_of(np.int32(not sees)))
    if len(blind):
        raise UsageError(
            f"expected a run directory that all processes share, but process {blind[0]} does not "
            f"see what process 0 writes in {workdir}; choose a --workdir that all machines mount"
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
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
