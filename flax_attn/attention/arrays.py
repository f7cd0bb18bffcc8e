"""Small operations on arrays that JAX's strict rank and dtype promotion ask for."""

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array


def aligned(a: Array, b: Array) -> tuple[Array, Array]:
    """Both arrays with the rank of the larger; new axes of size 1 come in front."""
    rank = max(a.ndim, b.ndim)
    return with_rank(a, rank), with_rank(b, rank)


def with_rank(array: Array, rank: int) -> Array:
    """The array with `rank` axes; new axes of size 1 come in front."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def wide(*dtypes: DTypeLike) -> jnp.dtype:
    """The dtype in which sums are formed: float32, or the promoted dtype where that is wider."""
    return jnp.promote_types(jnp.result_type(*dtypes), jnp.float32)


def take(array: Array, queries: Array, keys: Array) -> Array:
    """The entries of `(..., q, k)` at indices `(q, 1)` and `(1, k)`; an axis of size 1 stays."""
    if array.shape[-2] > 1:
        array = jnp.take(array, queries[:, 0], axis=-2, mode="clip")
    if array.shape[-1] > 1:
        array = jnp.take(array, keys[0], axis=-1, mode="clip")
    return array


def hide(array: Array, real: Array | np.ndarray) -> Array:
    """The vectors `(..., t, d)` with zeros where `real` `(..., t)` is False.

    A product with 0 would keep a NaN, in values and in gradients; a selection does not.
    """
    if isinstance(real, np.ndarray) and real.all():
        return array
    return jnp.where(real[..., None], array, 0)
