"""Flax modules that make the parameters of a score, and return it as a function for `attend`.

Layers take such a module as it is: `Attention(AdditiveScore(64))`. Inside a module of your own:

    score = AdditiveScore(64)(query.shape[-1], key.shape[-1])
    context, weights = attend(query, key, value, score=score)
"""

import functools
import numbers
from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array

from flax_attn.attention import scores
from flax_attn.attention.checks import check_size
from flax_attn.attention.types import Score

glorot = nn.initializers.glorot_uniform()


class LearnedScore(nn.Module):
    """Base class of the modules in this file. Call a module with the widths of query and key."""

    def __call__(self, query_features: int, key_features: int) -> Score:
        """The score of queries `(..., q, query_features)` and keys `(..., k, key_features)`.

        Raises:
            TypeError: a call outside a Flax module, or with arrays instead of their widths.
            TypeError, ValueError: a size that is not an integer of 1 or above.
        """
        name = type(self).__name__
        if self.scope is None:
            raise TypeError(
                f"expected {name} inside a Flax module, such as Attention({name}(...)), got a call "
                "outside one; outside, pass score=module.apply(variables, query.shape[-1], "
                "key.shape[-1])"
            )
        if not all(isinstance(width, numbers.Integral) for width in (query_features, key_features)):
            query, key = (
                getattr(width, "shape", width) for width in (query_features, key_features)
            )
            raise TypeError(
                f"expected {name} to be called with the widths of query and key, got {query!r} and "
                f"{key!r}; pass score=module(query.shape[-1], key.shape[-1])"
            )
        return self._make(query_features, key_features)

    def _make(self, query_features: int, key_features: int) -> Score:
        """Makes the parameters, and binds them to the score."""
        raise NotImplementedError


class AdditiveScore(LearnedScore):
    """Makes `scores.additive`, `v · tanh(q W + k U)`.

    Attributes:
        features: width `h` of the hidden layer.
        kernel_init: initialiser of the kernels `W` `(d, h)` and `U` `(e, h)`. The vector `v` `(h,)`
            is initialised as a column of a kernel.
        project_keys: whether there is a `U`. With False, the keys are `k U` already: a decoder can
            project them once for all its steps.
        param_dtype: dtype of the parameters.
    """

    features: int
    kernel_init: Initializer = glorot
    project_keys: bool = True
    param_dtype: DTypeLike = jnp.float32

    @nn.compact
    def _make(self, query_features: int, key_features: int) -> Score:
        check_size("features", self.features)
        kernel = lambda name, width: self.param(
            name, self.kernel_init, (width, self.features), self.param_dtype
        )
        return functools.partial(
            scores.additive,
            query_kernel=kernel("query_kernel", query_features),
            key_kernel=kernel("key_kernel", key_features) if self.project_keys else None,
            vector=self.param(
                "vector", _column(self.kernel_init), (self.features,), self.param_dtype
            ),
        )


class ConcatScore(LearnedScore):
    """Makes `scores.concat`, `v · tanh([q; k] W)`.

    Attributes:
        features: width `h` of the hidden layer.
        kernel_init: initialiser of the kernel `W` `(d + e, h)`. The vector `v` `(h,)` is
            initialised as a column of a kernel.
        param_dtype: dtype of the parameters.
    """

    features: int
    kernel_init: Initializer = glorot
    param_dtype: DTypeLike = jnp.float32

    @nn.compact
    def _make(self, query_features: int, key_features: int) -> Score:
        check_size("features", self.features)
        shape = (query_features + key_features, self.features)
        return functools.partial(
            scores.concat,
            kernel=self.param("kernel", self.kernel_init, shape, self.param_dtype),
            vector=self.param(
                "vector", _column(self.kernel_init), (self.features,), self.param_dtype
            ),
        )


class BilinearScore(LearnedScore):
    """Makes `scores.bilinear`, `f(q W k + b)`.

    Attributes:
        use_bias: whether there is a `b`, a scalar that starts at 0.
        activation: `f`; None for the identity.
        kernel_init: initialiser of the kernel `W` `(d, e)`.
        param_dtype: dtype of the parameters.
    """

    use_bias: bool = False
    activation: Callable[[Array], Array] | None = None
    kernel_init: Initializer = glorot
    param_dtype: DTypeLike = jnp.float32

    @nn.compact
    def _make(self, query_features: int, key_features: int) -> Score:
        shape = (query_features, key_features)
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        bias = None
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (), self.param_dtype)
        return functools.partial(
            scores.bilinear, kernel=kernel, bias=bias, activation=self.activation
        )


class TrilinearScore(LearnedScore):
    """Makes `scores.trilinear`, `w · [q; k; q * k]`. Queries and keys have one width.

    Attributes:
        kernel_init: initialiser of the three parts of `w`, `(d,)` each, as columns of a kernel.
        param_dtype: dtype of the parameters.
    """

    kernel_init: Initializer = glorot
    param_dtype: DTypeLike = jnp.float32

    @nn.compact
    def _make(self, query_features: int, key_features: int) -> Score:
        if query_features != key_features:
            raise ValueError(
                f"expected a query and a key of one width, got {query_features} and {key_features}"
            )
        vector = lambda name: self.param(
            name, _column(self.kernel_init), (query_features,), self.param_dtype
        )
        return functools.partial(
            scores.trilinear,
            query_vector=vector("query_vector"),
            key_vector=vector("key_vector"),
            product_vector=vector("product_vector"),
        )


def _column(kernel_init: Initializer) -> Initializer:
    """An initialiser of vectors: each vector is a column of a kernel."""
    return lambda key, shape, dtype: kernel_init(key, (*shape, 1), dtype)[..., 0]
