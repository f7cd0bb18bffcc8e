"""Dot-product attention of few queries to many keys, as in decoding, without moving the keys.

A single query reads every key once, so the time is that of reading memory. The keys `(k, heads, d)`
stay where they lie, as a matrix `(k, heads d)`. The queries become a matrix `(heads d, heads q)`.
Each column holds one query in the rows of its own head, and zeros elsewhere:

    e = K Q,   context = the blocks of w^T V that belong to each head

The products with zeros cost little, because the processor waits for memory. No copy of keys and
values is made.
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


def applies(query: Array, key: Array, pairs: Pairs) -> bool:
    """Whether this form is the fastest: few queries, many keys, single precision, on a CPU."""
    if pairs.is_symbolic:
        return False
    num_queries, num_keys = pairs.shape[-2:]
    few = 0 < num_queries <= MOST_QUERIES and num_keys >= 256 and 0 not in pairs.shape
    single = query.dtype == key.dtype == jnp.float32
    return few and single and jax.default_backend() == "cpu" and not pairs.dropout_rate


def attend(
    query: Array,
    key: Array,
    value: Array,
    pairs: Pairs,
    scores_of: Callable[..., Array],
    exact: Callable[..., Array],
) -> Array:
    """The context `(..., q, heads, e)` of dot-product attention, as `exact(*arrays)` gives it.

    `scores_of(products, width)` are the scores, from the products of vectors of that width.

    Hidden keys are read too. Where a product is not finite, perhaps for a NaN in a key or value
    that is hidden from all queries, the context is that of `exact`, which zeroes them first. The
    gradient is that of `exact`.
    """
    context, is_finite = _read(query, key, value, pairs, scores_of)
    # outside `jit` a `cond` would be compiled at every call
    if not isinstance(context, jax.core.Tracer):  # pyright: ignore
        return context if is_finite else exact(query, key, value)

    def fast(query: Array, key: Array, value: Array) -> Array:
        context, is_finite = _read(query, key, value, pairs, scores_of)
        return jax.lax.cond(is_finite, lambda: context, lambda: exact(query, key, value))

    return with_gradient_of(exact, fast, query, key, value)


def _read(
    query: Array, key: Array, value: Array, pairs: Pairs, scores_of: Callable[..., Array]
) -> tuple[Array, Array]:
    """The context, and whether all products are finite."""
    *rows, num_queries, heads, width = query.shape
    num_keys, key_heads, out_width = *key.shape[-3:-1], value.shape[-1]
    group = heads // key_heads
    own = jnp.eye(key_heads, dtype=query.dtype)
    queries = query.reshape(*rows, num_queries, key_heads, group, width)
    spread = jnp.einsum("...qhgd,hi->...hdigq", queries, own)
    spread = spread.reshape(*rows, key_heads * width, heads * num_queries)
    products = key.reshape(*rows, num_keys, -1) @ spread  # (..., k, heads q)
    products = jnp.moveaxis(products.reshape(*rows, num_keys, heads, num_queries), -3, -1)
    block = pairs.whole()
    scores = scores_of(products, width)
    scores = scores if block.bias is None else add(scores, block.bias)
    weights = masked_softmax(scores, mask=block.mask)  # (..., heads, q, k)
    rows_of_weights = weights.reshape(*rows, heads * num_queries, num_keys)
    sums = rows_of_weights @ value.reshape(*rows, num_keys, -1)
    sums = sums.reshape(*rows, key_heads, group, num_queries, key_heads, out_width)
    context = jnp.einsum("...hgqie,hi->...qhge", sums, own.astype(wide(sums.dtype)))
    context = context.reshape(*rows, num_queries, heads, out_width)
    context = context.astype(query.dtype)
    return context, jnp.isfinite(products).all() & jnp.isfinite(sums).all()
