"""Normalisers: from energies to weights. Pure functions `(scores, mask) -> weights` along the last axis, the keys."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def masked_softmax(scores: Float[Array, "*b k"], mask: Bool[Array, "*#b #k"] | None = None) -> Float[Array, "*b k"]:
    """Softmax over the keys that the mask allows, `w_k = exp(e_k) / sum_j exp(e_j)` for allowed `k` and `j`, else 0.

    A row with no key allowed has weights 0, and finite gradients. Runs in float32 or better.

    Args:
        scores: energies of any sign and size; what stands at a masked place, even a NaN, is never read.
        mask: True where a key may be attended; broadcasts to the scores.
    """
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    mask = jnp.broadcast_to(mask, scores.shape)
    return jax.nn.softmax(jnp.where(mask, scores, 0), axis=-1, where=mask)
