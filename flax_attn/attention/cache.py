"""Caches of keys and values for decoding: pytrees, and pure functions that make and extend them."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Int

from flax_attn.attention.arrays import aligned, with_rank
from flax_attn.attention.checks import PerPair, Window, as_lengths, as_mask, known_bound


class KeyValueCache(NamedTuple):
    """Keys `(..., heads, max_length, d)` and values `(..., heads, max_length, e)` of tokens.

    `length` `(...)` is the number of tokens in each row of the batch. Prompts may have different
    lengths. Position `p` is at index `p`. Indices from `length` on are not read. Heads stand before
    positions, so a step of decoding reads the tokens of a head without moving them.
    """

    key: Float[Array, "*b h t d"]
    value: Float[Array, "*b h t e"]
    length: Int[Array, "*b"]


class SlidingCache(NamedTuple):
    """Keys `(..., heads, slots, d)` and values `(..., heads, slots, e)` of the last tokens.

    `length` `(...)` is the number of all tokens that were ever appended in each row of the batch.
    Position `p` is at index `p % slots`, so a new token takes the index of the oldest one. A window
    of `(slots - 1, 0)` reads no token that was overwritten.
    """

    key: Float[Array, "*b h t d"]
    value: Float[Array, "*b h t e"]
    length: Int[Array, "*b"]


class StateCache(NamedTuple):
    """The state `(..., heads, d, e)` that tokens have written, whatever their number.

    `inputs` `(..., n, channels)` are the last ones of a convolution that reads `n + 1`, and
    `length` `(...)` is the number of tokens.
    """

    state: Float[Array, "*b h d e"]
    inputs: Float[Array, "*b n c"]
    length: Int[Array, "*b"]


AnyCache = KeyValueCache | SlidingCache
BlockCache = AnyCache | StateCache
Cache = TypeVar("Cache", bound=AnyCache)


def empty_cache(
    leading: tuple[int, ...],
    max_length: int,
    num_heads: int,
    key_features: int,
    value_features: int,
    dtype: DTypeLike = jnp.float32,
) -> KeyValueCache:
    """Makes an empty cache for `max_length` tokens; the features are those of one head."""
    return KeyValueCache(
        jnp.zeros((*leading, num_heads, max_length, key_features), dtype),
        jnp.zeros((*leading, num_heads, max_length, value_features), dtype),
        jnp.zeros(leading, jnp.int32),
    )


def append(
    cache: Cache,
    key: Float[Array, "*b n h d"],
    value: Float[Array, "*b n h e"],
    lengths: ArrayLike | None = None,
) -> Cache:
    """Adds `n` tokens after those in the cache. In each row the first `lengths` are real.

    Raises:
        ValueError: keys or values of another shape, lengths beyond the new tokens, or more tokens
            than a `KeyValueCache` has room for. Under `jit`, where lengths are not known, such a
            row is filled with NaN, so that nothing wrong passes for right.
    """
    added = number_added(cache, key, value, lengths)
    slots, num_new = cache.key.shape[-2], key.shape[-3]
    sliding, length = isinstance(cache, SlidingCache), cache.length + added
    if not sliding and (longest := known_bound(jnp.max, length)) > slots:
        raise ValueError(f"expected at most the {slots} tokens of the cache, got {longest}")

    step = jnp.arange(num_new)[None]  # (1, n)
    start, count = cache.length.reshape(-1, 1), added.reshape(-1, 1)  # (rows, 1)
    index, is_stored, wrong = start + step, step < count, (count > num_new) | (count < 0)
    if sliding:
        index, is_stored = index % slots, is_stored & (step >= count - slots)  # no index twice
    else:
        wrong |= start + count > slots  # (rows, 1)
    index = jnp.where(is_stored, index, slots)  # (rows, n); an index past the end is dropped
    write_row = lambda old, index, new: old.at[:, index].set(new, mode="drop")  # (h, slots, d)

    def write(old: Array, new: Array) -> Array:
        new = jnp.swapaxes(new, -3, -2).astype(old.dtype)  # (..., h, n, d)
        old_rows, new_rows = (
            array.reshape(index.shape[0], *array.shape[-3:]) for array in (old, new)
        )
        written = jax.vmap(write_row)(old_rows, index, new_rows)  # (rows, h, slots, d)
        return _filled(written, wrong[..., None, None]).reshape(old.shape)

    return type(cache)(write(cache.key, key), write(cache.value, value), length)


def _filled(rows: Array, wrong: Array) -> Array:
    """Fills the rows of `(b, h, slots, d)` that are wrong `(b, 1, 1, 1)` with NaN.

    Where none is wrong, no row is read or copied.
    """
    if not isinstance(rows, jax.core.Tracer):  # pyright: ignore
        return rows  # lengths are known, and `append` has raised where one is wrong
    fill = lambda rows: jnp.where(wrong, jnp.nan, rows)
    return jax.lax.cond(wrong.any(), fill, lambda rows: rows, rows)


def number_added(cache: AnyCache, key: Array, value: Array, lengths: ArrayLike | None) -> Array:
    """Counts the real tokens `(...)` among new keys and values. Raises where they do not fit."""
    leading, num_new = cache.length.shape, key.shape[-3]
    for new, old in ((key, cache.key), (value, cache.value)):
        *_, heads, _, features = old.shape
        if new.shape != (expected := (*leading, num_new, heads, features)):
            raise ValueError(f"expected keys or values {expected} for the cache, got {new.shape}")
    added = jnp.asarray(num_new) if lengths is None else as_lengths("lengths", lengths)
    if (most := known_bound(jnp.max, added)) > num_new:
        raise ValueError(f"expected lengths of at most the {num_new} new tokens, got {most}")
    return jnp.broadcast_to(added, leading)


def check_window(cache: SlidingCache, window: Window | None, prefix: object) -> None:
    """Raises a ValueError for a window or prefix of tokens that the cache no longer has."""
    most = cache.key.shape[-2] - 1
    if prefix is not None or window is None or window[0] is None or window[0] > most:
        raise ValueError(
            f"expected a window with at most {most} keys to the left, and no prefix_lengths, which "
            f"the sliding cache was made for, got window={window}"
        )


def in_order(
    cache: SlidingCache, key: Array, value: Array, lengths: ArrayLike | None
) -> KeyValueCache:
    """Puts the last `slots - 1` tokens of a sliding cache in order, and `n` new ones after them.

    Index `j` is position `cache.length - (slots - 1) + j` of each row. Below position 0 there is no
    token. The result holds all keys that a window of `(slots - 1, 0)` reads from the new tokens.
    """
    slots = cache.key.shape[-2]
    positions = cache.length[..., None] + with_rank(
        jnp.arange(1 - slots, 0), cache.length.ndim + 1
    )  # (..., slots - 1)
    index = (positions % slots)[..., None, :, None]  # (..., 1, slots - 1, 1)
    added = number_added(cache, key, value, lengths)
    wrong = ((added > key.shape[-3]) | (added < 0))[..., None, None, None]  # as in `append`

    def last_and_new(old: Array, new: Array) -> Array:
        last = jnp.take_along_axis(old, index, axis=-2)  # (..., h, slots - 1, d)
        new = jnp.swapaxes(new, -3, -2).astype(old.dtype)  # (..., h, n, d)
        both = jnp.concatenate([last, new], axis=-2)  # (..., h, slots - 1 + n, d)
        return jnp.where(wrong, jnp.nan, both)  # (..., h, slots - 1 + n, d)

    return KeyValueCache(
        last_and_new(cache.key, key), last_and_new(cache.value, value), slots - 1 + added
    )


def from_position(
    name: str, term: PerPair | None, first: Int[Array, "*b"]
) -> Callable[[Array, Array], Array] | None:
    """Makes a mask or bias, a function of positions, one of indices that start at `first`.

    A mask also hides positions below 0. Every row of the batch has its own `first` `(...)`;
    the result is `(..., q, k)` in each row, or `(..., heads, q, k)`.

    Raises:
        ValueError: an array, which does not say at what positions its keys are.
    """
    if term is not None and not callable(term):
        raise ValueError(f"expected {name} to be a function of positions beside a sliding cache")
    if term is None and name == "bias":
        return None

    def at_row(row: Array, start: Array, queries: Array, keys: Array) -> Array:
        queries, keys = queries + start, keys + start  # (q, 1), (1, k)
        if term is None:
            return keys >= 0  # (1, k)
        values = jnp.asarray(term(queries, keys))  # (q, k), (h, q, k) or more
        if values.ndim > 3:  # it has batch rows of its own
            values = jnp.broadcast_to(values, (*first.shape, *values.shape[-3:]))
            values = values.reshape(-1, *values.shape[-3:])[row]  # (h, q, k)
        if name == "mask":
            values = jnp.logical_and(*aligned(as_mask(values), keys >= 0))
        return with_rank(values, max(values.ndim, 2))

    def at_indices(queries: Array, keys: Array) -> Array:
        starts = first.ravel()  # (rows,)
        at_rows = jax.vmap(at_row, in_axes=(0, 0, None, None))
        parts = at_rows(jnp.arange(len(starts)), starts, queries, keys)  # (rows, ..., q, k)
        parts = parts if parts.ndim > 3 else parts[:, None]  # a head axis
        return parts.reshape(*first.shape, *parts.shape[1:])  # (..., h, q, k); axes of 1 stay

    return at_indices
