"""Reading a sliding cache: its tokens in order, and masks and biases at their positions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Int

from flax_attn.attention.arrays import aligned, with_rank
from flax_attn.attention.cache import KeyValueCache, SlidingCache, number_added
from flax_attn.attention.checks import as_mask
from flax_attn.attention.types import PerPair, Window


def check_window(cache: SlidingCache, window: Window | None) -> None:
    """Raises a ValueError for a window that reads tokens which the cache no longer has."""
    most = cache.key.shape[-2] - 1
    if window is None or window[0] is None or window[0] > most:
        raise ValueError(
            f"expected a window with at most {most} keys to the left, which the sliding cache was "
            f"made for, got window={window}"
        )


def in_order(
    cache: SlidingCache, key: Array, value: Array, lengths: ArrayLike | None
) -> KeyValueCache:
    """The last `slots - 1` tokens of a sliding cache in order, and `n` new tokens after them.

    Index `j` is position `cache.length - (slots - 1) + j` of each row. Below position 0 there is no
    token. The result holds all keys that a window of `(slots - 1, 0)` reads from the new tokens.
    """
    slots = cache.key.shape[-2]
    positions = cache.length[..., None] + with_rank(
        jnp.arange(1 - slots, 0), cache.length.ndim + 1
    )  # (..., slots - 1)
    index = (positions % slots)[..., None, :, None]
    added = number_added(cache, key, value, lengths)
    wrong = ((added > key.shape[-3]) | (added < 0))[..., None, None, None]  # as in `append`

    def last_and_new(old: Array, new: Array) -> Array:
        last = jnp.take_along_axis(old, index, axis=-2)
        new = jnp.swapaxes(new, -3, -2).astype(old.dtype)  # (..., h, n, d)
        both = jnp.concatenate([last, new], axis=-2)
        return jnp.where(wrong, jnp.nan, both)

    return KeyValueCache(
        last_and_new(cache.key, key), last_and_new(cache.value, value), slots - 1 + added
    )


def from_position(
    name: str, term: PerPair | None, first: Int[Array, "*b"]
) -> Callable[[Array, Array], Array] | None:
    """A mask or bias, a function of positions, as a function of indices that start at `first`.

    A mask also hides positions below 0. Every row of the batch has its own `first` `(...)`;
    the result is `(..., q, k)` in each row, or `(..., heads, q, k)`.

    Raises:
        ValueError: an array, which does not say at what positions its keys are.
    """
    if term is not None and not callable(term):
        raise ValueError(
            f"expected {name} to be a function of positions beside a sliding cache, "
            f"got an array of shape {jnp.shape(term)}"
        )
    if term is None and name == "bias":
        return None

    def at_row(row: Array, start: Array, queries: Array, keys: Array) -> Array:
        queries, keys = queries + start, keys + start
        if term is None:
            return keys >= 0
        part = jnp.asarray(term(queries, keys))
        if part.ndim > 3:  # it has batch rows of its own
            part = jnp.broadcast_to(part, (*first.shape, *part.shape[-3:]))
            part = part.reshape(-1, *part.shape[-3:])[row]
        if name == "mask":
            part = jnp.logical_and(*aligned(as_mask(part), keys >= 0))
        return with_rank(part, max(part.ndim, 2))

    def at_indices(queries: Array, keys: Array) -> Array:
        starts = first.ravel()
        at_rows = jax.vmap(at_row, in_axes=(0, 0, None, None))
        parts = at_rows(jnp.arange(len(starts)), starts, queries, keys)
        parts = parts if parts.ndim > 3 else parts[:, None]  # a head axis
        return parts.reshape(*first.shape, *parts.shape[1:])

    return at_indices
