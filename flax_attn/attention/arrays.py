"""Array helpers: explicit broadcasting, for strict promotion, and splitting into blocks."""

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from flax_attn.types import Tree


def aligned(a: Array, b: Array) -> tuple[Array, Array]:
    """Gives both arrays the rank of the larger; new axes of size 1 come in front."""
    rank = max(a.ndim, b.ndim)
    return with_rank(a, rank), with_rank(b, rank)


def with_rank(array: Array, rank: int) -> Array:
    """Gives an array `rank` axes; new axes of size 1 come in front."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def wide(*dtypes: DTypeLike) -> jnp.dtype:
    """Returns the dtype of sums: float32, or the promoted dtype where that is wider."""
    with jax.numpy_dtype_promotion("standard"):  # strict promotion knows no wider one of two
        return jnp.promote_types(jnp.result_type(*dtypes), jnp.float32)


def add(a: Array, b: Array) -> Array:
    """Adds, in the wider dtype of the two, also where the user asked for strict promotion."""
    with jax.numpy_dtype_promotion("standard"):
        return a + b


def multiply(a: Array, b: Array) -> Array:
    """Multiplies, as `add` adds."""
    with jax.numpy_dtype_promotion("standard"):
        return a * b


def as_dtype_of(array: Array, number: float | Array) -> float | Array:
    """Converts a traced number to the dtype of the array; a number of Python stays."""
    return number.astype(array.dtype) if isinstance(number, jax.Array) else number


def product(formula: str, a: Array, b: Array, dtype: jnp.dtype) -> Array:
    """Computes an `einsum`; half precision is multiplied as it is, and summed in float32."""
    return jnp.einsum(formula, a.astype(b.dtype), b, preferred_element_type=dtype)


def take(array: Array, queries: Array, keys: Array) -> Array:
    """Takes the entries of `(..., q, k)` at indices `(q, 1)` and `(1, k)`; axes of size 1 stay."""
    if array.shape[-2] != 1:
        array = jnp.take(array, queries[:, 0], axis=-2, mode="clip")  # (..., q, _)
    if array.shape[-1] != 1:
        array = jnp.take(array, keys[0], axis=-1, mode="clip")  # (..., _, k)
    return array


def padded(array: Array, length: int, axis: int = -2) -> Array:
    """Pads an axis to a length by repeating its last entry.

    Zeros would not do: the gradient of a score need not be finite there.
    """
    padding = [(0, 0)] * array.ndim
    padding[axis] = 0, length - array.shape[axis]
    if padding[axis] == (0, 0):
        return array  # `jnp.pad` would copy it
    return jnp.pad(array, padding, mode="edge")


def split(array: Array, size: int, axis: int = -2) -> Array:
    """Splits an axis into blocks of a size, in front; the last repeats its last entry."""
    number = -(-array.shape[axis] // size)
    axis %= array.ndim
    shape = *array.shape[:axis], number, size, *array.shape[axis + 1 :]
    return jnp.moveaxis(padded(array, number * size, axis).reshape(shape), axis, 0)


def merge(blocks: Array, length: int) -> Array:
    """Merges blocks `(n, ..., size, d)` to one array `(..., length, d)`."""
    array = jnp.moveaxis(blocks, 0, -3)  # (..., n, size, d)
    number, size, width = array.shape[-3:]
    return array.reshape(*array.shape[:-3], number * size, width)[..., :length, :]


def varying(tree: Tree, like: Tree) -> Tree:
    """Casts arrays to vary over every axis of a `jax.shard_map` that one of `like` varies over.

    A loop must start with sums that vary as those after a step do. The numbers are the same.
    """
    axes = _axes(like)
    cast = lambda array: jax.lax.pcast(array, _in_order(axes - _axes(array)), to="varying")
    return jax.tree.map(cast, tree)


def most_over(array: Array, others: Tree) -> Array:
    """Takes the largest over axes that the array varies over, and one of the others does not."""
    axes = [_axes(array) - _axes(other) for other in jax.tree.leaves(others)]
    axes = _in_order(frozenset().union(*axes))
    return jax.lax.pmax(array, axes) if axes else array


def _axes(tree: Tree) -> frozenset[Hashable]:
    """Returns the axes of a `jax.shard_map` around that an array varies over."""
    arrays = jax.tree.leaves(tree)
    return frozenset().union(*(jax.typeof(array).mat.varying for array in arrays))


def _in_order(axes: frozenset[Hashable]) -> tuple[Hashable, ...]:
    return tuple(sorted(axes, key=str))
