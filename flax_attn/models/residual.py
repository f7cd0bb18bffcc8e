"""Residual convolutions and attention in turn: the shapes task down to its noise.

    x -> relu(conv) -> block -> [relu(x + attention(x)) -> block] * num_attentions -> conv
    block(x) = relu(x + conv(relu(conv(x))))

Source: the residual blocks of He et al. 2016 (arXiv:1512.03385), equation 1, along a sequence.
Between them is the attention layer of François Fleuret's attention on synthetic sequences, scaled
and residual.

The residual connection carries a position's own value, so attention only has to fetch its partner's
height. The task by location needs two attention layers: one counts the shapes to the left, the
other fetches the partner's height.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention import SelfAttention
from flax_attn.models.cnn import append_positions
from flax_attn.models.convolution import Conv1D
from flax_attn.models.forward import SignalOutputs


class ResidualBlock(nn.Module):
    """`relu(x + conv(relu(conv(x))))`; the width stays as it is."""

    kernel_size: int

    @nn.compact
    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        hidden = nn.relu(Conv1D(x.shape[-1], self.kernel_size, name="conv1")(x))  # (b, t, d)
        return nn.relu(x + Conv1D(x.shape[-1], self.kernel_size, name="conv2")(hidden))  # (b, t, d)


class ResidualAttention(nn.Module):
    """Residual convolutions and scaled dot-product self-attention in turn.

    It has 95,169 parameters at the defaults.

    Attributes:
        features: channels of all layers but the last, which has one; also the width of the values.
        kernel_size: taps of every convolution.
        key_features: width of queries and keys.
        num_attentions: attention layers, each with a residual block after it.
        binary_positions: whether the binary digits of the position are added as channels.
        num_classes: channels of the output: 1 for a signal or a number, or one a class.
        padded: whether inputs have NaN after the ends of shorter ones. They are masked, and every
            output is the mean over the positions up to the end.
    """

    features: int = 64
    kernel_size: int = 5
    key_features: int = 64
    num_attentions: int = 1
    binary_positions: bool = False
    num_classes: int = 1
    padded: bool = False

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t d"], *, train: bool = False) -> SignalOutputs:
        mask = ~jnp.isnan(inputs).any(axis=-1) if self.padded else None  # (b, t)
        lengths = None if mask is None else mask.sum(axis=-1)  # (b,)
        hide = lambda x: x if mask is None else jnp.where(mask[..., None], x, 0)
        x = append_positions(inputs) if self.binary_positions else inputs
        x = nn.relu(Conv1D(self.features, self.kernel_size, name="conv_in")(hide(x)))  # (b, t, d)
        x = hide(ResidualBlock(self.kernel_size, name="block0")(hide(x)))  # (b, t, d)
        attention = {}
        for i in range(1, self.num_attentions + 1):
            name = f"attention{i}"
            attend = SelfAttention(self.key_features, self.features, name=name)
            context, attention[name] = attend(x, lengths=lengths)  # (b, t, d), (b, t, t)
            block = ResidualBlock(self.kernel_size, name=f"block{i}")
            x = hide(block(hide(nn.relu(x + context))))  # (b, t, d)
        outputs = hide(Conv1D(self.num_classes, self.kernel_size, name="conv_out")(x))
        chex.assert_shape(outputs, (*inputs.shape[:2], self.num_classes))
        if lengths is not None:
            means = outputs.sum(axis=1, keepdims=True) / lengths[:, None, None]  # (b, 1, classes)
            outputs = jnp.broadcast_to(means, outputs.shape)  # (b, t, classes)
        return outputs, {"attention": attention}
