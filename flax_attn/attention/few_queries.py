"""Dot-product attention of few queries to many keys, as in decoding, without moving the keys.

A single query reads every key once, so the time is that of reading memory. No copy of keys and
values is made. In a cache, the keys of a head lie together, and a head is one product.

Keys `(k, heads, d)` that come from elsewhere stay where they lie, as a matrix `(k, heads d)`. The
queries become a matrix `(heads d, heads q)`. Each column holds one query in the rows of its own
head, and zeros elsewhere:

    e = K Q,   context = the blocks of w^T V that belong to each head

The products with zeros cost little, because the processor waits for memory.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.arrays import add, wide
from flax_attn.attention.closures import with_gradient_of
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.pairs import Pairs

MOST_QUERIES = 4


def applies(query: Array, key: Array, pairs: Pairs, is_cached: bool = False) -> bool:
    """Whether this form is the fastest: few queries, many keys, single precision, on a CPU.

    `is_cached` says that keys and values lie in memory with heads first, as in a cache.
    """
    if pairs.is_symbolic:
        return False
    num_queries, num_keys = pairs.shape[-2:]
    many_keys = key.size >= 2**16 if is_cached else num_keys >= 256
    few = 0 < num_queries <= MOST_QUERIES and many_keys and 0 not in pairs.shape
    single = query.dtype == key.dtype == jnp.float32
    return few and single and jax.default_backend() == "cpu" and not pairs.dropout_rate


def attend(
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    scores_of: Callable[..., Array],
    exact: Callable[..., Array],
    is_cached: bool = False,
) -> Array:
    """The context `(..., q, heads, e)` of dot-product attention, as `exact(*arrays)` gives it.

    `scores_of(products, width)` are the scores, from the products of vectors of that width.

    Hidden keys are read too. Where a product is not finite, perhaps for a NaN in a key or value
    that is hidden from all queries, the context is that of `exact`, which zeroes them first. The
    gradient is that of `exact`.
    """
    context, is_finite = _read(query, key, value, pairs, scores_of, is_cached)
    # outside `jit` a `cond` would be compiled at every call
    if not isinstance(context, jax.core.Tracer):  # pyright: ignore
        return context if is_finite else exact(query, key, value)

    def fast(query: Array, key: Array, value: Array) -> Array:
        context, is_finite = _read(query, key, value, pairs, scores_of, is_cached)
        return jax.lax.cond(is_finite, lambda: context, lambda: exact(query, key, value))

    return with_gradient_of(exact, fast, query, key, value)


def _read(
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    scores_of: Callable[..., Array],
    is_cached: bool,
) -> tuple[Array, Array]:
    """The context, and whether all products are finite."""
    products_of, sums_of = (_products, _sums) if is_cached else (_spread_products, _spread_sums)
    products = products_of(query, key)  # (..., heads, q, k)
    block = pairs.whole()
    scores = scores_of(products, query.shape[-1])
    scores = scores if block.bias is None else add(scores, block.bias)
    sums = sums_of(masked_softmax(scores, mask=block.mask), value)  # (..., q, heads, e)
    return sums.astype(query.dtype), jnp.isfinite(products).all() & jnp.isfinite(sums).all()


def _products(query: Array, key: Array) -> Array:
    """The products `(..., heads, q, k)` of queries and keys `(..., length, heads, d)`."""
    groups = _in_groups(query, key.shape[-2])
    products = jnp.einsum("...qhgd,...khd->...hgqk", groups, key)
    return products.reshape(*query.shape[:-3], query.shape[-2], query.shape[-3], key.shape[-3])


def _sums(weights: Array, value: Array) -> Array:
    """The sums `(..., q, heads, e)` of values `(..., k, heads, e)`."""
    *rows, heads, num_queries, num_keys = weights.shape
    key_heads = value.shape[-2]
    groups = weights.reshape(*rows, key_heads, heads // key_heads, num_queries, num_keys)
    sums = jnp.einsum("...hgqk,...khe->...qhge", groups, value)
    return sums.reshape(*rows, num_queries, heads, value.shape[-1])


def _spread_products(query: Array, key: Array) -> Array:
    """`_products`, with zeros beside each query."""
    *rows, num_queries, heads, width = query.shape
    num_keys, key_heads = key.shape[-3:-1]
    own = jnp.eye(key_heads, dtype=query.dtype)
    spread = jnp.einsum("...qhgd,hi->...hdigq", _in_groups(query, key_heads), own)
    spread = spread.reshape(*rows, key_heads * width, heads * num_queries)
    products = key.reshape(*rows, num_keys, -1) @ spread  # (..., k, heads q)
    return jnp.moveaxis(products.reshape(*rows, num_keys, heads, num_queries), -3, -1)


def _spread_sums(weights: Array, value: Array) -> Array:
    """`_sums`, as blocks of a larger product."""
    *rows, heads, num_queries, num_keys = weights.shape
    key_heads, width = value.shape[-2:]
    sums = weights.reshape(*rows, -1, num_keys) @ value.reshape(*rows, num_keys, -1)
    sums = sums.reshape(*rows, key_heads, heads // key_heads, num_queries, key_heads, width)
    own = jnp.eye(key_heads, dtype=wide(sums.dtype))
    context = jnp.einsum("...hgqie,hi->...qhge", sums, own)
    return context.reshape(*rows, num_queries, heads, width)


def _in_groups(query: Array, key_heads: int) -> Array:
    """Queries `(..., q, heads, d)` as `(..., q, key heads, group, d)`."""
    return query.reshape(*query.shape[:-2], key_heads, -1, query.shape[-1])
