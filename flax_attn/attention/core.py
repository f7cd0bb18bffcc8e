"""Attention itself: energies, mask, weights, context.

    e = score(query, key) + bias          (..., q, k)
    w = normalizer(e, mask)               (..., q, k), rows sum to 1, or to 0 where nothing may be attended
    context = w value                     (..., q, e)

Letters: `q`, `k` query and key positions, `d` features, `e` value features.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

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
    mask: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    need_weights: bool = True,
) -> Attended:
    """Attends: `context = normalizer(score(query, key) + bias, mask) value`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473) section 3.1 for the form, Vaswani et al. 2017 (arXiv:1706.03762)
    section 3.2 for the name of its parts.

    Args:
        query, key, value: `(..., q, d)`, `(..., k, d')`, `(..., k, e)`, with the same leading axes.
        score: `(query, key) -> (..., q, k)`; its parameters enter by closure.
        normalizer: `(scores, mask) -> weights` over the last axis.
        mask: boolean, True where a key may be attended; broadcasts to the weights. A query that may attend to nothing
            gets context 0 and weights 0; it and a key that no query may attend leak nothing, whatever they hold.
        bias: added to the scores; broadcasts to the weights; `-inf` masks as the mask does.
        dropout_rate: share of the weights that are dropped, the others scaled by `1 / (1 - rate)`; needs `dropout_rng`.
        need_weights: False says that nobody will look at the weights, and they are returned as None.

    Returns:
        `Attended(context, weights)` in the query's dtype; the weights are those before dropout.

    Raises:
        TypeError: a query, key, value or bias that is not of floats, or a mask that is not boolean; an additive one belongs
            in `bias`.
        ValueError: shapes that do not fit, a mask or bias that does not broadcast to the weights, a rate outside [0, 1),
            or dropout without a key.
    """
    query, key, value = (_as_floats(name, array) for name, array in (("query", query), ("key", key), ("value", value)))
    shape = _weights_shape(query, key, value)
    mask = None if mask is None else _as_mask(mask, shape)
    if bias is not None:
        bias = _broadcastable("bias", _as_floats("bias", bias), shape)
        visible = bias != -jnp.inf
        mask = visible if mask is None else mask & visible
        bias = jnp.where(visible, bias, 0)
    if mask is not None:
        query, key, value = hide_padding(query, key, value, mask)
    scores = score(query, key)
    if scores.shape != shape:
        raise ValueError(f"expected a score of shape {shape} for query {query.shape} and key {key.shape}, got {scores.shape}")
    if bias is not None:
        scores = scores + bias
    weights = normalizer(scores, mask)
    kept = _dropout(weights, dropout_rate, dropout_rng)
    context = jnp.einsum("...qk,...ke->...qe", kept.astype(value.dtype), value)
    return Attended(context.astype(query.dtype), weights.astype(query.dtype) if need_weights else None)


def hide_padding(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Zeroes queries that may attend to nothing, and keys and values that no query may attend.

    What they hold must not count, and 0 times a NaN is NaN, in the values and in the gradients.
    """
    mask = _as_mask(mask, _weights_shape(query, key, value))
    has_key, has_query = mask.any(axis=-1)[..., None], mask.any(axis=-2)[..., None]  # (..., q, 1), (..., k, 1)
    return jnp.where(has_key, query, 0), jnp.where(has_query, key, 0), jnp.where(has_query, value, 0)


def _dropout(weights: Array, rate: float, rng: Array | None) -> Array:
    if not 0 <= rate < 1:
        raise ValueError(f"expected dropout_rate in [0, 1), got {rate}")
    if rate == 0:
        return weights
    if rng is None:
        raise ValueError(f"expected dropout_rng with dropout_rate={rate}, got None; pass a key or dropout_rate=0.0")
    keep = jax.random.bernoulli(rng, 1 - rate, weights.shape)
    return jnp.where(keep, weights / (1 - rate), 0)


def _as_floats(name: str, array: ArrayLike) -> Array:
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"expected a {name} of floats, got {array.dtype}")
    return array


def _as_mask(mask: ArrayLike, shape: tuple[int, ...]) -> Array:
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(f"expected a boolean mask, True where a key may be attended, got {mask.dtype}; an additive mask goes in bias=")
    return _broadcastable("mask", mask, shape)


def _broadcastable(name: str, array: Array, shape: tuple[int, ...]) -> Array:
    """The array with as many axes as the weights, each of full size or 1."""
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    if len(padded) != len(shape) or any(size not in (1, full) for size, full in zip(padded, shape)):
        raise ValueError(f"expected a {name} that broadcasts to the weights {shape}, got {array.shape}")
    return array.reshape(padded)


def _weights_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    shapes = query.shape, key.shape, value.shape
    if min(map(len, shapes)) < 2 or key.shape[:-1] != value.shape[:-1] or query.shape[:-2] != key.shape[:-2]:
        raise ValueError("expected query (..., q, d), key (..., k, d'), value (..., k, e); got {}, {}, {}".format(*shapes))
    return query.shape[:-1] + key.shape[-2:-1]
