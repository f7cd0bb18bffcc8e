"""Energies: how well each query matches each key. Pure functions `(query, key) -> (..., q, k)`.

A score that has parameters takes them as further arguments; close over them to hand it to `attend`:
`attend(query, key, value, score=functools.partial(bilinear, kernel=kernel))`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.projection import project


def dot(query: Float[Array, "*b q d"], key: Float[Array, "*b k d"]) -> Float[Array, "*b q k"]:
    """Dot product, `e_qk = q · k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `dot`)."""
    return jnp.einsum("...qd,...kd->...qk", query, key)


def scaled_dot(query: Float[Array, "*b q d"], key: Float[Array, "*b k d"]) -> Float[Array, "*b q k"]:
    """Scaled dot product, `e_qk = q · k / sqrt(d)` (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    return dot(query / jnp.sqrt(query.shape[-1]).astype(query.dtype), key)


def bilinear(query: Float[Array, "*b q d"], key: Float[Array, "*b k c"], kernel: Float[Array, "d c"]) -> Float[Array, "*b q k"]:
    """Bilinear form, `e_qk = q W k` with `W` the kernel (Luong et al. 2015, arXiv:1508.04025, eq. 8, `general`)."""
    return dot(project(query, kernel), key)
