"""Attention in one head, as modules of `flax.nnx`."""

import dataclasses
from dataclasses import InitVar
from typing import ClassVar

from flax import nnx

from flax_attn.attention.layers import attention
from flax_attn.attention.nnx.learned import BilinearScore
from flax_attn.attention.nnx.shell import NO_METADATA, Metadata, Shell


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Attention(attention.AttentionBase, Shell):
    """Attention without projections, `normalizer(score(query, key) + bias) value`.

    A score may be a module, such as `AdditiveScore(64, in_features=16, rngs=rngs)`.
    """

    rngs: InitVar[nnx.Rngs | None] = None


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SelfAttention(attention.SelfAttentionBase, Shell):
    """Single-head dot-product self-attention."""

    in_features: int
    kernel_metadata: Metadata = NO_METADATA
    bias_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        for name, size in self._sizes().items():
            kernel, bias = (self.in_features, size), (size,)
            self._add_param(f"{name}_kernel", rngs, self.kernel_init, kernel, self.kernel_metadata)
            if self.use_bias:
                self._add_param(f"{name}_bias", rngs, self.bias_init, bias, self.bias_metadata)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class HardAttention(attention.HardAttentionBase, Shell):
    """Every query attends to one key, in training to a drawn one, from the stream `sample`."""

    rngs: InitVar[nnx.Rngs | None] = None
    drawn: ClassVar[str] = "sample"


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class LocalAttention(attention.LocalAttentionBase, Shell):
    """Query `t` attends to keys `t - D` to `t + D` (local-m).

    Attributes:
        in_features, in_key_features: widths of queries and keys, for the `BilinearScore` of a layer
            without a score; None for equal ones.
    """

    in_features: int
    in_key_features: int | None = None

    def _make_params(self, rngs: nnx.Rngs) -> None:
        self.score = _own_score(self, rngs)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class PredictiveLocalAttention(attention.PredictiveLocalAttentionBase, Shell):
    """Each query predicts a position, and attends to a window of keys around it (local-p).

    Attributes:
        in_features, in_key_features: as in `LocalAttention`.
    """

    in_features: int
    in_key_features: int | None = None
    kernel_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        self.score = _own_score(self, rngs)
        self._add_dense("hidden", (self.in_features, self.features), rngs, use_bias=False)
        self._add_dense("place", (self.features, 1), rngs, use_bias=False)


def _own_score(layer: LocalAttention | PredictiveLocalAttention, rngs: nnx.Rngs):
    if layer.score is not None:
        return layer.score
    return nnx.data(
        BilinearScore(
            in_features=layer.in_features,
            in_key_features=layer.in_key_features,
            param_dtype=layer.param_dtype,
            rngs=rngs,
        )
    )
