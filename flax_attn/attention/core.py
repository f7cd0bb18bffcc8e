"""Attention itself: energies, mask, weights, context.

    e = score(query, key) + bias          (..., q, k)
    w = normalizer(e, mask)               (..., q, k), rows sum to 1, or to 0 where nothing may be attended
    context = w value                     (..., q, e)

Letters: `q`, `k` query and key positions, `d` features, `e` value features.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from flax_attn.attention import chunked
from flax_attn.attention.checks import as_floats, as_term, check_chunk_size, check_function, weights_shape
from flax_attn.attention.dropout import check_dropout, drop
from flax_attn.attention.energies import masked_scores, normalized, weighted_sum
from flax_attn.attention.masks import grid
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.scores import scaled_dot


class Attended(NamedTuple):
    """What attention returns: the context `(..., q, e)` and the weights `(..., q, k)` before dropout, or None."""

    context: Float[Array, "..."]
    weights: Float[Array, "..."] | None


def attend(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    score: Callable[..., Array] = scaled_dot,
    normalizer: Callable[..., Array] = masked_softmax,
    mask: ArrayLike | Callable[..., Array] | None = None,
    bias: ArrayLike | Callable[..., Array] | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
) -> Attended:
    """Attends: `context = normalizer(score(query, key) + bias, mask) value`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473) section 3.1 for the form, Vaswani et al. 2017 (arXiv:1706.03762)
    section 3.2 for the name of its parts.

    Args:
        query, key, value: `(..., q, d)`, `(..., k, d')`, `(..., k, e)`; leading axes are equal, or 1 on one side.
        score: `(query, key) -> (..., q, k)`; its parameters enter by closure. It sees what stands at a pair of places, not
            where; and vectors of zeros, in place of padding, for which its gradient must be finite.
        normalizer: `(scores, mask) -> weights` over the last axis.
        mask: boolean, True where a key may be attended; broadcasts to the weights. Or a function of the positions of
            queries `(q, 1)` and keys `(1, k)` that returns one, such as `masks.causal`. A query that may attend to nothing
            gets context 0 and weights 0; it and a key that no query may attend leak nothing, whatever they hold.
        bias: added to the scores; broadcasts to the weights; or a function, as the mask; `-inf` masks as the mask does.
        dropout_rate: share of the weights that are dropped, the others scaled by `1 / (1 - rate)`; needs `dropout_rng`.
        chunk_size: None computes all scores at once. A number goes over blocks of so many queries and keys: the same
            context and gradients in memory linear in the lengths, faster for long sequences and costly scores, and
            weights that are None. Normalisers other than softmax see blocks of queries with all keys, and those of
            `across_queries` all energies at once.
        need_weights: False says that nobody will look at the weights, and they are returned as None.

    Returns:
        `Attended(context, weights)` in the query's dtype; the weights are those before dropout.

    Raises:
        TypeError: a query, key, value or bias that is not of floats, a mask that is not boolean (an additive one belongs in
            `bias`), or a score or normalizer that is no function.
        ValueError: shapes that do not fit, a mask or bias that does not broadcast to the weights, a rate outside [0, 1),
            dropout without a key, a chunk size below 1, or one with a normaliser of `across_queries` that is not marked.
    """
    query, key, value = (as_floats(name, array) for name, array in (("query", query), ("key", key), ("value", value)))
    shape = weights_shape(query, key, value)
    check_dropout(dropout_rate, dropout_rng)
    check_chunk_size(chunk_size)
    check_function("score", score)
    check_function("normalizer", normalizer)
    dropout = dropout_rate, dropout_rng
    mask = mask if mask is None or callable(mask) else as_term("mask", mask, shape)
    bias = bias if bias is None or callable(bias) else as_term("bias", bias, shape)
    if 0 in shape:
        return _nothing(query, value, shape, need_weights and chunk_size is None)
    if chunk_size is not None:
        context = chunked.attend(query, key, value, score, normalizer, mask, bias, dropout, chunk_size, shape)
        return Attended(context, None)
    positions = grid(*shape[-2:])
    mask = as_term("mask", mask(*positions), shape) if callable(mask) else mask
    bias = as_term("bias", bias(*positions), shape) if callable(bias) else bias
    scores, value, mask = masked_scores(query, key, value, score, mask, bias)
    weights = normalized(normalizer, scores, mask)
    kept = drop(weights, *dropout, *positions)
    context = weighted_sum(kept, value)
    return Attended(context.astype(query.dtype), weights.astype(query.dtype) if need_weights else None)


def _nothing(query: Array, value: Array, shape: tuple[int, ...], need_weights: bool) -> Attended:
    """What attention without queries, without keys, or in no row comes to."""
    context = jnp.zeros((*shape[:-1], value.shape[-1]), query.dtype)
    return Attended(context, jnp.zeros(shape, query.dtype) if need_weights else None)
