"""Attention of a recurrent network over the features of its input."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Key

from flax_attn.attention import lens
from flax_attn.attention.arrays import as_dtype_of
from flax_attn.attention.checks import as_number, check_size
from flax_attn.attention.core import Attended
from flax_attn.attention.layers.attention import as_input
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.types import Options


class InputAttentionCell(nn.RNNCellBase):
    """A recurrent cell that gives a weight to each feature of its input.

        a_t = sigmoid(W_ha h_{t-1} + W_xa x_t + b_a),   g_t = softmax(alpha a_t)
        h_t = phi(W_hh h_{t-1} + W_xh (x_t * g_t) + b_h),   y_t = phi_y(W_hy h_t)

    The weights `g_t` depend on the state `h_{t-1}` and on the input `x_t`.

    Source: the idea is from Qin et al. 2017 (arXiv:1704.02971), section 3.2.1; the equations are
    from a tutorial, with `alpha = 1`. Since `a_t` is between 0 and 1, one of n weights is then at
    most `e / (e + n - 1)`, with Euler's number `e`.

    Attributes:
        features: width of the state.
        out_features: width of `y`.
        alpha: factor of the scores; with a larger one the weights differ more.
        activation, out_activation: `phi` and `phi_y`.
        kernel_init: initialiser of the kernels.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
    """

    features: int
    out_features: int
    alpha: ArrayLike = 1.0
    activation: Callable[[Array], Array] = jnp.tanh
    out_activation: Callable[[Array], Array] = lambda y: y
    kernel_init: Initializer = nn.initializers.lecun_normal()
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        check_size("features", self.features)
        check_size("out_features", self.out_features)
        as_number("alpha to be a number", self.alpha)
        super().__post_init__()

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*b h"], inputs: Float[Array, "*b d"]
    ) -> tuple[Float[Array, "*b h"], Attended]:
        """One step. Returns the next state and `Attended`.

        The context is the output `y` `(..., out_features)`, the weights are `g` `(..., d)`.
        """
        inputs = as_input("inputs", inputs, self.dtype)
        options: Options = {
            "kernel_init": self.kernel_init,
            "dtype": inputs.dtype,
            "param_dtype": self.param_dtype,
        }
        dense = lambda features, name, use_bias: nn.Dense(
            features, use_bias=use_bias, name=name, **options
        )
        width = inputs.shape[-1]
        gates = nn.sigmoid(
            dense(width, "state_gate", False)(carry) + dense(width, "input_gate", True)(inputs)
        )
        scores = as_dtype_of(gates, as_number("alpha to be a number", self.alpha)) * gates
        weights = lens.normalized(masked_softmax, scores).astype(inputs.dtype)
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
