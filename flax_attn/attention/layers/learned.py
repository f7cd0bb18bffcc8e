"""Flax modules that make the parameters of a score, of positions, or of biases of the scores.

Layers take the module of a score as it is: `Attention(AdditiveScore(64))`. Inside a module of your
own:

    score = AdditiveScore(64)(query.shape[-1], key.shape[-1])
    context, weights = attend(query, key, value, score=score)
"""

import dataclasses
import functools
import operator
from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Int

from flax_attn.attention import scores
from flax_attn.attention.arrays import aligned
from flax_attn.attention.checks import Score, as_integers, known_bound
from flax_attn.attention.layers.shells import LayerBase, LinenShell, glorot
from flax_attn.attention.positions import positions_from

small, standard = nn.initializers.normal(0.02), nn.initializers.normal(1.0)


class LearnedScore(LinenShell, nn.Module):
    """Base class of the modules of scores. Call a module with the widths of query and key."""

    def __call__(self, query_features: int, key_features: int) -> Score:
        """Makes the score of queries `(..., q, query_features)` and keys `(..., k, key_features)`.

        Raises:
            TypeError: a call with arrays instead of their widths.
        """
        return self._make(operator.index(query_features), operator.index(key_features))

    def _make(self, query_features: int, key_features: int) -> Score:
        """Makes the parameters, and binds them to the score."""
        raise NotImplementedError


@dataclasses.dataclass(eq=False, repr=False)
class AdditiveScoreBase(LayerBase):
    """The arguments and the computation of `AdditiveScore`."""

    features: int
    kernel_init: Initializer = glorot
    project_keys: bool = True
    param_dtype: DTypeLike = jnp.float32

    def _make(self, query_features: int, key_features: int) -> Score:
        kernel = lambda name, width: self._param(name, self.kernel_init, (width, self.features))
        return functools.partial(
            scores.additive,
            query_kernel=kernel("query_kernel", query_features),  # (d, h)
            key_kernel=kernel("key_kernel", key_features) if self.project_keys else None,  # (e, h)
            vector=self._param("vector", _column(self.kernel_init), (self.features,)),  # (h,)
        )


class AdditiveScore(AdditiveScoreBase, LearnedScore):
    """Makes `scores.additive`, `v · tanh(q W + k U)`.

    Attributes:
        features: width `h` of the hidden layer.
        kernel_init: initialiser of the kernels `W` `(d, h)` and `U` `(e, h)`. The vector `v` `(h,)`
            is initialised as a column of a kernel.
        project_keys: whether there is a `U`. With False, the keys are `k U` already: a decoder can
            project them once for all its steps.
        param_dtype: dtype of the parameters.
    """

    _make = nn.compact(AdditiveScoreBase._make)


@dataclasses.dataclass(eq=False, repr=False)
class ConcatScoreBase(LayerBase):
    """The arguments and the computation of `ConcatScore`."""

    features: int
    kernel_init: Initializer = glorot
    param_dtype: DTypeLike = jnp.float32

    def _make(self, query_features: int, key_features: int) -> Score:
        shape = (query_features + key_features, self.features)  # (d + e, h)
        return functools.partial(
            scores.concat,
            kernel=self._param("kernel", self.kernel_init, shape),  # (d + e, h)
            vector=self._param("vector", _column(self.kernel_init), (self.features,)),  # (h,)
        )


class ConcatScore(ConcatScoreBase, LearnedScore):
    """Makes `scores.concat`, `v · tanh([q; k] W)`.

    Attributes:
        features: width `h` of the hidden layer.
        kernel_init: initialiser of the kernel `W` `(d + e, h)`. The vector `v` `(h,)` is
            initialised as a column of a kernel.
        param_dtype: dtype of the parameters.
    """

    _make = nn.compact(ConcatScoreBase._make)


@dataclasses.dataclass(eq=False, repr=False)
class BilinearScoreBase(LayerBase):
    """The arguments and the computation of `BilinearScore`."""

    use_bias: bool = False
    activation: Callable[[Array], Array] | None = None
    kernel_init: Initializer = glorot
    param_dtype: DTypeLike = jnp.float32

    def _make(self, query_features: int, key_features: int) -> Score:
        shape = (query_features, key_features)  # (d, e)
        kernel = self._param("kernel", self.kernel_init, shape)
        bias = None
        if self.use_bias:
            bias = self._param("bias", nn.initializers.zeros, ())  # a scalar
        return functools.partial(
            scores.bilinear, kernel=kernel, bias=bias, activation=self.activation
        )


class BilinearScore(BilinearScoreBase, LearnedScore):
    """Makes `scores.bilinear`, `f(q W k + b)`.

    Attributes:
        use_bias: whether there is a `b`, a scalar that starts at 0.
        activation: `f`; None for the identity.
        kernel_init: initialiser of the kernel `W` `(d, e)`.
        param_dtype: dtype of the parameters.
    """

    _make = nn.compact(BilinearScoreBase._make)


@dataclasses.dataclass(eq=False, repr=False)
class TrilinearScoreBase(LayerBase):
    """The arguments and the computation of `TrilinearScore`."""

    kernel_init: Initializer = glorot
    param_dtype: DTypeLike = jnp.float32

    def _make(self, query_features: int, key_features: int) -> Score:
        vector = lambda name: self._param(name, _column(self.kernel_init), (query_features,))
        return functools.partial(
            scores.trilinear,
            query_vector=vector("query_vector"),  # (d,) each
            key_vector=vector("key_vector"),
            product_vector=vector("product_vector"),
        )


