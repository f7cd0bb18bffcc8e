"""Masks: boolean, True where a key may be attended. Pure functions.

Positions are integer arrays that broadcast against each other: `(..., q, 1)` for queries and
`(..., 1, k)` for keys, as `grid` makes them. A function of positions is a mask too. It costs no
memory until it is used:

    attend(..., mask=lambda query, key: causal(query, key) & window(query, key, left=3))
"""

import functools

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int

from flax_attn.attention.arrays import aligned
from flax_attn.attention.checks import (
    FARTHEST,
    as_integers,
    as_lengths,
    as_mask,
    check_bound,
    check_length,
    described,
)
from flax_attn.types import UserInput


def grid(
    num_queries: int, num_keys: int, query_offset: ArrayLike = 0
) -> tuple[Int[Array, "*b q 1"], Int[Array, "#1 k"]]:
    """Positions of queries and keys. Query `i` is at key `query_offset + i`.

    Args:
        num_queries, num_keys: the number of queries and of keys.
        query_offset: an integer, or one for each leading index, `(...)`. It is 0 in training,
            and the number of cached keys in decoding.

    Raises:
        TypeError, ValueError: a number that is not an integer of 0 or above.
    """
    check_length("num_queries", num_queries)
    check_length("num_keys", num_keys)
    offset = as_integers("query_offset", query_offset)[..., None, None]
    queries = jnp.add(*aligned(jnp.arange(num_queries)[:, None], offset))
    return queries, jnp.arange(num_keys)[None, :]


def causal(
    query_positions: Int[Array, "*b q 1"], key_positions: Int[Array, "*#b 1 k"]
) -> Bool[Array, "*b q k"]:
    """A query attends to no later key: `k <= q`."""
    _check_both_positions(query_positions, key_positions)
    return jnp.greater_equal(*aligned(query_positions, key_positions))


def window(
    query_positions: Int[Array, "*b q 1"],
    key_positions: Int[Array, "*#b 1 k"],
    left: int | None = None,
    right: int | None = None,
) -> Bool[Array, "*b q k"]:
    """A query attends to keys near it: `q - left <= k <= q + right`.

    Args:
        query_positions, key_positions: where queries and keys stand.
        left, right: the number of keys before and after the query; None for no bound.

    Raises:
        ValueError: a bound that is not an integer of 0 or above.
    """
    _check_both_positions(query_positions, key_positions)
    check_bound("left", left)
    check_bound("right", right)
    distance = jnp.subtract(*aligned(key_positions, query_positions))
    near = jnp.ones(distance.shape, bool)
    if left is not None:
        near &= -distance <= min(left, FARTHEST)
    if right is not None:
        near &= distance <= min(right, FARTHEST)
    return near


def lengths(valid: ArrayLike, positions: Int[Array, "*b"]) -> Bool[Array, "..."]:
    """The first `valid` positions: `position < valid`.

    Args:
        valid: integers of 0 or above. For the keys of `attend` they are `(..., 1, 1)` with one
            length a batch row, or `(..., q, 1)` with one length a query.
        positions: `(1, k)` for keys, `(q, 1)` for queries.

    Raises:
        TypeError: lengths that are not integers.
        ValueError: negative lengths.
    """
    _check_positions(positions=positions)
    return jnp.greater(*aligned(as_lengths("valid", valid), positions))


def from_lengths(valid: ArrayLike, num_keys: int) -> Bool[Array, "*b 1 k"]:
    """The mask `(..., 1, k)` of the first `valid` keys, for lengths `(...)` of batch rows."""
    check_length("num_keys", num_keys)
    valid = as_integers("valid", valid)[..., None, None]
    return lengths(valid, jnp.arange(num_keys)[None, :])


def from_query_lengths(valid: ArrayLike, num_keys: int) -> Bool[Array, "*b q k"]:
    """The mask `(..., q, k)` of the first `valid` keys, for lengths `(..., q)` of queries."""
    check_length("num_keys", num_keys)
    valid = as_integers("valid", valid)[..., None]
    return lengths(valid, jnp.arange(num_keys)[None, :])


