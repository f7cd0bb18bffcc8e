"""Modules of `flax.nnx` with the parameters of a score, of positions, or of biases.

A score is called with queries and keys, and returns their scores:

    score = AdditiveScore(64, in_features=16, rngs=nnx.Rngs(0))
    context, weights = attend(query, key, value, score=score)
"""

import dataclasses

from flax import nnx
from flax.typing import Initializer

from flax_attn.attention.checks import KeysOfOtherWidth, PairScores, Queries, Score
from flax_attn.attention.layers import learned
from flax_attn.attention.nnx.shell import NO_METADATA, Metadata, Shell


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LearnedScore(Shell):
    """Base class of the scores with parameters.

    Attributes:
        in_features, in_key_features: widths of queries and keys; None for equal ones.
        kernel_metadata: of the kernels.
    """

    in_features: int
    in_key_features: int | None = None
    kernel_metadata: Metadata = NO_METADATA

    def __call__(self, query: Queries, key: KeysOfOtherWidth) -> PairScores:
        """Computes the scores `(..., q, k)` of queries `(..., q, d)` and keys `(..., k, e)`."""
        return self.bound()(query, key)

    def bound(self) -> Score:
        """Returns the score as a function of arrays alone, which layers take."""
        return self._make(*self._widths())

    def _make(self, query_features: int, key_features: int) -> Score:
        raise NotImplementedError

    def _widths(self) -> tuple[int, int]:
        keys = self.in_key_features
        return self.in_features, self.in_features if keys is None else keys

    def _add_kernel(
        self, name: str, rngs: nnx.Rngs, init: Initializer, shape: tuple[int, ...]
    ) -> None:
        self._add_param(name, rngs, init, shape, self.kernel_metadata)

    def _add_vector(self, name: str, rngs: nnx.Rngs, init: Initializer, features: int) -> None:
        """Adds a vector, initialised as a column of a kernel, without its sharding."""
        value = init(rngs.params(), (features, 1), self.param_dtype)  # initialisers need two axes
        value = getattr(value, "raw_value", value)  # of `nnx.with_partitioning`
        setattr(self, name, nnx.Param(value[..., 0]))  # (features,)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class AdditiveScore(learned.AdditiveScoreBase, LearnedScore):
    """Computes `scores.additive`, `v · tanh(q W + k U)`."""

    def _make_params(self, rngs: nnx.Rngs) -> None:
        names = ("query_kernel", "key_kernel") if self.project_keys else ("query_kernel",)
        for name, width in zip(names, self._widths()):
            self._add_kernel(name, rngs, self.kernel_init, (width, self.features))
        self._add_vector("vector", rngs, self.kernel_init, self.features)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ConcatScore(learned.ConcatScoreBase, LearnedScore):
    """Computes `scores.concat`, `v · tanh([q; k] W)`."""

    def _make_params(self, rngs: nnx.Rngs) -> None:
        shape = sum(self._widths()), self.features  # (d + e, h)
        self._add_kernel("kernel", rngs, self.kernel_init, shape)
        self._add_vector("vector", rngs, self.kernel_init, self.features)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BilinearScore(learned.BilinearScoreBase, LearnedScore):
    """Computes `scores.bilinear`, `f(q W k + b)`."""

    def _make_params(self, rngs: nnx.Rngs) -> None:
        self._add_kernel("kernel", rngs, self.kernel_init, self._widths())
        if self.use_bias:
            self._add_param("bias", rngs, nnx.initializers.zeros, ())


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class TrilinearScore(learned.TrilinearScoreBase, LearnedScore):
    """Computes `scores.trilinear`, `w · [q; k; q * k]`, of queries and keys of one width."""

    def _make_params(self, rngs: nnx.Rngs) -> None:
        for name in ("query_vector", "key_vector", "product_vector"):
            self._add_vector(name, rngs, self.kernel_init, self.in_features)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LearnedPositions(learned.LearnedPositionsBase, Shell):
    """Holds a learned vector for each position; `positions(length)` returns `(t, features)`."""

    metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        shape = self.max_length, self.features
        self._add_param("embedding", rngs, self.embedding_init, shape, self.metadata)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RelativeBias(learned.RelativeBiasBase, Shell):
    """Holds a learned bias for each head and bucket of distances; `bias()` returns the function."""

    metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        shape = self.num_buckets, self.num_heads
        self._add_param("embedding", rngs, self.embedding_init, shape, self.metadata)
