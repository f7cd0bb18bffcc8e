"""Energies: how well each query matches each key. Pure functions `(query, key) -> (..., q, k)`.

A score that has parameters takes them as further arguments; close over them to hand it to `attend`:
`attend(query, key, value, score=functools.partial(bilinear, kernel=kernel))`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.projection import project


def dot(query: Float[Array, "*b q d"], key: Float[Array, "*b k d"]) -> Float[Array, "*b q k"]:
    """Dot product, `e_qk = q · k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `dot`).

    Half precision is multiplied as it is and added up in float32, so that no sum overflows.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"expected a query and key of one width, got {query.shape} and {key.shape}")
    wide = jnp.promote_types(jnp.result_type(query, key), jnp.float32)
    return jnp.einsum("...qd,...kd->...qk", query, key, preferred_element_type=wide)


def scaled_dot(query: Float[Array, "*b q d"], key: Float[Array, "*b k d"]) -> Float[Array, "*b q k"]:
    """Scaled dot product, `e_qk = q · k / sqrt(d)` (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    return dot(query * query.shape[-1] ** -0.5, key)


def bilinear(query: Float[Array, "*b q d"], key: Float[Array, "*b k c"], kernel: Float[Array, "d c"]) -> Float[Array, "*b q k"]:
    """Bilinear form, `e_qk = q W k` with `W` the kernel (Luong et al. 2015, arXiv:1508.04025, eq. 8, `general`)."""
    return dot(project(query, kernel), key)
