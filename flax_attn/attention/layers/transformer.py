"""Blocks of the Transformer: attention and a feed-forward network, each with a residual connection and layer normalisation.

    pre-norm    x + f(norm(x))         (trains without a warm-up; a last normalisation belongs after the last block)
    post-norm   norm(x + f(x))         (as published)

Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.1; Xiong et al. 2020 (arXiv:2002.04745) for pre-norm.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention.cache import KeyValueCache
from flax_attn.attention.core import Attended
from flax_attn.attention.layers.multi_head import MultiHeadAttention, without_padding


class FeedForward(nn.Module):
    """Two dense layers at each position, `W_2 f(W_1 x + b_1) + b_2`.

    Attributes:
        features: width of the hidden layer.
        activation: `f`.
        dropout_rate: share of the hidden units that are dropped in training.
    """

    features: int
    activation: Callable[[Array], Array] = nn.relu
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "*b t d"], *, train: bool = False
    ) -> Float[Array, "*b t d"]:
        hidden = self.activation(nn.Dense(self.features, dtype=inputs.dtype, name="hidden")(inputs))
        hidden = nn.Dropout(self.dropout_rate, deterministic=not train)(hidden)
        return nn.Dense(inputs.shape[-1], dtype=inputs.dtype, name="out")(hidden)


class EncoderBlock(nn.Module):
    """Self-attention and a feed-forward network.

    Attributes:
        attention: the self-attention, such as `MultiHeadAttention(8)`.
        feed_forward: the network, such as `FeedForward(2048)`.
        pre_norm: whether normalisation stands before each part, or after the residual connection.
        dropout_rate: share of each part's outputs that are dropped in training.
    """

    attention: MultiHeadAttention
    feed_forward: nn.Module
    pre_norm: bool = True
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        lengths: ArrayLike | None = None,
        train: bool = False,
        **options: Any,
    ) -> Attended:
        """The outputs `(..., t, d)` as context, and the weights of the attention; `lengths` `(...)` says how many are real.

        `options` are further arguments of the attention, such as `causal`, `window`, `mask`, `bias` and `need_weights`.
        """
        inputs = without_padding(inputs, lengths)
        add = lambda x, function, name: residual(
            x, function, name, self.pre_norm, self.dropout_rate, train
        )
        attend = lambda x: self.attention(
            x, query_lengths=lengths, key_lengths=lengths, train=train, **options
        )
        x, weights = add(inputs, attend, "attention_norm")
        x, _ = add(x, lambda x: (self.feed_forward(x, train=train), None), "feed_forward_norm")
        return Attended(x, weights)


class Decoded(NamedTuple):
    """What a decoder block returns: outputs `(..., t, d)`, weights on the targets and on the memory, and the cache or None."""

    context: Float[Array, "*b t d"]
    weights: Float[Array, "..."] | None
    cross_weights: Float[Array, "..."] | None
    cache: KeyValueCache | None


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to a memory, and a feed-forward network.

    Attributes:
        attention: the self-attention.
        cross_attention: the attention to the memory.
        feed_forward: the network.
        pre_norm, dropout_rate: as in `EncoderBlock`.
    """

    attention: MultiHeadAttention
    cross_attention: MultiHeadAttention
    feed_forward: nn.Module
    pre_norm: bool = True
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        memory: Float[Array, "*b s _"] | KeyValueCache,
        *,
        lengths: ArrayLike | None = None,
        memory_lengths: ArrayLike | None = None,
        memory_mask: ArrayLike | Callable[..., Array] | None = None,
        cache: KeyValueCache | None = None,
        train: bool = False,
        need_weights: bool = True,
        **options: Any,
    ) -> Decoded:
        """Decodes `t` tokens: all of a target, or with a `cache` those that follow what is in it.

        Args:
            memory: what the encoder returned, or the cache of its keys and values from `cross_attention.extend`, which
                need then not be projected at every step.
            lengths, memory_lengths: `(...)`, how many tokens of each are real; a cached memory knows its own, and takes none.
            memory_mask: the mask of the cross-attention.
            need_weights: of both attentions.
            options: further arguments of the self-attention, such as `window`, `mask` and `bias`.
        """
        inputs = without_padding(inputs, lengths)
        add = lambda x, function, name: residual(
            x, function, name, self.pre_norm, self.dropout_rate, train
        )
        common: dict[str, Any] = {"train": train, "need_weights": need_weights}

        def attend(x: Array) -> tuple[Array, tuple]:
            if cache is None:
                attended = self.attention(
                    x, query_lengths=lengths, key_lengths=lengths, causal=True, **common, **options
                )
                return attended.context, (attended.weights, None)
            attended, extended = self.attention.decode(
                x, cache, lengths=lengths, **common, **options
            )
            return attended.context, (attended.weights, extended)

        def attend_to_memory(x: Array) -> Attended:
            read: dict[str, Any] = (
                {"cache": memory} if isinstance(memory, KeyValueCache) else {"key": memory}
            )
            return self.cross_attention(
                x,
                **read,
                mask=memory_mask,
                query_lengths=lengths,
                key_lengths=memory_lengths,
                **common,
            )

        x, (weights, cache) = add(inputs, attend, "attention_norm")
        x, cross_weights = add(x, attend_to_memory, "cross_attention_norm")
        x, _ = add(x, lambda x: (self.feed_forward(x, train=train), None), "feed_forward_norm")
        return Decoded(x, weights, cross_weights, cache)


def residual(
    x: Array, function: Callable, name: str, pre_norm: bool, dropout_rate: float, train: bool
) -> tuple[Array, Any]:
    """`x + f(norm(x))` or `norm(x + f(x))`, for `function(x) -> (f(x), anything)`, which comes back too."""
    norm, dropout = (
        nn.LayerNorm(dtype=x.dtype, name=name),
        nn.Dropout(dropout_rate, deterministic=not train),
    )
    outputs, rest = function(norm(x) if pre_norm else x)
    x = x + dropout(outputs)
    return x if pre_norm else norm(x), rest
