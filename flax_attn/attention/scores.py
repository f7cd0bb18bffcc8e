"""Energies: how well each query matches each key. Pure functions `(query, key) -> (..., q, k)`.

A score that has parameters takes them as keyword arguments; close over them to hand it to `attend`:
`attend(query, key, value, score=functools.partial(bilinear, kernel=kernel))`. The modules in `learned_scores` make them.

Half precision is multiplied as it is and added up in float32, so that no sum overflows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.projection import project_wide

Query = Float[Array, "*b q d"]
Key = Float[Array, "*c k d"]
OtherKey = Float[Array, "*c k e"]
Energies = Float[Array, "*_ q k"]


def dot(query: Query, key: Key) -> Energies:
    """Dot product, `e_qk = q · k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `dot`).

    Raises:
        ValueError: a query and a key of different widths.
    """
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"expected a query and a key of one width, got {query.shape} and {key.shape}")
    wide = jnp.promote_types(jnp.result_type(query, key), jnp.float32)
    return jnp.einsum("...qd,...kd->...qk", query, key, preferred_element_type=wide)


def scaled_dot(query: Query, key: Key) -> Energies:
    """Scaled dot product, `e_qk = q · k / sqrt(d)` (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    return scaled(query, key, query.shape[-1] ** -0.5)


def cosine(query: Query, key: Key) -> Energies:
    """Cosine of the angle, `e_qk = q · k / (|q| |k|)`, 0 for a vector of zeros (Graves et al. 2014, arXiv:1410.5401, eq. 6)."""
    return dot(_unit(query), _unit(key))


def bilinear(
    query: Query,
    key: OtherKey,
    *,
    kernel: Float[Array, "d e"],
    bias: Float[Array, ""] | None = None,
    activation: Callable[[Array], Array] | None = None,
) -> Energies:
    """Bilinear form, `e_qk = f(q W k + b)` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `general`, without `f` and `b`).

    Args:
        kernel: `W`.
        bias: `b`, a scalar.
        activation: `f`; None for the identity.
    """
    _check("kernel", kernel, (query.shape[-1], key.shape[-1]), query, key)
    energies = dot(project_wide(query, kernel), key)
    energies = energies if bias is None else energies + bias
    return energies if activation is None else activation(energies)


def additive(
    query: Query, key: OtherKey, *, query_kernel: Float[Array, "d h"], key_kernel: Float[Array, "e h"] | None, vector: Float[Array, " h"]
) -> Energies:
    """Additive energy, `e_qk = v · tanh(q W + k U)` (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2).

    The sum exists for every pair, `(..., q, k, h)`: give `attend` a `chunk_size` for long sequences.

    Args:
        query_kernel, key_kernel: `W` and `U`; None for a `U` that the keys have been multiplied by already, once for many queries.
        vector: `v`.
    """
    _check("query_kernel", query_kernel, (query.shape[-1], vector.shape[0]), query, key)
    if key_kernel is not None:
        _check("key_kernel", key_kernel, (key.shape[-1], vector.shape[0]), query, key)
        key = project_wide(key, key_kernel)
    elif key.shape[-1] != vector.shape[0]:
        raise ValueError(f"expected projected keys as wide as the vector {vector.shape}, got {key.shape}")
    return _hidden_energies(project_wide(query, query_kernel), key, vector)


def concat(query: Query, key: OtherKey, *, kernel: Float[Array, "d_plus_e h"], vector: Float[Array, " h"]) -> Energies:
    """Energy of the pair joined, `e_qk = v · tanh([q; k] W)` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `concat`).

    The kernel is that of `additive` with `W` above `U`; written so, nothing is joined.

    Raises:
        ValueError: a kernel whose height is not the two widths together.
    """
    width = query.shape[-1]
    if kernel.shape[0] != width + key.shape[-1]:
        raise ValueError(
            f"expected a kernel of {width} + {key.shape[-1]} rows for query {query.shape} and key {key.shape}, got {kernel.shape}"
        )
    return additive(query, key, query_kernel=kernel[:width], key_kernel=kernel[width:], vector=vector)


def trilinear(
    query: Query, key: Key, *, query_vector: Float[Array, " d"], key_vector: Float[Array, " d"], product_vector: Float[Array, " d"]
) -> Energies:
    """Trilinear form, `e_qk = w · [q; k; q * k]` (Seo et al. 2017, arXiv:1611.01603, eq. 1), with `w` in its three parts."""
    for name, vector in (("query_vector", query_vector), ("key_vector", key_vector), ("product_vector", product_vector)):
        _check(name, vector, query.shape[-1:], query, key)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    of_query = jnp.einsum("...qd,d->...q", query, query_vector, preferred_element_type=wide)
    of_key = jnp.einsum("...kd,d->...k", key, key_vector, preferred_element_type=wide)
    return dot(query * product_vector.reshape((1,) * (query.ndim - 1) + (-1,)), key) + of_query[..., :, None] + of_key[..., None, :]


def location(query: Query, *, kernel: Float[Array, "d k"]) -> Energies:
    """Energy of the place alone, `e_qk = (q W)_k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `location`).

    It knows no key, so it enters as a bias: `attend(..., score=no_score, bias=location(query, kernel=kernel))`.
    """
    return project_wide(query, kernel)


def no_score(query: Query, key: OtherKey) -> Energies:
    """Zero for every pair: what is left is the bias, or a mean over the keys allowed."""
    leading = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return jnp.zeros((*leading, query.shape[-2], key.shape[-2]), jnp.promote_types(query.dtype, jnp.float32))


def scaled(query: Query, key: Key, scale: float) -> Energies:
    """`e_qk = scale q · k`. Half precision is scaled once it is summed up, in float32, for there a factor costs digits."""
    if jnp.promote_types(query.dtype, jnp.float32) == query.dtype:
        return dot(query * scale, key)
    return dot(query, key) * scale


def _check(name: str, parameter: Array, shape: tuple[int, ...], query: Array, key: Array) -> None:
    if parameter.shape != shape:
        raise ValueError(f"expected a {name} of shape {shape} for query {query.shape} and key {key.shape}, got {parameter.shape}")


def _hidden_energies(query: Array, key: Array, vector: Array) -> Array:
    hidden = jnp.tanh(query[..., :, None, :] + key[..., None, :, :])  # (..., q, k, h)
    wide = jnp.promote_types(hidden.dtype, jnp.float32)
    return jnp.einsum("...qkh,h->...qk", hidden, vector, preferred_element_type=wide)


def _unit(vectors: Array) -> Array:
    """The vectors at length 1, in float32 or better; zeros stay, and their gradient is finite."""
    wide = vectors.astype(jnp.promote_types(vectors.dtype, jnp.float32))
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=-1, keepdims=True))
    wide = wide / jnp.where(largest > 0, largest, 1)  # so that no square overflows or vanishes
    squared = jnp.sum(jnp.square(wide), axis=-1, keepdims=True)
    return wide * jnp.where(squared > 0, jnp.where(squared > 0, squared, 1) ** -0.5, 0)
