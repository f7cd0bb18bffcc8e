"""Scores: how well each query matches each key. Pure functions `(query, key) -> (..., q, k)`.

A score with parameters takes them as keyword arguments. Bind them before you pass it to `attend`:

    attend(query, key, value, score=functools.partial(bilinear, kernel=kernel))

The modules in `layers.scores` make such parameters. `dot` and `scaled_dot` are in `dot_products`.

Half precision is multiplied in half precision and summed in float32, so no sum overflows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.arrays import add, multiply, wide, with_rank
from flax_attn.attention.dot_products import dot as dot
from flax_attn.attention.dot_products import scaled_dot as scaled_dot
from flax_attn.attention.projection import project_wide
from flax_attn.attention.types import Keys, KeysOfOtherWidth, Queries, Scores


def cosine(query: Queries, key: Keys) -> Scores:
    """Cosine of the angle, `e_qk = q · k / (|q| |k|)`. It is 0 for a vector of zeros.

    Source: Graves et al. 2014 (arXiv:1410.5401), eq. 6.

    Raises:
        ValueError: a query and a key of different widths.
    """
    return dot(_unit(query), _unit(key))


def bilinear(
    query: Queries,
    key: KeysOfOtherWidth,
    *,
    kernel: Float[Array, "d e"],
    bias: Float[Array, ""] | None = None,
    activation: Callable[[Array], Array] | None = None,
) -> Scores:
    """Bilinear form, `e_qk = f(q W k + b)`.

    Source: Luong et al. 2015 (arXiv:1508.04025), eq. 8, `general`. Theirs has no `f` and no `b`.

    Args:
        kernel: `W`, `(d, e)`.
        bias: `b`, a scalar; None for 0.
        activation: `f`; None for the identity.

    Raises:
        ValueError: a kernel of another shape.
    """
    _check("kernel", kernel, (query.shape[-1], key.shape[-1]), query, key)
    scores = dot(project_wide(query, kernel), key)
    scores = scores if bias is None else add(scores, bias)
    return scores if activation is None else activation(scores)


def additive(
    query: Queries,
    key: KeysOfOtherWidth,
    *,
    query_kernel: Float[Array, "d h"],
    key_kernel: Float[Array, "e h"] | None,
    vector: Float[Array, " h"],
) -> Scores:
    """Additive score, `e_qk = v · tanh(q W + k U)`.

    The sum is computed for every pair, `(..., q, k, h)`. For long sequences pass `chunk_size` to
    `attend`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473), appendix A.1.2.

    Args:
        query_kernel: `W`, `(d, h)`.
        key_kernel: `U`, `(e, h)`. None says that the key is `k U` already, `(..., k, h)`: a decoder
            projects its keys once, for many queries.
        vector: `v`, `(h,)`.

    Raises:
        ValueError: a kernel of another shape, or projected keys of another width than `v`.
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
    query: Queries,
    key: KeysOfOtherWidth,
    *,
    kernel: Float[Array, "d_plus_e h"],
    vector: Float[Array, " h"],
) -> Scores:
    """Score of the concatenated pair, `e_qk = v · tanh([q; k] W)`.

    The upper rows of the kernel multiply the query, the lower rows the key. So this is `additive`,
    and no pair is concatenated.

    Source: Luong et al. 2015 (arXiv:1508.04025), eq. 8, `concat`.

    Args:
        kernel: `W`, `(d + e, h)`.
        vector: `v`, `(h,)`.

    Raises:
        ValueError: a kernel of another shape.
    """
    width = query.shape[-1]
    if kernel.shape[0] != width + key.shape[-1]:
        raise ValueError(
            f"expected a kernel of {width} + {key.shape[-1]} rows for query {query.shape} "
            f"and key {key.shape}, got {kernel.shape}"
        )
    return additive(
        query, key, query_kernel=kernel[:width], key_kernel=kernel[width:], vector=vector
    )


def trilinear(
    query: Queries,
    key: Keys,
    *,
    query_vector: Float[Array, " d"],
    key_vector: Float[Array, " d"],
    product_vector: Float[Array, " d"],
) -> Scores:
    """Trilinear form, `e_qk = w · [q; k; q * k]`.

    Source: Seo et al. 2017 (arXiv:1611.01603), eq. 1.

    Args:
        query_vector, key_vector, product_vector: the three parts of `w`, `(d,)` each.

    Raises:
        ValueError: a vector of another width.
    """
    for name, vector in (
        ("query_vector", query_vector),
        ("key_vector", key_vector),
        ("product_vector", product_vector),
    ):
        _check(name, vector, query.shape[-1:], query, key)
    dtype = wide(query.dtype)
    query_scores = jnp.einsum("...qd,d->...q", query, query_vector, preferred_element_type=dtype)
    key_scores = jnp.einsum("...kd,d->...k", key, key_vector, preferred_element_type=dtype)
    return (
        dot(multiply(query, with_rank(product_vector, query.ndim)), key)
        + query_scores[..., :, None]
        + key_scores[..., None, :]
    )


def location(query: Queries, *, kernel: Float[Array, "d k"]) -> Scores:
    """Score of the key's position, `e_qk = (q W)_k`.

    It does not depend on the key itself. So it is passed as a bias:

        attend(query, key, value, score=no_score, bias=location(query, kernel=kernel))

    Source: Luong et al. 2015 (arXiv:1508.04025), eq. 8, `location`.

    Args:
        kernel: `W`, `(d, k)`, with one column for each key.
    """
    return project_wide(query, kernel)


def no_score(query: Queries, key: KeysOfOtherWidth) -> Scores:
    """Zero for every pair: only the bias and the mask decide."""
    leading = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return jnp.zeros((*leading, query.shape[-2], key.shape[-2]), wide(query.dtype))


def _check(name: str, parameter: Array, shape: tuple[int, ...], query: Array, key: Array) -> None:
    if parameter.shape != shape:
        raise ValueError(
            f"expected a {name} of shape {shape} for query {query.shape} and key {key.shape}, "
            f"got {parameter.shape}"
        )


def _hidden_scores(query: Array, key: Array, vector: Array) -> Array:
    """`v · tanh(q + k)` for queries `(..., q, h)` and keys `(..., k, h)`."""
    hidden = jnp.tanh(add(query[..., :, None, :], key[..., None, :, :]))  # (..., q, k, h)
    dtype = wide(hidden.dtype)
    return jnp.einsum("...qkh,h->...qk", hidden, vector, preferred_element_type=dtype)


def _unit(vectors: Array) -> Array:
    """The vectors scaled to length 1, in float32 or better.

    A vector of zeros stays zeros, and its gradient is finite.
    """
    vectors = vectors.astype(wide(vectors.dtype))
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(vectors), axis=-1, keepdims=True))
    vectors = vectors / jnp.where(largest > 0, largest, 1)  # no square overflows or vanishes
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    return vectors * jnp.where(squared > 0, jnp.where(squared > 0, squared, 1) ** -0.5, 0)
