"""Attention without queries, as modules of `flax.nnx`."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx
from flax.typing import Initializer
from jaxtyping import Array, Float

from flax_attn.attention.layers import pooling
from flax_attn.attention.nnx.shell import NO_METADATA, Metadata, Shell


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class AttentionPooling(pooling.AttentionPoolingBase, Shell):
    """One weighted sum over the positions of a sequence."""

    in_features: int
    kernel_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        width, hidden = self.in_features, self.hidden_features
        if hidden is not None:
            self._add_dense("hidden", (width, hidden), rngs, use_bias=self.use_bias)
            width = hidden
        self._add_dense("energy", (width, 1), rngs, use_bias=self.use_bias)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class StructuredSelfAttention(pooling.StructuredSelfAttentionBase, Shell):
    """Several weighted sums over the positions of a sequence, its hops."""

    in_features: int
    kernel_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        hidden = self.hidden_features
        self._add_dense("hidden", (self.in_features, hidden), rngs, use_bias=False)
        self._add_dense("energies", (hidden, self.num_hops), rngs, use_bias=False)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class InputAttentionCell(pooling.InputAttentionCellBase, Shell, nnx.RNNCellBase):
    """A recurrent cell that gives a weight to each feature of its input, for `nnx.RNN`."""

    in_features: int
    kernel_metadata: Metadata = NO_METADATA

    def _make_params(self, rngs: nnx.Rngs) -> None:
        width, state = self.in_features, self.features
        self._add_dense("state_gate", (state, width), rngs, use_bias=False)
        self._add_dense("input_gate", (width, width), rngs)
        self._add_dense("state", (state, state), rngs, use_bias=False)
        self._add_dense("input", (width, state), rngs)
        self._add_dense("output", (state, self.out_features), rngs, use_bias=False)

    def initialize_carry(
        self,
        input_shape: Sequence[int],
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        carry_init: Initializer | None = None,
    ) -> Float[Array, "*b h"]:
        """Makes the state before the first step: zeros."""
        del rngs, carry_init
        return jnp.zeros((*input_shape[:-1], self.features))

    @property
    def num_feature_axes(self) -> int:
        return 1
