"""A cache of keys and values for decoding: a pytree, and pure functions that make it and add to it."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from flax_attn.attention.checks import as_lengths, known_bound


class KeyValueCache(NamedTuple):
    """Keys `(..., max_length, heads, d)` and values `(..., max_length, heads, e)`, of which the first `length` are there.

    `length` is `(...)`, one for each row of the batch: rows may have prompts of different lengths.
    """

    key: Float[Array, "*b t h d"]
    value: Float[Array, "*b t h e"]
    length: Int[Array, "*b"]


def empty_cache(
    leading: tuple[int, ...],
    max_length: int,
    num_heads: int,
    key_features: int,
    value_features: int,
    dtype: Any = jnp.float32,
) -> KeyValueCache:
    """A cache for `max_length` tokens with nothing in it; the features are those of one head."""
    return KeyValueCache(
        jnp.zeros((*leading, max_length, num_heads, key_features), dtype),
        jnp.zeros((*leading, max_length, num_heads, value_features), dtype),
        jnp.zeros(leading, jnp.int32),
    )


def append(
    cache: KeyValueCache,
    key: Float[Array, "*b n h d"],
    value: Float[Array, "*b n h e"],
    lengths: ArrayLike | None = None,
) -> KeyValueCache:
    """The cache with `n` more tokens behind those that are there, of which the first `lengths` in each row are real.

    Raises:
        ValueError: keys or values of another shape, lengths beyond the tokens given, or more tokens than there is room for.
            Under `jit`, where lengths are not known, such a row is filled with NaN instead, so that nothing wrong can pass for right.
    """
    leading, max_length, num_new = cache.length.shape, cache.key.shape[-3], key.shape[-3]
    for name, new, old in (("key", key, cache.key), ("value", value, cache.value)):
        if new.shape != (*leading, num_new, *old.shape[-2:]):
            raise ValueError(
                f"expected a {name} of shape {(*leading, 'n', *old.shape[-2:])} for the cache {old.shape}, got {new.shape}"
            )
    added = jnp.asarray(num_new) if lengths is None else as_lengths("lengths", lengths)
    if added.shape not in ((), leading):
        raise ValueError(
            f"expected lengths of shape {leading}, one a row of the batch, got {added.shape}"
        )
    if (most := known_bound(jnp.max, added)) > num_new:
        raise ValueError(
            f"expected lengths of at most the {num_new} tokens of {key.shape}, got {most}"
        )
    added = jnp.broadcast_to(added, leading)
    length = cache.length + added
    if (longest := known_bound(jnp.max, length)) > max_length:
        raise ValueError(
            f"expected at most the {max_length} tokens that the cache has room for, got {longest}"
        )

    def write_row(old: Array, start: Array, count: Array, new: Array) -> Array:
        step = jnp.arange(num_new)
        places = jnp.where(
            step < count, start + step, max_length
        )  # padding goes past the end, where it is dropped
        wrong = (start + count > max_length) | (count > num_new) | (count < 0)
        return jnp.where(wrong, jnp.nan, old.at[places].set(new.astype(old.dtype), mode="drop"))

    size = math.prod(leading)

    def write(old: Array, new: Array) -> Array:
        rows = (
            old.reshape(size, *old.shape[-3:]),
            cache.length.ravel(),
            added.ravel(),
            new.reshape(size, *new.shape[-3:]),
        )
        return jax.vmap(write_row)(*rows).reshape(old.shape)

    return KeyValueCache(write(cache.key, key), write(cache.value, value), length)
