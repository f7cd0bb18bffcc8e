"""What the queries of several heads may see: mask, bias, causality, window and lengths together.

Each is an array, or a function of the positions of queries `(q, 1)` and keys `(1, k)`, so that nothing of the size of the weights
`(..., heads, q, k)` need exist.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool

from flax_attn.attention import masks
from flax_attn.attention.checks import as_term, check_chunk_size, term_at

Function = Callable[..., Array]


def joined(
    shape: tuple[int, ...],
    mask: ArrayLike | Function | None,
    bias: ArrayLike | Function | None,
    causal: bool,
    window: tuple[int | None, int | None] | None,
    query_offset: ArrayLike,
    query_lengths: ArrayLike | None,
    key_lengths: ArrayLike | None,
    chunk_size: int | None,
) -> tuple[ArrayLike | Function | None, ArrayLike | Function | None]:
    """All that hides as one mask, and the bias, for weights of the shape; arguments are those of `dot_product_attention`."""
    offset = per_row("query_offset", masks.as_integers("query_offset", query_offset), shape[:-3])
    mask, bias = _from_offset(mask, offset), _from_offset(bias, offset)
    return _intersection(mask, _visible(shape[:-3], causal, window, offset, query_lengths, key_lengths), shape, chunk_size), bias


def seen(
    mask: ArrayLike | Function | None, bias: ArrayLike | Function | None, shape: tuple[int, ...], chunk_size: int | None = None
) -> tuple[Bool[Array, "... q"], Bool[Array, "... k"]]:
    """Which queries have a key, and which keys have a query, where neither the mask nor a bias of `-inf` hides them."""
    check_chunk_size(chunk_size)
    num_queries, num_keys = shape[-2:]
    terms = {name: term for name, term in (("mask", mask), ("bias", bias)) if term is not None}
    if chunk_size is None or chunk_size >= num_queries:
        return _seen(shape, **{name: evaluated(name, term, shape) for name, term in terms.items()})
    terms = {name: term if callable(term) else as_term(name, term, shape) for name, term in terms.items()}

    def block(start: Array) -> tuple[Array, Array]:
        queries, keys = jnp.minimum(start + jnp.arange(chunk_size), num_queries - 1)[:, None], jnp.arange(num_keys)[None, :]
        here = {name: term_at(name, term, shape, queries, keys) for name, term in terms.items()}
        return _seen((*shape[:-2], chunk_size, num_keys), **here)

    has_key, has_query = jax.lax.map(block, jnp.arange(0, num_queries, chunk_size))
    has_key = jnp.moveaxis(has_key, 0, -2).reshape(*has_key.shape[1:-1], -1)
    return has_key[..., :num_queries], has_query.any(axis=0)


def _seen(shape: tuple[int, ...], mask: Array | None = None, bias: Array | None = None) -> tuple[Array, Array]:
    pairs = jnp.ones((1,) * (len(shape) - 2) + shape[-2:], bool)
    pairs = pairs if mask is None else pairs & mask
    pairs = pairs if bias is None else pairs & (bias != -jnp.inf)
    return pairs.any(axis=-1), pairs.any(axis=-2)


def _visible(
    leading: tuple[int, ...],
    causal: bool,
    window: tuple[int | None, int | None] | None,
    offset: Array,
    query_lengths: ArrayLike | None,
    key_lengths: ArrayLike | None,
) -> Function | None:
    """What causality, window and lengths leave to see, as a function of the places in the arrays; None for all."""
    conditions = []
    if causal:
        conditions.append(lambda queries, keys: masks.causal(masks.shifted(queries, offset), keys))
    if window is not None:
        if not isinstance(window, tuple | list) or len(window) != 2:
            raise ValueError(f"expected a window (left, right) of two integers or None, got {window!r}")
        conditions.append(lambda queries, keys: masks.window(masks.shifted(queries, offset), keys, *window))
    if query_lengths is not None:
        num_queries = per_row("query_lengths", masks.as_lengths("query_lengths", query_lengths), leading)
        conditions.append(lambda queries, keys: masks.lengths(num_queries, queries))
    if key_lengths is not None:
        num_keys = per_row("key_lengths", masks.as_lengths("key_lengths", key_lengths), leading)
        conditions.append(lambda queries, keys: masks.lengths(num_keys, keys))
    if not conditions:
        return None
    return lambda queries, keys: functools.reduce(masks.both, (condition(queries, keys) for condition in conditions))


def per_row(name: str, array: Array, leading: tuple[int, ...]) -> Array:
    """An integer for each row of the batch, `(..., 1, 1, 1)` beside the weights; or one for all, `()`."""
    if array.shape not in ((), leading):
        raise ValueError(f"expected {name} of shape {leading}, one a row of the batch, got {array.shape}")
    return array.reshape(*array.shape, 1, 1, 1) if array.ndim else array


def _from_offset(term: ArrayLike | Function | None, offset: Array) -> ArrayLike | Function | None:
    """A mask or bias whose function, where it is one, gets the places of the queries among the keys.

    Where each row has an offset these are `(..., q, 1)`, and what comes back without an axis for the heads is given one.
    """
    if not callable(term):
        return term
    if not offset.ndim:
        return lambda queries, keys: term(queries + offset, keys)

    def with_heads(queries: Array, keys: Array) -> Array:
        found = term(masks.shifted(queries, offset[..., 0]), keys)
        has_heads = jax.eval_shape(term, queries, keys).ndim > 2
        return found if has_heads or jnp.ndim(found) < offset.ndim - 1 else found[..., None, :, :]

    return with_heads


def _intersection(
    mask: ArrayLike | Function | None, visible: Function | None, shape: tuple[int, ...], chunk_size: int | None
) -> ArrayLike | Function | None:
    """Both masks together: an array where all of it is wanted at once, else a function, so that nothing of that size exists."""
    if mask is None or visible is None:
        return visible if mask is None else mask
    if callable(mask):
        return lambda queries, keys: masks.both(masks.as_mask(mask(queries, keys)), visible(queries, keys))
    mask = as_term("mask", mask, shape)
    if chunk_size is None:
        return masks.both(mask, visible(*masks.grid(*shape[-2:])))
    return lambda queries, keys: masks.both(masks.take(mask, queries, keys), visible(queries, keys))


def evaluated(name: str, term: ArrayLike | Function, shape: tuple[int, ...]) -> Array:
    """A `mask` or a `bias`, all of it."""
    return as_term(name, term(*masks.grid(*shape[-2:])) if callable(term) else term, shape)
