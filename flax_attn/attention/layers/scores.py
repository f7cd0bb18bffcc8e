"""Flax modules that make the parameters of a score: each returns the score as a function for `attend`.

score = AdditiveScore(64)(query.shape[-1], key.shape[-1])
context, weights = attend(query, key, value, score=score)
"""

import functools
from collections.abc import Callable

import flax.linen as nn
from flax.typing import Initializer
from jaxtyping import Array

from flax_attn.attention import scores

Score = Callable[..., Array]

glorot = nn.initializers.glorot_uniform()


class AdditiveScore(nn.Module):
    """Makes `scores.additive`, `v · tanh(q W + k U)`.

    Attributes:
        features: width of the sum.
        kernel_init: initialiser of the kernels and, as a column, of the vector.
        project_keys: whether there is a `U`. A decoder, which asks the same keys step by step, projects them once itself.
    """

    features: int
    kernel_init: Initializer = glorot
    project_keys: bool = True

    @nn.compact
    def __call__(self, query_features: int, key_features: int) -> Score:
        return functools.partial(
            scores.additive,
            query_kernel=self.param(
                "query_kernel", self.kernel_init, (query_features, self.features)
            ),
            key_kernel=self.param("key_kernel", self.kernel_init, (key_features, self.features))
            if self.project_keys
            else None,
            vector=_vector(self, "vector", self.features, self.kernel_init),
        )


class ConcatScore(nn.Module):
    """Makes `scores.concat`, `v · tanh([q; k] W)`.

    Attributes:
        features: width of the hidden layer.
        kernel_init: initialiser of the kernel and, as a column, of the vector.
    """

    features: int
    kernel_init: Initializer = glorot

    @nn.compact
    def __call__(self, query_features: int, key_features: int) -> Score:
        kernel = self.param(
            "kernel", self.kernel_init, (query_features + key_features, self.features)
        )
        return functools.partial(
            scores.concat,
            kernel=kernel,
            vector=_vector(self, "vector", self.features, self.kernel_init),
        )


class BilinearScore(nn.Module):
    """Makes `scores.bilinear`, `f(q W k + b)`.

    Attributes:
        use_bias: whether there is a `b`.
        activation: `f`; None for the identity.
        kernel_init: initialiser of `W`.
    """

    use_bias: bool = False
    activation: Callable[[Array], Array] | None = None
    kernel_init: Initializer = glorot

    @nn.compact
    def __call__(self, query_features: int, key_features: int) -> Score:
        kernel = self.param("kernel", self.kernel_init, (query_features, key_features))
        bias = self.param("bias", nn.initializers.zeros, ()) if self.use_bias else None
        return functools.partial(
            scores.bilinear, kernel=kernel, bias=bias, activation=self.activation
        )


class TrilinearScore(nn.Module):
    """Makes `scores.trilinear`, `w · [q; k; q * k]`.

    Attributes:
        kernel_init: initialiser of the three parts of `w`, each as a column.
    """

    kernel_init: Initializer = glorot

    @nn.compact
    def __call__(self, query_features: int, key_features: int) -> Score:
        if query_features != key_features:
            raise ValueError(
                f"expected a query and a key of one width, got {query_features} and {key_features}"
            )
        names = ("query_vector", "key_vector", "product_vector")
        return functools.partial(
            scores.trilinear,
            **{name: _vector(self, name, query_features, self.kernel_init) for name in names},
        )


def _vector(module: nn.Module, name: str, features: int, init: Initializer) -> Array:
    """A vector parameter, initialised as a column of a kernel would be."""
    return module.param(name, lambda key: init(key, (features, 1))[:, 0])
