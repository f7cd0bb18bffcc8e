"""Scores: how well each query matches each key. Pure functions `(query, key) -> (..., q, k)`.

A score with parameters takes them as keyword arguments. Close over them to hand it to `attend`:
`attend(query, key, value, score=functools.partial(bilinear, kernel=kernel))`. The modules in
`layers.scores` make the parameters. `dot` and `scaled_dot` stand beside `attend`.

Half precision is multiplied as it is and added up in float32, so no sum overflows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.arrays import wide, with_rank
from flax_attn.attention.core import dot as dot
from flax_attn.attention.core import scaled_dot as scaled_dot
from flax_attn.attention.projection import project_wide

Query = Float[Array, "*b q d"]
Key = Float[Array, "*c k d"]
OtherKey = Float[Array, "*c k e"]
Scores = Float[Array, "*_ q k"]


def cosine(query: Query, key: Key) -> Scores:
    """Cosine of the angle, `e_qk = q · k / (|q| |k|)`, 0 for a vector of zeros (Graves et al. 2014, arXiv:1410.5401, eq. 6)."""
    return dot(_unit(query), _unit(key))


def bilinear(
    query: Query,
    key: OtherKey,
    *,
    kernel: Float[Array, "d e"],
    bias: Float[Array, ""] | None = None,
    activation: Callable[[Array], Array] | None = None,
) -> Scores:
    """Bilinear form, `e_qk = f(q W k + b)` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `general`, without `f` and `b`).

    Args:
        kernel: `W`.
        bias: `b`, a scalar.
        activation: `f`; None for the identity.
    """
    _check("kernel", kernel, (query.shape[-1], key.shape[-1]), query, key)
    scores = dot(project_wide(query, kernel), key)
    scores = scores if bias is None else scores + bias
    return scores if activation is None else activation(scores)


def additive(
    query: Query,
    key: OtherKey,
    *,
    query_kernel: Float[Array, "d h"],
    key_kernel: Float[Array, "e h"] | None,
    vector: Float[Array, " h"],
) -> Scores:
    """Additive score, `e_qk = v · tanh(q W + k U)` (Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2).

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
        raise ValueError(
            f"expected projected keys as wide as the vector {vector.shape}, got {key.shape}"
        )
    return _hidden_scores(project_wide(query, query_kernel), key, vector)


def concat(
    query: Query, key: OtherKey, *, kernel: Float[Array, "d_plus_e h"], vector: Float[Array, " h"]
) -> Scores:
    """Score of the pair, concatenated, `e_qk = v · tanh([q; k] W)` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `concat`).

    The kernel is that of `additive` with `W` above `U`; written so, nothing is concatenated.

    Raises:
        ValueError: a kernel whose height is not the two widths together.
    """
    width = query.shape[-1]
    if kernel.shape[0] != width + key.shape[-1]:
        raise ValueError(
            f"expected a kernel of {width} + {key.shape[-1]} rows for query {query.shape} and key {key.shape}, got {kernel.shape}"
        )
    return additive(
        query, key, query_kernel=kernel[:width], key_kernel=kernel[width:], vector=vector
    )


def trilinear(
    query: Query,
    key: Key,
    *,
    query_vector: Float[Array, " d"],
    key_vector: Float[Array, " d"],
    product_vector: Float[Array, " d"],
) -> Scores:
    """Trilinear form, `e_qk = w · [q; k; q * k]` (Seo et al. 2017, arXiv:1611.01603, eq. 1), with `w` in its three parts."""
    for name, vector in (
        ("query_vector", query_vector),
        ("key_vector", key_vector),
        ("product_vector", product_vector),
    ):
        _check(name, vector, query.shape[-1:], query, key)
    dtype = wide(query.dtype)
    of_query = jnp.einsum("...qd,d->...q", query, query_vector, preferred_element_type=dtype)
    of_key = jnp.einsum("...kd,d->...k", key, key_vector, preferred_element_type=dtype)
    return (
        dot(query * with_rank(product_vector, query.ndim), key)
        + of_query[..., :, None]
        + of_key[..., None, :]
    )


def location(query: Query, *, kernel: Float[Array, "d k"]) -> Scores:
    """Score of the position alone, `e_qk = (q W)_k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `location`).

    It knows no key, so it enters as a bias: `attend(..., score=no_score, bias=location(query, kernel=kernel))`.
    """
    return project_wide(query, kernel)


def no_score(query: Query, key: OtherKey) -> Scores:
    """Zero for every pair: what is left is the bias, or a mean over the keys allowed."""
    leading = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return jnp.zeros((*leading, query.shape[-2], key.shape[-2]), wide(query.dtype))


def _check(name: str, parameter: Array, shape: tuple[int, ...], query: Array, key: Array) -> None:
    if parameter.shape != shape:
        raise ValueError(
            f"expected a {name} of shape {shape} for query {query.shape} and key {key.shape}, got {parameter.shape}"
        )


def _hidden_scores(query: Array, key: Array, vector: Array) -> Array:
    hidden = jnp.tanh(query[..., :, None, :] + key[..., None, :, :])  # (..., q, k, h)
    dtype = wide(hidden.dtype)
    return jnp.einsum("...qkh,h->...qk", hidden, vector, preferred_element_type=dtype)


def _unit(vectors: Array) -> Array:
    """The vectors at length 1, in float32 or better; zeros stay, and their gradient is finite."""
    vectors = vectors.astype(wide(vectors.dtype))
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(vectors), axis=-1, keepdims=True))
    vectors = vectors / jnp.where(largest > 0, largest, 1)  # no square overflows or vanishes
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    return vectors * jnp.where(squared > 0, jnp.where(squared > 0, squared, 1) ** -0.5, 0)
