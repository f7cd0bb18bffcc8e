"""Classifiers of images, pixels in [0, 1], to logits `(b, classes)`.

Images are `(b, height, width)`, or `(b, height, width, 3)` in colour.

    MLP                 784 -> dense, ReLU -> dense
    patch attention     patches -> scaled dot-product self-attention -> ReLU -> dense
    patch Transformer   patches + positions -> encoder blocks -> attention pooling -> dense

Source: the first two are a tutorial's, on MNIST. The last is the encoder of Vaswani et al. 2017
(arXiv:1706.03762) on patches, as in Dosovitskiy et al. 2021 (arXiv:2010.11929), with attention
pooling instead of a class token.
"""

import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from flax_attn.attention import (
    Across,
    AttentionPooling,
    EncoderBlock,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    SelfAttention,
)
from flax_attn.models.initializers import torch
from flax_attn.models.text import ClassOutputs
from flax_attn.types import Options

Pixels = Float[Array, "b height width *channels"]


class MLP(nn.Module):
    """Two dense layers: 623,290 parameters on images of 28 x 28 pixels.

    Attributes:
        num_classes: decided by the data.
        hidden_features: width of the hidden layer.
    """

    num_classes: int
    hidden_features: int = 784

    @nn.compact
    def __call__(self, inputs: Pixels, *, train: bool = False) -> ClassOutputs:
        chex.assert_rank(inputs, {3, 4})
        pixels = inputs.reshape(inputs.shape[0], -1)  # (b, pixels)
        hidden = nn.relu(torch.dense(self.hidden_features, pixels.shape[1], "hidden")(pixels))
        logits = torch.dense(self.num_classes, self.hidden_features, "logits")(hidden)
        return logits, {}


class PatchAttention(nn.Module):
    """One self-attention between the patches of an image, as wide as a patch.

    It has 15,200 parameters with patches of 7 x 7 pixels.

    Attributes:
        num_classes: decided by the data.
        patch_size: pixels along a side of a patch.
    """

    num_classes: int
    patch_size: int = 7

    @nn.compact
    def __call__(self, inputs: Pixels, *, train: bool = False) -> ClassOutputs:
        chex.assert_rank(inputs, {3, 4})
        patches = cut_patches(inputs, self.patch_size)  # (b, patches, width)
        width = patches.shape[-1]
        init: Options = {"kernel_init": torch.kernel, "bias_init": torch.bias(width)}
        attention = SelfAttention(width, width, use_bias=True, **init, name="attention")
        context, weights = attention(patches)  # (b, patches, width), (b, patches, patches)
        x = nn.relu(context).reshape(inputs.shape[0], -1)  # (b, patches width)
        logits = torch.dense(self.num_classes, x.shape[1], "logits")(x)  # (b, classes)
        return logits, {"attention": {"attention": weights}}


class PatchTransformer(nn.Module):
    """A Transformer encoder over the patches of an image, pooled by attention.

    Attributes:
        num_classes: decided by the data.
        patch_size: pixels along a side of a patch.
        features: width of the blocks.
        num_heads, num_blocks: of the encoder; blocks are pre-norm.
        hidden_features: width of the feed-forward networks.
        dropout_rate: share of each part's outputs that are dropped in training.
        max_shift: the largest number of pixels by which images are moved in training, along each
            axis.
        across: cuts the patches over devices, as in `attend`.
    """

    num_classes: int
    patch_size: int = 4
    features: int = 64
    num_heads: int = 4
    num_blocks: int = 3
    hidden_features: int = 128
    dropout_rate: float = 0.1
    max_shift: int = 0
    across: Across | None = None

    @nn.compact
    def __call__(self, inputs: Pixels, *, train: bool = False) -> ClassOutputs:
        chex.assert_rank(inputs, {3, 4})
        if train and self.max_shift:
            inputs = shift(self.make_rng("dropout"), inputs, self.max_shift)
        patches = cut_patches(inputs, self.patch_size)  # (b, patches, width)
        length = patches.shape[1]
        positions = LearnedPositions(length, self.features, name="positions")(length)
        x = nn.Dense(self.features, name="patches")(patches) + positions[None]  # (b, t, d)
        attention = {}
        for i in range(self.num_blocks):
            name = f"attention{i}"
            self_attention = MultiHeadAttention(self.num_heads, across=self.across, name=name)
            name = f"feed_forward{i}"
            network = FeedForward(self.hidden_features, nn.gelu, across=self.across, name=name)
            options = {"dropout_rate": self.dropout_rate, "name": f"block{i}"}
            block = EncoderBlock(self_attention, network, **options)
            x, attention[f"block{i}"] = block(x, train=train, need_weights=not train)
        x = nn.LayerNorm(name="norm")(x)  # (b, t, d)
        context, attention["pooling"] = AttentionPooling(name="pooling")(x)  # (b, d), (b, t)
        return nn.Dense(self.num_classes, name="logits")(context), {"attention": attention}


def shift(key: Key[Array, ""], images: Pixels, limit: int) -> Pixels:
    """Moves every image by up to `limit` pixels along each axis, with zeros beside it."""
    of_channels = images.ndim - 3
    padded = jnp.pad(images, ((0, 0), (limit, limit), (limit, limit)) + ((0, 0),) * of_channels)
    starts = jax.random.randint(key, (len(images), 2), 0, 2 * limit + 1)  # (b, 2)
    starts = jnp.pad(starts, ((0, 0), (0, of_channels)))  # (b, 2 or 3)
    cut = lambda image, start: jax.lax.dynamic_slice(image, start, images.shape[1:])
    return jax.vmap(cut)(padded, starts)  # (b, height, width, ...)


def cut_patches(images: Pixels, size: int) -> Float[Array, "b patches pixels"]:
    """Cuts patches of `size x size` pixels, row by row; channels, if there are any, come last."""
    batch, height, width, *channels = images.shape
    if height % size or width % size:
        raise ValueError(f"expected a patch_size that divides {height}x{width} pixels, got {size}")
    patches = images.reshape(batch, height // size, size, width // size, size, *channels)
    return jnp.swapaxes(patches, 2, 3).reshape(batch, -1, size * size * math.prod(channels))
