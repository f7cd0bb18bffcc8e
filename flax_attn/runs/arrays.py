"""Trees of arrays in files, each array by its path in the tree."""

from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import serialization

from flax_attn.errors import UsageError
from flax_attn.types import Tree


def write(path: Path, tree: Tree) -> None:
    """Writes the arrays of a tree in the format of `flax.serialization`."""
    arrays = {name: np.asarray(leaf) for name, leaf in by_path(tree).items()}
    path.write_bytes(serialization.msgpack_serialize(arrays))


def read(path: Path, template: Tree) -> Tree:
    """A tree like `template`, whose values do not matter, with the arrays of a file.

    Raises:
        UsageError: the file has other names, shapes or dtypes than the template.
    """
    stored = cast(dict[str, np.ndarray], serialization.msgpack_restore(path.read_bytes()))
    expected = by_path(template)
    check_layout(path.parent, layout(stored), layout(expected))
    leaves = [jnp.array(stored[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


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
