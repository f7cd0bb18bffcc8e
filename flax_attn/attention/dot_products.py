"""Dot products as scores: plain, scaled, and with a cap."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention import checks
from flax_attn.attention.arrays import as_dtype_of, wide
from flax_attn.attention.types import Keys, Queries, Scores


def dot(query: Queries, key: Keys) -> Scores:
    """Dot product, `e_qk = q · k` (Luong et al. 2015, arXiv:1508.04025, eq. 8, `dot`).

    Products in half precision are summed in float32, so no sum overflows.

    Raises:
        ValueError: a query and a key of different widths.
    """
    checks.check_same_width(query, key)
    dtype = wide(query.dtype, key.dtype)
    return jnp.einsum("...qd,...kd->...qk", query, key, preferred_element_type=dtype)


def scaled_dot(query: Queries, key: Keys) -> Scores:
    """Scaled dot product, `q · k / sqrt(d)` (Vaswani et al. 2017, arXiv:1706.03762, eq. 1)."""
    return DotProduct()(query, key)


class DotProduct(NamedTuple):
    """The score `softcap tanh(scale q · k / softcap)`; None for `1 / sqrt(d)` and for no cap."""

    scale: float | Array | None = None
    softcap: float | Array | None = None

    def __call__(self, query: Array, key: Array) -> Array:
        scale = max(query.shape[-1], 1) ** -0.5 if self.scale is None else self.scale
        if wide(query.dtype) == query.dtype:
            return self._capped(dot(query * as_dtype_of(query, scale), key))
        # a factor before the product costs half precision digits
        return self.of_products(dot(query, key), query.shape[-1])

    def of_products(self, products: Array, width: int) -> Array:
        """The scores, from the dot products of vectors of that width."""
        scale = max(width, 1) ** -0.5 if self.scale is None else self.scale
        return self._capped(products * as_dtype_of(products, scale))

    def _capped(self, scores: Array) -> Array:
        if self.softcap is None:
            return scores
        softcap = as_dtype_of(scores, self.softcap)
        return softcap * jnp.tanh(scores / softcap)
