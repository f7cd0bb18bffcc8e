"""Trees of arrays in files, each array by its path in the tree."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import serialization

from flax_attn.errors import UsageError, one_line
from flax_attn.runs import untrusted
from flax_attn.runs.untrusted import MEND
from flax_attn.types import Tree

OF_NAMES = 2**24  # bytes that names, dtypes and shapes take, at most


def write(path: Path, tree: Tree) -> None:
    """Writes the arrays of a tree in the format of `flax.serialization`."""
    arrays = {name: np.asarray(leaf) for name, leaf in by_path(tree).items()}
    path.write_bytes(serialization.msgpack_serialize(arrays))


def read(run: Path, name: str, template: Tree) -> Tree:
    """A tree like `template`, whose values do not matter, with the arrays of a file of a run.

    Raises:
        UsageError: the file is damaged, or has other names, shapes or dtypes than the template.
    """
    expected = by_path(template)
    content = untrusted.read_bytes(run, name, largest(template))
    try:
        stored = serialization.msgpack_restore(content)
    except Exception as error:  # whatever msgpack and NumPy make of bytes that are no arrays
        raise UsageError(
            f"expected arrays in {run / name} ({one_line(error)[:200]}); {MEND}"
        ) from error
    if not isinstance(stored, dict) or not all(
        isinstance(array, np.ndarray | np.generic) for array in stored.values()
    ):
        raise UsageError(f"expected arrays by name in {run / name}, got something else; {MEND}")
    check_layout((run / name).parent, layout(stored), layout(expected))
    leaves = [jnp.array(stored[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def largest(template: Tree) -> int:
    """The bytes that a file of such a tree may have."""
    leaves = jax.tree.leaves(template)
    return OF_NAMES + sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def by_path(tree: Tree) -> dict[str, Tree]:
    """The leaves of a tree by their paths, such as `.params['dense']['kernel']`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def layout(arrays: dict[str, Tree]) -> dict[str, str]:
    """Dtype and shape of every array, such as `float32[10, 100]`."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def check_layout(folder: Path, stored: dict[str, str], expected: dict[str, str]) -> None:
    """Raises a UsageError where a checkpoint has other arrays than its config makes."""
    for name in expected | stored:
        if expected.get(name) != stored.get(name):
            raise UsageError(
                f"checkpoint {folder} is not of the config beside it: expected {name} "
                f"{expected.get(name)}, got {stored.get(name)}; "
                "restore that config.json, or train in another directory"
            )
