"""Attention of a recurrent network over the features of its input."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jaxtyping import Array, Float, Key

from flax_attn.attention.core import Attended
from flax_attn.attention.normalizers import masked_softmax


class InputAttentionCell(nn.RNNCellBase):
    """A recurrent cell that weighs the features of its input by what it remembers.

        a_t = sigmoid(W_ha h_{t-1} + W_xa x_t + b_a),   g_t = softmax(alpha a_t)
        h_t = phi(W_hh h_{t-1} + W_xh (x_t * g_t) + b_h),   y_t = phi_y(W_hy h_t)

    Source: the idea is the input attention of Qin et al. 2017 (arXiv:1704.02971), section 3.2.1; these equations are a
    tutorial's. There alpha is 1: since `a` lies between 0 and 1, one of n weights is then at most `e / (e + n - 1)`.

    Attributes:
        features: width of the state.
        out_features: width of `y`.
        alpha: sharpness of the weights.
        activation, out_activation: `phi` and `phi_y`.
        kernel_init: initialiser of the kernels.
    """

    features: int
    out_features: int
    alpha: float = 1.0
    activation: Callable[[Array], Array] = jnp.tanh
    out_activation: Callable[[Array], Array] = lambda y: y
    kernel_init: Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*b h"], inputs: Float[Array, "*b d"]
    ) -> tuple[Float[Array, "*b h"], Attended]:
        """One step: the next state, and `Attended` with the output `y` as context and the weights `g`, `(..., d)`."""
        dense = lambda features, name, use_bias: nn.Dense(
            features, use_bias=use_bias, kernel_init=self.kernel_init, dtype=inputs.dtype, name=name
        )
        width = inputs.shape[-1]
        gates = nn.sigmoid(
            dense(width, "state_gate", False)(carry) + dense(width, "input_gate", True)(inputs)
        )
        weights = masked_softmax(self.alpha * gates).astype(inputs.dtype)
        state = self.activation(
            dense(self.features, "state", False)(carry)
            + dense(self.features, "input", True)(inputs * weights)
        )
        output = self.out_activation(dense(self.out_features, "output", False)(state))
        return state.astype(carry.dtype), Attended(output, weights)  # a carry keeps its dtype

    @nn.nowrap
    def initialize_carry(
        self, rng: Key[Array, ""], input_shape: tuple[int, ...]
    ) -> Float[Array, "*b h"]:
        """The state before the first step: zeros."""
        return jnp.zeros((*input_shape[:-1], self.features))

    @property
    def num_feature_axes(self) -> int:
        return 1
