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
from flax_attn.attention.checks import FARTHEST, as_bound, as_integers, as_lengths, as_mask
from flax_attn.types import UserInput


def grid(
    num_queries: int, num_keys: int, query_offset: ArrayLike = 0
) -> tuple[Int[Array, "*b q 1"], Int[Array, "#1 k"]]:
    """Makes the positions of queries and keys. Query `i` is at key `query_offset + i`.

    Args:
        num_queries, num_keys: the number of queries and of keys.
        query_offset: an integer, or one for each leading index, `(...)`. It is 0 in training,
            and the number of cached keys in decoding.
    """
    offset = as_integers("query_offset", query_offset)[..., None, None]  # (..., 1, 1)
    queries = jnp.add(*aligned(jnp.arange(num_queries)[:, None], offset))  # (..., q, 1)
    return queries, jnp.arange(num_keys)[None, :]  # (..., q, 1), (1, k)


def causal(
    query_positions: Int[Array, "*b q 1"], key_positions: Int[Array, "*#b 1 k"]
) -> Bool[Array, "*b q k"]:
    """Masks later keys: `k <= q`."""
    return jnp.greater_equal(*aligned(query_positions, key_positions))  # (..., q, k)


def window(
    query_positions: Int[Array, "*b q 1"],
    key_positions: Int[Array, "*#b 1 k"],
    left: int | None = None,
    right: int | None = None,
) -> Bool[Array, "*b q k"]:
    """Masks keys that are not near the query: `q - left <= k <= q + right`.

    Args:
        query_positions, key_positions: where queries and keys stand.
        left, right: the number of keys before and after the query; None for no bound.

    Raises:
        TypeError, ValueError: a bound that is not an integer of 0 or above.
    """
    left, right = as_bound(left), as_bound(right)
    distance = jnp.subtract(*aligned(key_positions, query_positions))  # (..., q, k)
    near = jnp.ones(distance.shape, bool)  # (..., q, k)
    if left is not None:
        near &= -distance <= min(left, FARTHEST)  # a larger number might not fit the dtype
    if right is not None:
        near &= distance <= min(right, FARTHEST)
    return near


def lengths(valid: ArrayLike, positions: Int[Array, "*b"]) -> Bool[Array, "..."]:
    """Masks all but the first `valid` positions: `position < valid`.

    Args:
        valid: integers of 0 or above. For the keys of `attend` they are `(..., 1, 1)` with one
            length a batch row, or `(..., q, 1)` with one length a query.
        positions: `(1, k)` for keys, `(q, 1)` for queries.

    Raises:
        TypeError: lengths that are not integers.
        ValueError: negative lengths.
    """
    return jnp.greater(*aligned(as_lengths("valid", valid), positions))


def from_lengths(valid: ArrayLike, num_keys: int) -> Bool[Array, "*b 1 k"]:
    """Makes the mask `(..., 1, k)` of the first `valid` keys, for lengths `(...)` of batch rows."""
    valid = as_integers("valid", valid)[..., None, None]  # (..., 1, 1)
    return lengths(valid, jnp.arange(num_keys)[None, :])  # (..., 1, k)


def from_query_lengths(valid: ArrayLike, num_keys: int) -> Bool[Array, "*b q k"]:
    """Makes the mask `(..., q, k)` of the first `valid` keys, for lengths `(..., q)` of queries."""
    valid = as_integers("valid", valid)[..., None]  # (..., q, 1)
    return lengths(valid, jnp.arange(num_keys)[None, :])  # (..., q, k)


def segments(
    query_segments: Int[Array, "*b q"], key_segments: Int[Array, "*b k"]
) -> Bool[Array, "*b q k"]:
    """Masks keys of other segments. It packs several sequences into one row.

    Raises:
        TypeError: ids that are not integers.
        ValueError: ids of NumPy that do not fit into 32 bits, without `jax_enable_x64`.
    """
    queries = as_integers("query_segments", query_segments)  # (..., q)
    keys = as_integers("key_segments", key_segments)  # (..., k)
    return queries[..., :, None] == keys[..., None, :]  # (..., q, k)


def combine(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """Combines all masks (AND), broadcast against each other; None without any mask.

    Raises:
        TypeError: a mask that is not boolean, such as a function or several in a list.
    """
    present = _present(masks)
    return functools.reduce(both, present) if present else None


def any_of(*masks: Bool[Array, "..."] | None) -> Bool[Array, "..."] | None:
    """Combines masks (OR), broadcast against each other.

    None hides nothing, so the result is None where one of them is.
    So a prefix beside causality is `any_of(lengths(n, keys), causal(queries, keys))`.

    Raises:
        TypeError: a mask that is not boolean, or no mask at all.
    """
    if any(mask is None for mask in masks):
        return None
    present = _present(masks)
    either = lambda first, second: jnp.logical_or(*aligned(first, second))
    return functools.reduce(either, present)


def both(first: Bool[Array, "..."], second: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """Combines two masks (AND). They broadcast against each other; their ranks may differ."""
    return jnp.logical_and(*aligned(first, second))


def _present(masks: UserInput) -> list[Bool[Array, "..."]]:
    """Returns the masks that are not None. A list of masks would become one array."""
    if any(isinstance(mask, list | tuple) for mask in masks):
        raise TypeError("expected masks one by one, as combine(a, b), got a list")
    return [as_mask(mask) for mask in masks if mask is not None]
