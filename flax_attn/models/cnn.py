"""Convolutional models of the shapes task, without and with attention.

    CNN             x -> [conv, relu] * 4 -> conv
    CNN + attention x -> [conv, relu] * 2 -> relu(attention) -> conv, relu -> conv

Source: François Fleuret's attention on synthetic sequences (2020). Five kernels of 5 taps see
2 * 10 + 1 = 21 points around each position, so the CNN cannot see a shape's partner. One attention
layer sees all points.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention import SelfAttention, binary_digits
from flax_attn.models.convolution import Conv1D
from flax_attn.models.forward import SignalOutputs
from flax_attn.models.initializers import torch_kernel


class CNN(nn.Module):
    """Five convolutions with ReLU between them: 62,337 parameters at the defaults.

    Attributes:
        features: channels of all layers but the last, which has one.
        kernel_size: taps of every convolution.
        num_layers: convolutions.
        binary_positions: whether the binary digits of the position are added as channels.
        num_classes: channels of the output: 1 for a signal or a number, or one a class.
    """

    features: int = 64
    kernel_size: int = 5
    num_layers: int = 5
    binary_positions: bool = False
    num_classes: int = 1

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t d"], *, train: bool = False) -> SignalOutputs:
        x = append_positions(inputs) if self.binary_positions else inputs
        for i in range(1, self.num_layers):
            x = nn.relu(Conv1D(self.features, self.kernel_size, name=f"conv{i}")(x))  # (b, t, d)
        outputs = Conv1D(self.num_classes, self.kernel_size, name=f"conv{self.num_layers}")(x)
        chex.assert_shape(outputs, (*inputs.shape[:2], self.num_classes))
        return outputs, {}


class CNNAttention(nn.Module):
    """Four convolutions, with unscaled dot-product self-attention after the second.

    It has 58,177 parameters at the defaults.

    Attributes:
        features: channels of all layers but the last, which has one; also the width of the values.
        kernel_size: taps of every convolution.
        key_features: width of queries and keys.
        scale: factor on the dot products; 1 as published; None for `1 / sqrt(key_features)`.
        binary_positions: whether the binary digits of the position are added as channels.
        num_classes: channels of the output: 1 for a signal or a number, or one a class.
    """

    features: int = 64
    kernel_size: int = 5
    key_features: int = 96
    scale: float | None = 1.0
    binary_positions: bool = False
    num_classes: int = 1

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t d"], *, train: bool = False) -> SignalOutputs:
        x = append_positions(inputs) if self.binary_positions else inputs
        for i in (1, 2):
            x = nn.relu(Conv1D(self.features, self.kernel_size, name=f"conv{i}")(x))  # (b, t, d)
        attention = SelfAttention(
            self.key_features, self.features, self.scale, kernel_init=torch_kernel, name="attention"
        )
        context, weights = attention(x)  # (b, t, d), (b, t, t)
        x = nn.relu(context)
        x = nn.relu(Conv1D(self.features, self.kernel_size, name="conv3")(x))  # (b, t, d)
        outputs = Conv1D(self.num_classes, self.kernel_size, name="conv4")(x)  # (b, t, num_classes)
        chex.assert_shape(outputs, (*inputs.shape[:2], self.num_classes))
        return outputs, {"attention": {"attention": weights}}


def append_positions(inputs: Float[Array, "b t c"]) -> Float[Array, "b t _"]:
    """Appends the binary digits of each position as channels."""
    digits = binary_digits(inputs.shape[1]).astype(inputs.dtype)  # (t, digits)
    digits = jnp.broadcast_to(digits, (inputs.shape[0], *digits.shape))  # (b, t, digits)
    return jnp.concatenate([inputs, digits], axis=-1)  # (b, t, c + digits)
