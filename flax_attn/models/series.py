"""A recurrent network with attention over the series of its input."""

import chex
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention import Attended, InputAttentionCell
from flax_attn.models.forward import SignalOutputs


class InputAttentionRNN(nn.Module):
    """The recurrent cell with input attention, over all steps.

    Its weights say which series decides the output.

    Source: a tutorial's input-attention RNN, see `attention.InputAttentionCell`.

    Attributes:
        features: width of the state.
        alpha: sharpness of the weights.
        num_classes: channels of the output: 1 for a signal or a number, or one a class.
    """

    features: int = 32
    alpha: float = 10.0
    num_classes: int = 1

    def setup(self):
        self.cell = InputAttentionCell(self.features, self.num_classes, self.alpha)

    def __call__(self, inputs: Float[Array, "b t series"], *, train: bool = False) -> SignalOutputs:
        scan = nn.scan(
            lambda cell, state, x: cell(state, x),
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,  # the axis of steps
            out_axes=1,
        )
        _, attended = scan(self.cell, self.start(inputs), inputs)
        chex.assert_shape(attended.context, (*inputs.shape[:2], self.num_classes))
        return attended.context, {"attention": {"input": attended.weights}}

    def start(self, inputs: Float[Array, "b t series"]) -> Float[Array, "b h"]:
        """Makes the state before the first step."""
        return jnp.zeros((inputs.shape[0], self.features), inputs.dtype)  # (b, h)

    def step(
        self, state: Float[Array, "b h"], inputs: Float[Array, "b series"]
    ) -> tuple[Float[Array, "b h"], Attended]:
        """Computes one step alone: the next state, and what was attended to."""
        return self.cell(state, inputs)
