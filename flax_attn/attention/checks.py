"""What a caller can get wrong, told before anything is computed: each check returns its argument ready for use."""

from collections.abc import Callable

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention.masks import as_mask, take


def as_floats(name: str, array: ArrayLike) -> Float[Array, "..."]:
    """The argument as an array of floats. Raises a TypeError that names it for any other dtype."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"expected a {name} of floats, got {array.dtype}")
    return array


def broadcastable(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """The array with as many axes as the weights, each of full size or 1. Raises a ValueError with both shapes."""
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    if len(padded) != len(shape) or any(size not in (1, full) for size, full in zip(padded, shape)):
        raise ValueError(f"expected a {name} that broadcasts to the weights {shape}, got {array.shape}")
    return array.reshape(padded)


def as_term(name: str, term: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A `mask` or a `bias` ready for weights of the shape: of the dtype that it must have, and `broadcastable`."""
    return broadcastable(name, as_mask(term) if name == "mask" else as_floats(name, term), shape)


def term_at(name: str, term: Array | Callable[..., Array], shape: tuple[int, ...], queries: Array, keys: Array) -> Array:
    """A `mask` or a `bias` for weights of the shape, array or function, ready for the weights at the positions `(q, 1)` and `(1, k)`."""
    found = term(queries, keys) if callable(term) else take(term, queries, keys)
    return as_term(name, found, (*shape[:-2], queries.shape[0], keys.shape[1]))


def weights_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    """The shape `(..., q, k)` of the weights. Raises a ValueError with all three shapes where they do not fit."""
    shapes = query.shape, key.shape, value.shape
    fit = min(map(len, shapes)) >= 2 and query.ndim == key.ndim and key.shape[:-1] == value.shape[:-1]
    if not fit or any(1 not in sizes and len(set(sizes)) > 1 for sizes in zip(query.shape[:-2], key.shape[:-2])):
        raise ValueError("expected query (..., q, d), key (..., k, d'), value (..., k, e); got {}, {}, {}".format(*shapes))
    return (*jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2]), query.shape[-2], key.shape[-2])


def check_chunk_size(chunk_size: int | None) -> None:
    """Raises a TypeError or ValueError for what is neither None nor an integer of 1 or above."""
    if chunk_size is None:
        return
    if isinstance(chunk_size, bool) or not hasattr(chunk_size, "__index__"):
        raise TypeError(f"expected chunk_size to be an integer or None, got {chunk_size!r}")
    if chunk_size < 1:
        raise ValueError(f"expected chunk_size of 1 or above, or None, got {chunk_size}")


def check_function(name: str, function: object) -> None:
    """Raises a TypeError for what cannot be called."""
    if not callable(function):
        raise TypeError(f"expected a function as {name}, such as those of flax_attn.attention, got {function!r}")