def segments(
    query_segments: Int[Array, "*b q"], key_segments: Int[Array, "*b k"]
) -> Bool[Array, "*b q k"]:
    """Queries attend to keys of their own segment. It packs several sequences into one row.

    Raises:
        TypeError: ids that are not integers.
        ValueError: ids of NumPy that do not fit into 32 bits, without `jax_enable_x64`; one id;
            batch axes that do not broadcast.
    """
    queries = as_integers("query_segments", query_segments)
    keys = as_integers("key_segments", key_segments)
    if not queries.ndim or not keys.ndim:
        raise ValueError(
            "expected query_segments (..., q) and key_segments (..., k) with an id for every "
            f"position, got {queries.shape} and {keys.shape}"
        )
    if not _fit(queries.shape[:-1], keys.shape[:-1]):
        raise ValueError(
            "expected query_segments (..., q) and key_segments (..., k) with batch axes that "
            f"broadcast, got {queries.shape} and {keys.shape}"
        )
    return queries[..., :, None] == keys[..., None, :]


def combine(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """All masks together (AND), broadcast against each other; None without any mask.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: masks whose shapes do not broadcast.
    """
    present = _one_by_one("combine", masks)
    return functools.reduce(both, present) if present else None


def any_of(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """Any of the masks (OR), broadcast against each other.

    None hides nothing, so the result is None where one of them is.
    So a prefix beside causality is `any_of(lengths(n, keys), causal(queries, keys))`.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: no mask at all, or masks whose shapes do not broadcast.
    """
    if not masks:
        raise ValueError("expected masks for any_of, got none")
    present = _one_by_one("any_of", masks)
    if any(mask is None for mask in masks):
        return None
    either = lambda first, second: jnp.logical_or(*aligned(first, second))
    return functools.reduce(either, present)


def both(first: Bool[Array, "..."], second: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """Two masks together (AND). They broadcast against each other; their ranks may differ.

    Raises:
        TypeError: a mask that is None.
    """
    if first is None or second is None:
        raise TypeError("expected two masks, got None; combine(a, b) leaves None out")
    return jnp.logical_and(*aligned(first, second))


def _check_positions(**positions: object) -> None:
    """Raises a TypeError for positions that are no arrays, such as the numbers for `grid`."""
    for array in positions.values():
        if not hasattr(array, "ndim"):
            raise TypeError(
                f"expected {' and '.join(positions)} as arrays of integers, such as those of "
                f"grid(5, 5), got {described(array)}"
            )


def _check_both_positions(query_positions: Array, key_positions: Array) -> None:
    """Raises for positions that are no arrays, and a ValueError for those of one axis."""
    _check_positions(query_positions=query_positions, key_positions=key_positions)
    if query_positions.ndim < 2 or key_positions.ndim < 2:
        raise ValueError(
            "expected query_positions (..., q, 1) and key_positions (..., 1, k), such as those of "
            f"grid(5, 5), got {query_positions.shape} and {key_positions.shape}"
        )


def _fit(*shapes: tuple[int, ...]) -> bool:
    """Whether shapes broadcast against each other; their ranks may differ."""
    try:
        jnp.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _one_by_one(name: str, masks: tuple[UserInput, ...]) -> list[Bool[Array, "..."]]:
    """The masks that are not None, as arrays that broadcast against each other.

    Raises a TypeError for functions, and for masks in a list, which would become one array; a
    ValueError for shapes that do not broadcast.
    """
    for mask in masks:
        if callable(mask):
            raise TypeError(
                f"expected masks as arrays in {name}, got a function; pass a function that calls "
                f"it, such as mask=lambda query, key: {name}(causal(query, key), other(query, key))"
            )
        if isinstance(mask, list | tuple) and any(hasattr(part, "ndim") for part in mask):
            kind = type(mask).__name__
            raise TypeError(f"expected masks one by one, as {name}(a, b), got a {kind}")
    present = [as_mask(mask) for mask in masks if mask is not None]
    if not _fit(*(mask.shape for mask in present)):
        shapes = " and ".join(str(mask.shape) for mask in present)
        raise ValueError(f"expected masks whose shapes broadcast, got {shapes}")
    return present
