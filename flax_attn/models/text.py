"""Classifiers of texts: tokens `(b, t)` and their lengths `(b,)` to logits `(b, classes)`.

    RNN attention         softmax(e)-weighted sum of RNN states, e_t = v · h_t + b
    self-attentive GRU    mean over positions of additive attention of the states on themselves
    structured            r weighted sums of BiLSTM states, each with weights of its own

Padding is masked everywhere.

Source: two tutorials, for attention over tanh RNN states on AG News and for MLP attention over GRU
states on SST; Lin et al. 2017 (arXiv:1703.03130) for the structured one.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from flax_attn.attention import (
    AdditiveScore,
    Attention,
    AttentionPooling,
    StructuredSelfAttention,
    diversity_penalty,
    masks,
)
from flax_attn.models.forward import TokenInputs
from flax_attn.models.initializers import Initialization, initialization
from flax_attn.models.recurrent import Recurrent
from flax_attn.types import Options

ClassOutputs = tuple[Float[Array, "b classes"], dict]


class RNNAttention(nn.Module):
    """Embedding, recurrent layers, attention pooling and two dense layers.

    It has 542,873 parameters on 5,000 tokens and 4 classes.

    Attributes:
        vocabulary_size, num_classes: decided by the data.
        embedding_features: width of the embedding.
        cell, features, num_layers, bidirectional: of the recurrence, as in `Recurrent`.
        hidden_features: width of the dense layer before the last.
        dropout_rate: share of that layer's outputs that are dropped in training.
        embedding_dropout_rate: share of the embedding's outputs, and of those between layers, that
            are dropped in training.
        initialization: `torch` or `flax`.
    """

    vocabulary_size: int
    num_classes: int
    embedding_features: int = 100
    cell: str = "rnn"
    features: int = 128
    num_layers: int = 1
    bidirectional: bool = False
    hidden_features: int = 100
    dropout_rate: float = 0.1
    embedding_dropout_rate: float = 0.0
    initialization: str = "torch"

    @nn.compact
    def __call__(self, inputs: TokenInputs, *, train: bool = False) -> ClassOutputs:
        init, lengths = initialization(self.initialization), inputs["lengths"]
        x, mask = embed(inputs, self.vocabulary_size, self.embedding_features, init)
        x = nn.Dropout(self.embedding_dropout_rate, deterministic=not train)(x)
        options: Options = {"initialization": init}
        options |= {"dropout_rate": self.embedding_dropout_rate}
        sizes = self.features, self.num_layers, self.bidirectional
        recurrent = Recurrent(self.cell, *sizes, **options, name="recurrent")
        x = recurrent(x, lengths, train=train)  # (b, t, d)
        pooling = AttentionPooling(kernel_init=init.kernel, name="attention")
        context, weights = pooling(x, mask=mask)  # (b, d), (b, t)
        x = init.dense(self.hidden_features, context.shape[-1], "hidden")(context)  # (b, hidden)
        x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
        logits = init.dense(self.num_classes, self.hidden_features, "logits")(x)  # (b, classes)
        chex.assert_shape(logits, (lengths.shape[0], self.num_classes))
        return logits, {"attention": {"attention": weights}}


class GRUAttention(nn.Module):
    """Two GRU layers without biases, additive attention of their states on themselves, the mean.

    It has 1,877,639 parameters on SST.

    Attributes:
        vocabulary_size, num_classes: decided by the data.
        embedding_features: width of the embedding.
        features: width of the states, and of the hidden layer of the score.
        num_layers: GRU layers.
        dropout_rate: share of the weights, and of the outputs between layers, that are dropped in
            training.
        initialization: `torch` or `flax`.
    """

    vocabulary_size: int
    num_classes: int
    embedding_features: int = 100
    features: int = 128
    num_layers: int = 2
    dropout_rate: float = 0.0
    initialization: str = "torch"

    @nn.compact
    def __call__(self, inputs: TokenInputs, *, train: bool = False) -> ClassOutputs:
        init, lengths = initialization(self.initialization), inputs["lengths"]
        x, mask = embed(inputs, self.vocabulary_size, self.embedding_features, init)
        options: Options = {"initialization": init, "dropout_rate": self.dropout_rate}
        recurrent = Recurrent(
            "gru", self.features, self.num_layers, use_bias=False, **options, name="recurrent"
        )
        x = recurrent(x, lengths, train=train)  # (b, t, d)
        score = AdditiveScore(self.features, kernel_init=init.kernel, name="score")
        attention = Attention(score, dropout_rate=self.dropout_rate, name="attention")
        both_real = mask[:, None, :] & mask[:, :, None]  # padding attends to nothing
        context, weights = attention(x, x, mask=both_real, train=train)  # (b, t, d), (b, t, t)
        mean = context.sum(axis=1) / jnp.maximum(lengths, 1)[:, None]  # (b, d)
        logits = init.dense(self.num_classes, self.features, "logits")(mean)  # (b, classes)
        chex.assert_shape(logits, (lengths.shape[0], self.num_classes))
        return logits, {"attention": {"attention": weights}}


class StructuredAttention(nn.Module):
    """A bidirectional LSTM and structured self-attention; the contexts of all hops are classified.

    `aux["penalty"]` is the squared penalty `||A A^T - I||_F^2` of each row of the batch, times its
    weight. It is added to the loss.

    Attributes:
        vocabulary_size, num_classes: decided by the data.
        embedding_features: width of the embedding.
        features: width of the states in each direction.
        attention_features, num_hops: of the attention, `d_a` and `r` of the source.
        hidden_features: width of the dense layer before the last.
        dropout_rate: share of the embedding's and of that layer's outputs that are dropped in
            training.
        penalty: weight of the penalty.
        initialization: `torch` or `flax`.
    """

    vocabulary_size: int
    num_classes: int
    embedding_features: int = 100
    features: int = 128
    attention_features: int = 64
    num_hops: int = 4
    hidden_features: int = 128
    dropout_rate: float = 0.5
    penalty: float = 0.01
    initialization: str = "flax"

    @nn.compact
    def __call__(self, inputs: TokenInputs, *, train: bool = False) -> ClassOutputs:
        init, lengths = initialization(self.initialization), inputs["lengths"]
        dropout = nn.Dropout(self.dropout_rate, deterministic=not train)
        x, mask = embed(inputs, self.vocabulary_size, self.embedding_features, init)
        lstm = Recurrent(
            "lstm", self.features, bidirectional=True, initialization=init, name="recurrent"
        )
        x = lstm(dropout(x), lengths, train=train)  # (b, t, d)
        attention = StructuredSelfAttention(
            self.attention_features, self.num_hops, init.kernel, name="attention"
        )
        context, weights = attention(x, mask=mask)  # (b, r, d), (b, r, t)
        assert weights is not None
        x = dropout(context.reshape(lengths.shape[0], -1))  # (b, r d)
        x = dropout(nn.relu(init.dense(self.hidden_features, x.shape[-1], "hidden")(x)))
        logits = init.dense(self.num_classes, self.hidden_features, "logits")(x)  # (b, classes)
        chex.assert_shape(logits, (lengths.shape[0], self.num_classes))
        penalty = self.penalty * diversity_penalty(weights)  # (b,)
        return logits, {"attention": {"hops": weights}, "penalty": penalty}


def embed(
    inputs: TokenInputs, size: int, features: int, init: Initialization
) -> tuple[Float[Array, "b t d"], Bool[Array, "b t"]]:
    """Embeds the tokens, with zeros at padding. Returns also the mask of real tokens."""
    tokens, lengths = inputs["tokens"], inputs["lengths"]
    chex.assert_rank(tokens, 2)
    chex.assert_shape(lengths, tokens.shape[:1])

    def zero_for_padding(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return init.embedding(key, shape, dtype).at[0].set(0)

    embedding = nn.Embed(size, features, embedding_init=zero_for_padding, name="embedding")
    mask = masks.from_lengths(lengths, tokens.shape[1])[:, 0]  # (b, t)
    return jnp.where(mask[..., None], embedding(tokens), 0), mask  # (b, t, d), (b, t)
