"""Attention itself: energies, mask, weights, context.

    e = score(query, key) + bias          (..., q, k)
    w = normalizer(e, mask)               (..., q, k), rows sum to 1, or to 0 where nothing may be attended
    context = w value                     (..., q, e)

Letters: `q`, `k` query and key positions, `d` features, `e` value features.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.scores import scaled_dot


class Attended(NamedTuple):
    """What attention returns: the context `(..., q, e)` and the weights `(..., q, k)` before dropout, or None."""

    context: Float[Array, "..."]
    weights: Float[Array, "..."] | None


def attend(
    query: Float[Array, "*b q _"],
    key: Float[Array, "*b k _"],
    value: Float[Array, "*b k _"],
    *,
    score: Callable[..., Array] = scaled_dot,
    normalizer: Callable[..., Array] = masked_softmax,
    mask: Shaped[Array, "..."] | None = None,
    bias: Float[Array, "..."] | None = None,
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
            gets context 0 and weights 0; a key that no query may attend leaks nothing, whatever it holds.
        bias: added to the scores; broadcasts to the weights; `-inf` masks as the mask does.
        dropout_rate: share of the weights that are dropped, the others scaled by `1 / (1 - rate)`; needs `dropout_rng`.
        need_weights: False says that nobody will look at the weights, and they are returned as None.

    Returns:
        `Attended(context, weights)` in the query's dtype; the weights are those before dropout.

    Raises:
        TypeError: a mask that is not boolean; an additive one belongs in `bias`.
        ValueError: shapes that do not fit, a mask or bias that does not broadcast to the weights, or dropout without a key.
    """
    _check_shapes(query, key, value, mask, bias)
    if bias is not None:
        mask = _both(mask, bias > -jnp.inf)
        bias = jnp.where(bias > -jnp.inf, bias, 0)
    if mask is not None:
        key, value = _hide_unattended(key, value, mask)
    scores = score(query, key)  # (..., q, k)
    chex.assert_shape(scores, (..., query.shape[-2], key.shape[-2]))
    if bias is not None:
        scores = scores + jnp.broadcast_to(bias, scores.shape)
    weights = normalizer(scores, mask)
    kept = _dropout(weights, dropout_rate, dropout_rng)
    context = jnp.einsum("...qk,...ke->...qe", kept.astype(value.dtype), value)
    return Attended(context.astype(query.dtype), weights.astype(query.dtype) if need_weights else None)


def _hide_unattended(key: Array, value: Array, mask: Array) -> tuple[Array, Array]:
    """Zeroes the keys and values that no query may attend: 0 times the NaN one of them may hold would be NaN."""
    mask = jnp.broadcast_to(mask, jnp.broadcast_shapes(mask.shape, (*key.shape[:-2], 1, key.shape[-2])))
    attended = mask.any(axis=-2)[..., None]  # (..., k, 1)
    hide = lambda array: jnp.where(attended, array, 0)
    return hide(key), hide(value)


def _dropout(weights: Array, rate: float, rng: Array | None) -> Array:
    if rate == 0.0:
        return weights
    if rng is None:
        raise ValueError(f"expected dropout_rng with dropout_rate={rate}, got None; pass a key or dropout_rate=0.0")
    keep = jax.random.bernoulli(rng, 1.0 - rate, weights.shape)
    return jnp.where(keep, weights / (1.0 - rate), 0.0)


def _both(mask: Array | None, other: Array) -> Array:
    return other if mask is None else jnp.logical_and(*jnp.broadcast_arrays(mask, other))


def _check_shapes(query: Array, key: Array, value: Array, mask: Array | None, bias: Array | None) -> None:
    if key.shape[:-1] != value.shape[:-1] or query.shape[:-2] != key.shape[:-2]:
        raise ValueError(f"expected query (..., q, d), key (..., k, d), value (..., k, e); got {query.shape}, {key.shape}, {value.shape}")
    shape = query.shape[:-1] + key.shape[-2:-1]
    if mask is not None and mask.dtype != jnp.bool_:
        raise TypeError(f"expected a boolean mask, True where a key may be attended, got {mask.dtype}; an additive mask goes in bias=")
    for name, array in (("mask", mask), ("bias", bias)):
        if array is None:
            continue
        padded = (1,) * (len(shape) - array.ndim) + array.shape
        if len(padded) != len(shape) or any(size not in (1, full) for size, full in zip(padded, shape)):
            raise ValueError(f"expected a {name} that broadcasts to the weights {shape}, got {array.shape}")
