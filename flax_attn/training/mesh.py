"""The seeds of a run on its devices: one mesh over seeds, rows of a batch, and sequences.

Seeds need no communication. Each group of devices runs the program of one device over its own
seeds, and has the numbers of a run on one device up to rounding. Within a group each device takes a
part of every batch. XLA adds up their gradients, in another order than one device does. The devices
along the third axis share the sequences of their rows, where a model attends across devices.

A run on one device has a mesh of one. There is no second path.

The seeds of one group are mapped one after another (`sequential`) or together (`vectorized`).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from flax_attn import platforms
from flax_attn.errors import UsageError
from flax_attn.types import Tree

AXES = ("seed", "data", "sequence")
SEEDS, ROWS, EVERYWHERE = P("seed"), P("data"), P()
# for a program that runs once a seed: XLA optimises less, and the numbers are the same
COMPILED_QUICKLY = {"xla_backend_optimization_level": 1}


def shape_of_mesh(num_devices: int, num_seeds: int, batch_size: int) -> tuple[int, int] | None:
    """Returns the most groups of seeds, and the devices of a group; None where none has all.

    The groups divide the seeds, and the devices of a group divide the batch.
    """
    for groups in range(math.gcd(num_devices, num_seeds), 0, -1):
        size = num_devices // groups
        if num_devices % groups == num_seeds % groups == batch_size % size == 0:
            return groups, size
    return None


def numbers_that_fit(
    most: int, num_seeds: int, batch_size: int, sequence: int = 1, multiple: int = 1
) -> list[int]:
    """Returns the numbers of devices up to `most` that divide the work."""
    step = math.lcm(sequence, multiple)
    fits = lambda n: shape_of_mesh(n // sequence, num_seeds, batch_size) is not None
    return [n for n in range(step, most + 1, step) if fits(n)]


def make_mesh(
    num_seeds: int, batch_size: int, num_devices: int | None = None, sequence: int = 1
) -> Mesh:
    """Makes the mesh of the first `num_devices`, or of all, as many of them as divide the work.

    Raises:
        UsageError: several processes whose devices do not divide the work, or too few devices to
            share a sequence.
    """
    devices = jax.devices()[:num_devices]
    if not 0 < sequence <= len(devices):
        most = len(devices)
        raise UsageError(f"expected a --sequence from 1 to {most} (the devices), got {sequence}")
    fitting = numbers_that_fit(len(devices), num_seeds, batch_size, sequence)
    if fitting[-1] < len(devices) and jax.process_count() > 1:
        per_process = jax.local_device_count()
        fitting = numbers_that_fit(4 * len(devices), num_seeds, batch_size, sequence, per_process)
        nearest = sorted(fitting, key=lambda n: abs(n - len(devices)))[:3]
        numbers = " or ".join(str(n // per_process) for n in sorted(nearest)) or "other numbers of"
        raise UsageError(
            f"expected devices that divide {num_seeds} seed(s) and batches of {batch_size}"
            f"{f', {sequence} to a sequence' if sequence > 1 else ''}, got "
            f"{jax.process_count()} processes of {per_process}; start {numbers} processes"
        )
    shape = shape_of_mesh(fitting[-1] // sequence, num_seeds, batch_size)
    assert shape is not None
    axes = AXES if sequence > 1 else AXES[:2]  # `jax.debug.print` runs beside one automatic axis
    sizes, types = (*shape, sequence)[: len(axes)], (AxisType.Auto,) * len(axes)
    return jax.make_mesh(sizes, axes, types, devices=devices[: fitting[-1]])


def over_seeds(mesh: Mesh, function: Callable, mapped: int = 1) -> Callable:
    """Gives each group of devices its own seeds of the first `mapped` arguments and of the results.

    `function` takes and returns arrays with seeds along the leading axis. All other arguments are
    the same for every group.
    """

    def run(*args: Tree) -> Tree:
        return jax.shard_map(
            function,
            mesh=mesh,
            in_specs=(SEEDS,) * mapped + (EVERYWHERE,) * (len(args) - mapped),
            out_specs=SEEDS,
            axis_names={"seed"},
            check_vma=False,  # the branches of a seed that has stopped vary over other axes
        )(*args)

    return run


def vectorized(function: Callable, mapped: int = 1) -> Callable:
    """Maps a function over the leading axis of its first `mapped` arguments, all seeds at once."""

    def run(*args: Tree) -> Tree:
        with platforms.copies(len(jax.tree.leaves(args[0])[0])):  # memory holds all seeds' scores
            return jax.vmap(lambda one_seed: function(*one_seed, *args[mapped:]))(args[:mapped])

    return run


def sequential(function: Callable, mapped: int = 1) -> Callable:
    """Maps a function over the leading axis of its first `mapped` arguments, a seed at a time.

    The faster way on CPU, where one seed fills the machine and products over a batch of kernels
    lose their fast path.
    """
    return lambda *args: jax.lax.map(
        lambda one_seed: function(*one_seed, *args[mapped:]), args[:mapped]
    )


def stack_seeds(create: Callable[[Array], Tree], seeds: range) -> Tree:
    """Creates one state a seed, each alone so that the others change nothing, and stacks them."""
    create_one = lambda seed: jax.tree.map(lambda leaf: leaf[None], create(seed))  # (1, ...)
    stack_of_one = jax.jit(create_one, compiler_options=COMPILED_QUICKLY)
    join = jax.jit(lambda states: jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states))
    states = [stack_of_one(np.uint32(seed)) for seed in seeds]
    return states[0] if len(states) == 1 else join(states)


def cut_rows(batch: Tree) -> Tree:
    """Gives each device of a group its rows of a batch."""
    return _placed(batch, ROWS)


def keep_whole(tree: Tree) -> Tree:
    """Gives each device of a group all of an array, as the order of an epoch's rows.

    XLA would cut it along the rows of a batch, and gather what the devices sort.
    """
    return _placed(tree, EVERYWHERE)


def _placed(tree: Tree, spec: P) -> Tree:
    """Places a tree on the surrounding mesh. Without a mesh it stays as it is."""
    if jax.sharding.get_abstract_mesh().empty:
        return tree
    return jax.lax.with_sharding_constraint(tree, spec)


def zeros_like(tree: Tree) -> Tree:
    """Makes NumPy arrays of zeros of the shapes and dtypes of a tree, whose values are not read."""
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), tree)


def put(mesh: Mesh, tree: Tree, spec: P) -> Tree:
    """Puts arrays that every process holds whole on the devices of a mesh."""
    sharding = NamedSharding(mesh, spec)

    def put_leaf(leaf: Tree) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(put_leaf, tree)