class TrilinearScore(TrilinearScoreBase, LearnedScore):
    """Makes `scores.trilinear`, `w · [q; k; q * k]`. Queries and keys have one width.

    Attributes:
        kernel_init: initialiser of the three parts of `w`, `(d,)` each, as columns of a kernel.
        param_dtype: dtype of the parameters.
    """

    _make = nn.compact(TrilinearScoreBase._make)


def _column(kernel_init: Initializer) -> Initializer:
    """Makes an initialiser of vectors: each vector is a column of a kernel."""
    return lambda key, shape, dtype: kernel_init(key, (*shape, 1), dtype)[..., 0]


@dataclasses.dataclass(eq=False, repr=False)
class LearnedPositionsBase(LayerBase):
    """The arguments and the computation of `LearnedPositions`."""

    max_length: int
    features: int
    embedding_init: Initializer = small
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __call__(self, length: int, offset: ArrayLike = 0) -> Float[Array, "*b t d"]:
        """Returns the vectors of the `length` positions from `offset` on.

        Args:
            length: `t`, the number of positions.
            offset: the first position, an integer, or `(...)` with one for each batch row. In
                decoding it is the number of cached tokens.

        Returns:
            `(t, features)`, or `(..., t, features)` with one offset for each batch row.

        Raises:
            ValueError: positions outside the table. Under `jit` a traced offset is not known;
                there the vectors of such positions are NaN.
        """
        offset = as_integers("offset", offset)
        first, last = known_bound(jnp.min, offset), known_bound(jnp.max, offset)
        if first < 0 or last + length > self.max_length:
            raise ValueError(
                f"expected at most max_length={self.max_length} positions, got {length} from "
                f"{first if first < 0 else last} on"
            )
        shape = (self.max_length, self.features)
        table = self._param("embedding", self.embedding_init, shape)  # (max_length, d)
        table = table if self.dtype is None else table.astype(self.dtype)
        positions = positions_from(offset, length)  # (..., t)
        # An index below 0 would count from the end of the table.
        positions = jnp.where(positions < 0, self.max_length, positions)
        return table.at[positions].get(mode="fill", fill_value=jnp.nan)  # (..., t, d)


class LearnedPositions(LearnedPositionsBase, LinenShell, nn.Module):
    """A learned vector for each position. The vectors are added to the inputs.

    Source: Gehring et al. 2017 (arXiv:1705.03122), section 3.1.

    Attributes:
        max_length: number of positions in the table.
        features: width of the vectors.
        embedding_init: initialiser of the table `(max_length, features)`.
        dtype: dtype of the vectors; None for `param_dtype`.
        param_dtype: dtype of the table.
    """

    __call__ = nn.compact(LearnedPositionsBase.__call__)


@dataclasses.dataclass(eq=False, repr=False)
class RelativeBiasBase(LayerBase):
    """The arguments and the computation of `RelativeBias`."""

    num_heads: int
    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = True
    embedding_init: Initializer = standard
    param_dtype: DTypeLike = jnp.float32

    def __call__(self) -> Callable[[Array, Array], Array]:
        """Returns a function from positions `(q, 1)` and `(1, k)` to the bias `(heads, q, k)`.

        Pass it as `bias` to `dot_product_attention` or to a layer with heads.

        Raises:
            ValueError: sizes that leave a side without buckets, or a bucket without distances.
        """
        sides = 2 if self.bidirectional else 1
        exact = self.num_buckets // sides // 2
        if self.num_buckets % sides or exact < 1 or self.max_distance <= exact:
            raise ValueError(
                f"expected num_buckets to be a multiple of {sides} from {2 * sides} on, and "
                f"max_distance above {exact}, got {self.num_buckets} and {self.max_distance}"
            )
        shape = (self.num_buckets, self.num_heads)
        table = self._param("embedding", self.embedding_init, shape)  # (buckets, heads)

        def bias(query_positions: Array, key_positions: Array) -> Array:
            distance = jnp.subtract(*aligned(key_positions, query_positions))  # (..., q, k)
            return jnp.moveaxis(table[self.bucket(distance)], -1, -3)  # (..., heads, q, k)

        return bias

    def bucket(self, distance: Int[Array, "..."]) -> Int[Array, "..."]:
        """Returns the bucket of each distance `key - query`."""
        buckets = self.num_buckets
        if self.bidirectional:
            buckets //= 2
            first, size = jnp.where(distance > 0, buckets, 0), jnp.abs(distance)  # (..., q, k)
        else:
            first, size = 0, jnp.maximum(-distance, 0)
        exact = buckets // 2  # number of buckets that hold one distance each
        ratio = jnp.log(jnp.maximum(size, 1) / exact) / jnp.log(self.max_distance / exact)
        wide = exact + (ratio * (buckets - exact)).astype(jnp.int32)  # (..., q, k)
        return first + jnp.where(size < exact, size, jnp.minimum(wide, buckets - 1))  # (..., q, k)


class RelativeBias(RelativeBiasBase, LinenShell, nn.Module):
    """A learned bias for each head and each bucket of distances between key and query.

    On each side, the first half of the buckets holds the shortest distances, one in each bucket.
    For larger distances, the number of the bucket grows with the logarithm of the distance.

    Source: Raffel et al. 2020 (arXiv:1910.10683), section 2.1, T5.

    Attributes:
        num_heads: number of heads; each has its own biases.
        num_buckets: number of buckets of both sides together. With `bidirectional` it is even.
        max_distance: this distance and all larger ones share the last bucket.
        bidirectional: True gives half of the buckets to keys after the query. With False, these
            keys share the bucket of distance 0.
        embedding_init: initialiser of the table `(num_buckets, num_heads)`.
        param_dtype: dtype of the table.
    """

    __call__ = nn.compact(RelativeBiasBase.__call__)
