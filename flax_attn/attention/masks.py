"""Masks: boolean, True where a key may be attended. Pure functions.

Positions come as integer arrays that broadcast against each other, `(..., q, 1)` for queries and `(..., 1, k)` for keys,
as `grid` makes them, so a mask costs nothing until it is used: close over what it needs, as in
`attend(..., mask=lambda query, key: causal(query, key) & window(query, key, left=3), chunk_size=128)`.
"""

import functools
import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int

MOST = 2**31 - 1  # no two places are further apart


def grid(num_queries: int, num_keys: int, query_offset: ArrayLike = 0) -> tuple[Int[Array, "*b q 1"], Int[Array, "#1 k"]]:
    """Positions of queries and keys: query `i` is at `query_offset + i` among the keys.

    Args:
        num_queries, num_keys: how many of each.
        query_offset: an integer, or one for each leading index, `(...)`; 0 in training, the number of cached keys in decoding.
    """
    offset = as_integers("query_offset", query_offset)[..., None, None]
    return shifted(jnp.arange(num_queries)[:, None], offset), jnp.arange(num_keys)[None, :]


def causal(query_positions: Int[Array, "*b q 1"], key_positions: Int[Array, "*#b 1 k"]) -> Bool[Array, "*b q k"]:
    """No key later than the query: `k <= q`."""
    return jnp.greater_equal(*aligned(query_positions, key_positions))


def window(
    query_positions: Int[Array, "*b q 1"], key_positions: Int[Array, "*#b 1 k"], left: int | None = None, right: int | None = None
) -> Bool[Array, "*b q k"]:
    """So many keys to each side of the query: `q - left <= k <= q + right`; None for no bound on that side.

    Raises:
        ValueError: a bound below 0.
    """
    for name, bound in (("left", left), ("right", right)):
        if bound is not None and (not isinstance(bound, numbers.Real) or bound < 0 or bound != int(bound)):
            raise ValueError(f"expected {name} of a window to be an integer of 0 or above, or None, got {bound!r}")
    distance = jnp.subtract(*aligned(key_positions, query_positions))
    near = jnp.ones(distance.shape, bool)
    if left is not None:
        near &= -distance <= min(left, MOST)
    if right is not None:
        near &= distance <= min(right, MOST)
    return near


def lengths(valid: ArrayLike, positions: Int[Array, "*b"]) -> Bool[Array, "..."]:
    """The first `valid` positions: `position < valid`.

    Args:
        valid: non-negative integers. For the keys of `attend`, `(..., 1, 1)` with one length a row of the batch, or
            `(..., q, 1)` with one length a query.
        positions: `(1, k)` for keys, `(q, 1)` for queries.

    Raises:
        TypeError: lengths that are not integers.
        ValueError: negative ones.
    """
    return jnp.greater(*aligned(as_lengths("valid", valid), positions))


def from_lengths(valid: ArrayLike, num_keys: int) -> Bool[Array, "*b 1 k"]:
    """The mask `(..., 1, k)` of the first `valid` keys, for lengths `(...)`, one a row of the batch."""
    return lengths(jnp.asarray(valid)[..., None, None], jnp.arange(num_keys)[None, :])


def from_query_lengths(valid: ArrayLike, num_keys: int) -> Bool[Array, "*b q k"]:
    """The mask `(..., q, k)` of the first `valid` keys for each query, for lengths `(..., q)`."""
    return lengths(jnp.asarray(valid)[..., None], jnp.arange(num_keys)[None, :])


def segments(query_segments: Int[Array, "*b q"], key_segments: Int[Array, "*b k"]) -> Bool[Array, "*b q k"]:
    """Queries attend to keys of their own segment, so several sequences can be packed into one row."""
    queries, keys = as_integers("query_segments", query_segments), as_integers("key_segments", key_segments)
    return queries[..., :, None] == keys[..., None, :]


def combine(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """All of the masks together, broadcast against each other; None where there is none.

    Raises:
        TypeError: a mask that is not boolean.
    """
    given = [as_mask(mask) for mask in masks if mask is not None]
    return functools.reduce(both, given) if given else None


def both(first: Bool[Array, "..."], second: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """Two masks together, broadcast against each other, whichever has more axes in front."""
    return jnp.logical_and(*aligned(first, second))


def as_mask(mask: ArrayLike) -> Bool[Array, "..."]:
    """The mask as an array. Raises a TypeError for one that is not boolean: 0 and 1, or 0 and -inf, mean different things."""
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(f"expected a boolean mask, True where a key may be attended, got {mask.dtype}; an additive mask goes in bias=")
    return mask


def as_integers(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """The argument as integers. Raises a TypeError that names it."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"expected integers in {name}, got {array.dtype}")
    return array


def as_lengths(name: str, array: ArrayLike) -> Int[Array, "..."]:
    """The argument as integers that are not negative; under `jit`, where values are not known, only the type is checked."""
    integers = as_integers(name, array)
    if (least := known_bound(jnp.min, integers)) < 0:
        raise ValueError(f"expected lengths of 0 or above in {name}, got {least}")
    return integers


def known_bound(bound: Callable[[Array], Array], numbers: Array) -> int | float:
    """The least or largest of numbers, by `jnp.min` or `jnp.max`; 0 where there are none or, under `jit`, they are not known."""
    if isinstance(numbers, jax.core.Tracer) or not numbers.size:  # pyright: ignore
        return 0
    with jax.ensure_compile_time_eval():
        return bound(numbers).item()


def take(term: Array, queries: Int[Array, "q 1"], keys: Int[Array, "1 k"]) -> Array:
    """The entries of a mask or bias `(..., q, k)` at the places given; an axis of size 1 stands for all of them."""
    term = jnp.take(term, queries[:, 0], axis=-2, mode="clip") if term.shape[-2] > 1 else term
    return jnp.take(term, keys[0], axis=-1, mode="clip") if term.shape[-1] > 1 else term


def shifted(positions: Int[Array, "..."], offset: Int[Array, "..."]) -> Int[Array, "..."]:
    """Positions and offsets added, whichever has more axes in front."""
    return jnp.add(*aligned(positions, offset))


def aligned(a: Array, b: Array) -> tuple[Array, Array]:
    """Both with as many axes, new ones in front."""
    rank = max(a.ndim, b.ndim)
    return tuple(array.reshape((1,) * (rank - array.ndim) + array.shape) for array in (a, b))  # pyright: ignore
