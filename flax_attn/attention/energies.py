"""The steps around a normaliser: energies under a mask, and the weighted sum. Both paths of `attend` are made of them."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.checks import broadcastable, weights_shape


def masked_scores(
    query: Array, key: Array, value: Array, score: Callable[..., Array], mask: Array | None, bias: Array | None
) -> tuple[Array, Array, Array | None]:
    """Energies with the bias in them, the values without padding, and the mask with the `-inf` of the bias in it."""
    if bias is not None:
        visible = bias != -jnp.inf
        mask = visible if mask is None else mask & visible
        bias = jnp.where(visible, bias, 0)
    if mask is not None:
        query, key, value = hide_padding(query, key, value, mask)
    scores, shape = score(query, key), weights_shape(query, key, value)
    if scores.shape != shape:
        raise ValueError(f"expected a score of shape {shape} for query {query.shape} and key {key.shape}, got {scores.shape}")
    return scores if bias is None else scores + bias, value, mask


def normalized(normalizer: Callable[..., Array], scores: Array, mask: Array | None) -> Array:
    """The weights. Raises a ValueError for a normaliser that returns another shape than it was given."""
    weights = normalizer(scores, mask=mask)
    if jnp.shape(weights) != scores.shape:
        raise ValueError(f"expected a normalizer to return weights of shape {scores.shape}, as the scores, got {jnp.shape(weights)}")
    return weights


def hide_padding(query: Array, key: Array, value: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Zeroes queries that may attend to nothing, and keys and values that no query may attend.

    What they hold must not count, and 0 times a NaN is NaN, in the values and in the gradients.
    """
    mask = broadcastable("mask", mask, weights_shape(query, key, value))
    return zero_hidden(query, key, value, mask.any(axis=-1)[..., None], mask.any(axis=-2)[..., None])


def zero_hidden(query: Array, key: Array, value: Array, has_key: Array, has_query: Array) -> tuple[Array, Array, Array]:
    """Zeroes queries without a key, and keys and values without a query, by what broadcasts to the one and to the others."""
    return jnp.where(has_key, query, 0), jnp.where(has_query, key, 0), jnp.where(has_query, value, 0)


def weighted_sum(weights: Array, value: Array) -> Array:
    """The context `(..., q, e)`, added up in float32 or better."""
    wide = jnp.promote_types(value.dtype, jnp.float32)
    return jnp.einsum("...qk,...ke->...qe", weights.astype(value.dtype), value, preferred_element_type=wide)
