"""Classifiers of texts: tokens `(b, t)` and their lengths `(b,)` to logits `(b, classes)`. Padding is masked everywhere.

    RNN attention         softmax(e)-weighted sum of RNN states, e_t = v · h_t + b
    self-attentive GRU    mean over positions of additive attention of the states on themselves
    structured            r weighted sums of BiLSTM states, each with weights of its own

Source: attention over tanh RNN states for AG News, and MLP attention over GRU states for SST, as two tutorials have them;
Lin et al. 2017 (arXiv:1703.03130) for the structured one.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flax_attn.attention import AdditiveScore, Attention, AttentionPooling, StructuredSelfAttention, diversity_penalty, masks
from flax_attn.models.initializers import Initialization, initialization
from flax_attn.models.recurrent import Recurrent

Outputs = tuple[Float[Array, "b classes"], dict]


class RNNAttention(nn.Module):
    """Embedding, recurrent layers, attention pooling and two dense layers: 542,873 parameters on 5,000 tokens and 4 classes.

    Attributes:
        vocabulary_size, num_classes: decided by the data.
        embedding_features: width of the embedding.
        cell, features, num_layers, bidirectional: of the recurrence, as in `Recurrent`.
        hidden_features: width of the dense layer before the last.
        dropout_rate: share of that layer's outputs that are dropped in training.
        embedding_dropout_rate: share of the embedding's outputs, and of those between layers.
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
    def __call__(self, inputs: dict[str, Int[Array, "..."]], *, train: bool = False) -> Outputs:
        init, lengths = initialization(self.initialization), inputs["lengths"]
        x, mask = embed(inputs, self.vocabulary_size, self.embedding_features, init)
        x = nn.Dropout(self.embedding_dropout_rate, deterministic=not train)(x)
        options = {"initialization": init, "dropout_rate": self.embedding_dropout_rate, "name": "recurrent"}
        x = Recurrent(self.cell, self.features, self.num_layers, self.bidirectional, **options)(x, lengths, train=train)  # (b, t, d)
        pooled = AttentionPooling(kernel_init=init.kernel, name="attention")(x, mask=mask)
        x = init.dense(self.hidden_features, x.shape[-1], "hidden")(pooled.context)
        x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
        logits = init.dense(self.num_classes, self.hidden_features, "logits")(x)
        chex.assert_shape(logits, (len(lengths), self.num_classes))
        return logits, {"attention": {"attention": pooled.weights}}


class GRUAttention(nn.Module):
    """Two GRU layers without biases, additive attention of their states on themselves, the mean: 1,877,639 parameters on SST.

    Attributes:
        vocabulary_size, num_classes: decided by the data.
        embedding_features: width of the embedding.
        features: width of the states, and of the hidden layer of the score.
        num_layers: GRU layers.
        dropout_rate: share of the weights, and of the outputs between layers, that are dropped in training.
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
    def __call__(self, inputs: dict[str, Int[Array, "..."]], *, train: bool = False) -> Outputs:
        init, lengths = initialization(self.initialization), inputs["lengths"]
        x, mask = embed(inputs, self.vocabulary_size, self.embedding_features, init)
        options = {"use_bias": False, "initialization": init, "dropout_rate": self.dropout_rate, "name": "recurrent"}
        x = Recurrent("gru", self.features, self.num_layers, **options)(x, lengths, train=train)  # (b, t, d)
        score = AdditiveScore(self.features, kernel_init=init.kernel, name="score")
        both = mask[:, None, :] & mask[:, :, None]  # positions of padding attend to nothing, and nothing to them
        attended = Attention(score, dropout_rate=self.dropout_rate, name="attention")(x, x, mask=both, train=train)
        mean = attended.context.sum(axis=1) / jnp.maximum(lengths, 1)[:, None]
        logits = init.dense(self.num_classes, self.features, "logits")(mean)
        chex.assert_shape(logits, (len(lengths), self.num_classes))
        return logits, {"attention": {"attention": attended.weights}}


class StructuredAttention(nn.Module):
    """A bidirectional LSTM and structured self-attention, whose hops are joined.

    `aux["penalty"]` is the squared penalty `||A A^T - I||_F^2` of each row, to be added to the loss.

    Attributes:
        vocabulary_size, num_classes: decided by the data.
        embedding_features: width of the embedding.
        features: width of the states in each direction.
        attention_features, num_hops: of the attention, `d_a` and `r` of the source.
        hidden_features: width of the dense layer before the last.
        dropout_rate: share of the embedding's and of that layer's outputs that are dropped in training.
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
    def __call__(self, inputs: dict[str, Int[Array, "..."]], *, train: bool = False) -> Outputs:
        init, lengths = initialization(self.initialization), inputs["lengths"]
        dropout = nn.Dropout(self.dropout_rate, deterministic=not train)
        x, mask = embed(inputs, self.vocabulary_size, self.embedding_features, init)
        x = Recurrent("lstm", self.features, bidirectional=True, initialization=init, name="recurrent")(dropout(x), lengths, train=train)
        pooled = StructuredSelfAttention(self.attention_features, self.num_hops, init.kernel, name="attention")(x, mask=mask)  # (b, r, d)
        assert pooled.weights is not None
        x = pooled.context.reshape(len(lengths), -1)
        x = dropout(nn.relu(init.dense(self.hidden_features, x.shape[-1], "hidden")(dropout(x))))
        logits = init.dense(self.num_classes, self.hidden_features, "logits")(x)
        chex.assert_shape(logits, (len(lengths), self.num_classes))
        return logits, {"attention": {"hops": pooled.weights}, "penalty": self.penalty * diversity_penalty(pooled.weights)}


def embed(
    inputs: dict[str, Int[Array, "..."]], size: int, features: int, init: Initialization
) -> tuple[Float[Array, "b t d"], Bool[Array, "b t"]]:
    """Embeddings of the tokens, that of padding zero, and the mask of those that are real."""
    tokens, lengths = inputs["tokens"], inputs["lengths"]
    chex.assert_rank(tokens, 2)
    chex.assert_shape(lengths, tokens.shape[:1])

    def padding_is_zero(*args) -> Array:
        return init.embedding(*args).at[0].set(0)

    mask = masks.from_lengths(lengths, tokens.shape[1])[:, 0]
    return jnp.where(mask[..., None], nn.Embed(size, features, embedding_init=padding_is_zero, name="embedding")(tokens), 0), mask
