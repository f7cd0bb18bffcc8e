"""PairScores: how well each query matches each key. Pure functions `(query, key) -> (..., q, k)`.

A score with parameters takes them as keyword arguments. Bind them before you pass it to `attend`:

    attend(query, key, value, score=functools.partial(bilinear, kernel=kernel))

The modules in `layers.learned` make such parameters.

Half precision is multiplied in half precision and summed in float32, so no sum overflows.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.arrays import add, as_dtype_of, multiply, wide, with_rank
from flax_attn.attention.checks import (
    Keys,
    KeysOfOtherWidth,
    PairScores,
    Queries,
    as_floats,
    as_positive,
    as_scale,
    check_same_width,
)


def dot(query: Queries, key: Keys) -> PairScores:
    """Computes the dot product, `e_qk = q · k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `dot`).

    Products in half precision are summed in float32, so no sum overflows.

    Raises:
        TypeError: a query or key that is no array of floats.
        ValueError: a query and a key of different widths.
    """
    return _products(*_as_vectors(query, key))  # (..., q, k)


def scaled_dot(
    query: Queries, key: Keys, *, scale: ArrayLike | None = None, softcap: ArrayLike | None = None
) -> PairScores:
    """Computes the scaled dot product, `e_qk = q · k / sqrt(d)`.

    With other numbers it is `scale q · k`, or `softcap tanh(scale q · k / softcap)`. Bound by
    `functools.partial(scaled_dot, softcap=50.0)`, it takes every fast path of the plain one.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), eq. 1; Gemma Team 2024 (arXiv:2408.00118),
    section 2, for the soft-cap.

    Args:
        scale: a number; None for `1 / sqrt(d)`.
        softcap: a number above 0, which no score reaches; None for no limit.

    Raises:
        TypeError, ValueError: a scale or soft-cap that is no number; a soft-cap not above 0.
    """
    return dot_product(scale, softcap)(*_as_vectors(query, key))


def dot_product(scale: ArrayLike | None, softcap: ArrayLike | None) -> "DotProduct":
    """Makes the score of a scale and a soft-cap. Errors are those of `scaled_dot`."""
    cap = None if softcap is None else as_positive("softcap", softcap)
    return DotProduct(as_scale(scale), cap)


class DotProduct(NamedTuple):
    """The score `softcap tanh(scale q · k / softcap)`; None for `1 / sqrt(d)` and for no cap."""

    scale: float | Array | None = None
    softcap: float | Array | None = None

    def __call__(self, query: Array, key: Array) -> Array:
        scale = max(query.shape[-1], 1) ** -0.5 if self.scale is None else self.scale
        if wide(query.dtype) == query.dtype:
            return self._capped(_products(query * as_dtype_of(query, scale), key))  # (..., q, k)
        # a factor before the product costs half precision digits
        return self.of_products(_products(query, key), query.shape[-1])  # (..., q, k)

    def of_products(self, products: Array, width: int) -> Array:
        """Computes the scores, from the dot products of vectors of that width."""
        scale = max(width, 1) ** -0.5 if self.scale is None else self.scale
        return self._capped(products * as_dtype_of(products, scale))  # (..., q, k)

    def _capped(self, scores: Array) -> Array:
        if self.softcap is None:
            return scores
        softcap = as_dtype_of(scores, self.softcap)
        return softcap * jnp.tanh(scores / softcap)


def as_dot_product(score: Callable[..., Array]) -> DotProduct | None:
    """Returns the score as a `DotProduct`; None for one that is none."""
    if score is scaled_dot:
        return DotProduct()
    if isinstance(score, functools.partial) and score.func is scaled_dot and not score.args:
        return dot_product(score.keywords.get("scale"), score.keywords.get("softcap"))
    return score if isinstance(score, DotProduct) else None


def cosine(query: Queries, key: Keys) -> PairScores:
    """Computes the cosine, `e_qk = q · k / (|q| |k|)`. It is 0 for a vector of zeros.

    Source: Graves et al. 2014 (arXiv:1410.5401), eq. 6.

    Raises:
        ValueError: a query and a key of different widths.
    """
    query, key = _as_vectors(query, key)
    return _products(_unit(query), _unit(key))  # (..., q, k)


def bilinear(
    query: Queries,
    key: KeysOfOtherWidth,
    *,
    kernel: Float[Array, "d e"],
    bias: Float[Array, ""] | None = None,
    activation: Callable[[Array], Array] | None = None,
) -> PairScores:
    """Computes the bilinear form, `e_qk = f(q W k + b)`.

    Source: Luong et al. 2015 (arXiv:1508.04025), eq. 8, `general`. Theirs has no `f` and no `b`.

    Args:
        kernel: `W`, `(d, e)`.
        bias: `b`, a scalar; None for 0.
        activation: `f`; None for the identity.

    Raises:
        ValueError: a kernel of another shape, or a bias that is no scalar.
    """
    _check("kernel", kernel, (query.shape[-1], key.shape[-1]), query, key)
    scores = dot(project_wide(query, kernel), key)  # (..., q, k)
    if bias is not None:
        _check("bias", bias, (), query, key)
        scores = add(scores, bias)
    return scores if activation is None else activation(scores)


def additive(
    query: Queries,
    key: KeysOfOtherWidth,
    *,
    query_kernel: Float[Array, "d h"],
    key_kernel: Float[Array, "e h"] | None,
    vector: Float[Array, " h"],
) -> PairScores:
    """Computes the additive score, `e_qk = v · tanh(q W + k U)`.

    The sum is computed for every pair, `(..., q, k, h)`. For long sequences pass `chunk_size` to
    `attend`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473), appendix A.1.2.

    Args:
        query_kernel: `W`, `(d, h)`.
        key_kernel: `U`, `(e, h)`. None says that the key is `k U` already, `(..., k, h)`: a decoder
            projects its keys once, for many queries.
        vector: `v`, `(h,)`.

    Raises:
        ValueError: a kernel or vector of another shape.
    """
    _check("query_kernel", query_kernel, (query.shape[-1], *vector.shape), query, key)
    if key_kernel is not None:
        _check("key_kernel", key_kernel, (key.shape[-1], *vector.shape), query, key)
        key = project_wide(key, key_kernel)  # (..., k, h)
    _check("vector", vector, key.shape[-1:], query, key)
    return _hidden_scores(project_wide(query, query_kernel), key, vector)  # (..., q, k)


def concat(
    query: Queries,
    key: KeysOfOtherWidth,
    *,
    kernel: Float[Array, "d_plus_e h"],
    vector: Float[Array, " h"],
) -> PairScores:
    """Computes the score of the concatenated pair, `e_qk = v · tanh([q; k] W)`.

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
    _check("kernel", kernel, (width + key.shape[-1], *vector.shape), query, key)
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
) -> PairScores:
    """Computes the trilinear form, `e_qk = w · [q; k; q * k]`.

    Source: Seo et al. 2017 (arXiv:1611.01603), eq. 1.

    Args:
        query_vector, key_vector, product_vector: the three parts of `w`, `(d,)` each.

    Raises:
        ValueError: a vector of another width.
    """
    vectors = {"query_vector": query_vector, "key_vector": key_vector}
    for name, vector in (vectors | {"product_vector": product_vector}).items():
        _check(name, vector, query.shape[-1:], query, key)
    dtype = wide(query.dtype)
    query_scores = jnp.einsum("...qd,d->...q", query, query_vector, preferred_element_type=dtype)
    key_scores = jnp.einsum("...kd,d->...k", key, key_vector, preferred_element_type=dtype)
    return (
        dot(multiply(query, with_rank(product_vector, query.ndim)), key)  # (..., q, k)
        + query_scores[..., :, None]  # (..., q, 1)
        + key_scores[..., None, :]  # (..., 1, k)
    )


def location(query: Queries, *, kernel: Float[Array, "d k"]) -> PairScores:
    """Computes the score of the key's position, `e_qk = (q W)_k`.

    It does not depend on the key itself. So it is passed as a bias:

        attend(query, key, value, score=no_score, bias=location(query, kernel=kernel))

    Source: Luong et al. 2015 (arXiv:1508.04025), eq. 8, `location`.

    Args:
        kernel: `W`, `(d, k)`, with one column for each key.
    """
    return project_wide(query, kernel)  # (..., q, k)


def no_score(query: Queries, key: KeysOfOtherWidth) -> PairScores:
    """Returns zero for every pair: only the bias and the mask decide."""
    leading = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return jnp.zeros((*leading, query.shape[-2], key.shape[-2]), wide(query.dtype))  # (..., q, k)


def _as_vectors(query: ArrayLike, key: ArrayLike) -> tuple[Array, Array]:
    """Converts queries and keys to arrays of floats, of one width."""
    query, key = as_floats("query", query), as_floats("key", key)
    check_same_width(query, key)
    return query, key


def _products(query: Array, key: Array) -> Array:
    """Computes the dot products, summed in float32 or better."""
    dtype = wide(query.dtype, key.dtype)
    return jnp.einsum("...qd,...kd->...qk", query, key, preferred_element_type=dtype)  # (..., q, k)


def _check(name: str, parameter: Array, shape: tuple[int, ...], query: Array, key: Array) -> None:
    if jnp.shape(parameter) != shape:
        raise ValueError(
            f"expected a {name} of shape {shape} for query {query.shape} and key {key.shape}, "
            f"got {jnp.shape(parameter)}"
        )


def _hidden_scores(query: Array, key: Array, vector: Array) -> Array:
    """Computes `v · tanh(q + k)` for queries `(..., q, h)` and keys `(..., k, h)`."""
    hidden = jnp.tanh(add(query[..., :, None, :], key[..., None, :, :]))  # (..., q, k, h)
    dtype = wide(hidden.dtype)
    return jnp.einsum("...qkh,h->...qk", hidden, vector, preferred_element_type=dtype)


def _unit(vectors: Array) -> Array:
    """Scales vectors to length 1, in float32 or better.

    A vector of zeros stays zeros, and its gradient is finite.
    """
    vectors = vectors.astype(wide(vectors.dtype))
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(vectors), axis=-1, keepdims=True))  # (..., 1)
    vectors = vectors / jnp.where(largest > 0, largest, 1)  # no square overflows or vanishes
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)  # (..., 1)
    return vectors * jnp.where(squared > 0, jnp.where(squared > 0, squared, 1) ** -0.5, 0)


def project(
    inputs: Float[Array, "*b d"], kernel: Float[Array, "d e"], dtype: DTypeLike | None = None
) -> Float[Array, "*b e"]:
    """Projects the last axis, `y = x W`, in one matrix product with sums of the dtype, if any.

    The leading axes are flattened into one. `einsum("...d,de->...e")` computes the same, but there
    the gradient of the kernel contracts several axes. XLA has no fast product for that on CPU: a
    training step of the shapes CNN took 1.7 times as long.
    """
    product = jnp.matmul(inputs.reshape(-1, inputs.shape[-1]), kernel, preferred_element_type=dtype)
    return product.reshape(*inputs.shape[:-1], kernel.shape[-1])  # (..., e)


def project_wide(inputs: Float[Array, "*b d"], kernel: Float[Array, "d e"]) -> Float[Array, "*b e"]:
    """Projects with sums in float32 or better, so that half precision does not overflow.

    The result keeps the dtype of the sums.
    """
    return project(inputs, kernel, wide(inputs.dtype, kernel.dtype))
