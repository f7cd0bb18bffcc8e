"""The Transformer for translation, from sources `(b, s)` and targets `(b, t)` to logits.

    encoder     x = E[source] sqrt(d) + positions;
                N times: x = x + attention(norm(x)),   x = x + feed_forward(norm(x))
    decoder     the same, causal, with attention to the encoder's outputs between the two

Source: Vaswani et al. 2017 (arXiv:1706.03762), with the norm before each part (Xiong et al. 2020,
arXiv:2002.04745).
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_attn.attention import (
    Across,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    MultiHeadAttention,
    sinusoidal,
)
from flax_attn.attention.arrays import with_rank
from flax_attn.models.forward import TokenInputs
from flax_attn.models.gpt import Caches
from flax_attn.models.translation import TranslationOutputs, embeddings


class TranslationTransformer(nn.Module):
    """Encoder and decoder blocks. Inputs and methods are those of `Seq2Seq`.

    Attributes:
        source_vocabulary_size, target_vocabulary_size: decided by the data.
        features: width of the embeddings and of all blocks.
        num_heads: of every attention.
        num_blocks: of the encoder, and of the decoder.
        hidden_features: width of the hidden layer of the feed-forward networks.
        shared_embeddings: whether source and target have the same embeddings, for a vocabulary that
            they share. The logits are always products with the target's embeddings.
        dropout_rate: share of the embeddings and of each part's outputs that are dropped in
            training.
        attention_dropout_rate: share of the attention weights, and of the hidden units of the
            networks, that are dropped in training.
        across: cuts the sentences over devices, as in `attend`.

    Raises:
        ValueError: shared embeddings, and more tokens in the source than in the target.
    """

    source_vocabulary_size: int
    target_vocabulary_size: int
    features: int = 256
    num_heads: int = 4
    num_blocks: int = 3
    hidden_features: int = 512
    shared_embeddings: bool = False
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.0
    across: Across | None = None

    def setup(self):
        sizes = self.source_vocabulary_size, self.target_vocabulary_size
        self.target_embedding, self.source_embedding = embeddings(
            *sizes, self.features, self.shared_embeddings
        )
        rate = self.attention_dropout_rate
        attention = lambda: MultiHeadAttention(
            self.num_heads, dropout_rate=rate, across=self.across
        )
        network = lambda: FeedForward(self.hidden_features, dropout_rate=rate, across=self.across)
        self.encoder = [
            EncoderBlock(attention(), network(), dropout_rate=self.dropout_rate)
            for _ in range(self.num_blocks)
        ]
        self.decoder = [
            DecoderBlock(attention(), attention(), network(), dropout_rate=self.dropout_rate)
            for _ in range(self.num_blocks)
        ]
        self.encoder_norm = nn.LayerNorm()
        self.decoder_norm = nn.LayerNorm()
        shape = (self.target_vocabulary_size,)
        self.logit_bias = self.param("logit_bias", nn.initializers.zeros, shape)
        self.dropout = nn.Dropout(self.dropout_rate)

    def __call__(self, inputs: TokenInputs, *, train: bool = False) -> TranslationOutputs:
        """Computes logits `(b, t, vocabulary)` of each target's next token.

        `aux["attention"]["alignment"]` `(b, t, s)` is the mean over the heads of the last block's
        weights on the source. There is none in training.
        """
        target, lengths = inputs["target"], inputs["source_lengths"]
        memory = self._encode(inputs, train)
        x, weights = self._embed(self.target_embedding, target, train), None  # (b, t, d)
        for block in self.decoder:
            x, _, weights, _ = block(
                x, memory, memory_lengths=lengths, train=train, need_weights=not train
            )
        attention = {} if weights is None else {"alignment": weights.mean(axis=-3)}
        logits = self._logits(x)
        chex.assert_shape(logits, (*target.shape, self.target_vocabulary_size))
        return logits, {"attention": attention}

    def encode(self, inputs: TokenInputs) -> Caches:
        """Computes keys and values of the sources, for the attention of each block to them."""
        encoded, lengths = self._encode(inputs, train=False), inputs["source_lengths"]
        caches = []
        for block in self.decoder:
            attention = block.cross_attention
            assert attention is not None
            rows, length, features = encoded.shape
            empty = attention.init_cache(features, (rows,), length, encoded.dtype)
            caches.append(attention.extend(empty, encoded, lengths=lengths))
        return tuple(caches)

    def start(self, memory: Caches, max_length: int) -> Caches:
        """Makes empty caches `(b, 1, heads, max_length, d)` of the targets."""
        sizes = self.features, (memory[0].length.shape[0], 1), max_length, memory[0][0].dtype
        return tuple(block.attention.init_cache(*sizes) for block in self.decoder)

    def decode_step(
        self, state: Caches, tokens: Int[Array, "b k"], memory: Caches
    ) -> tuple[Array, Caches, Array]:
        """Computes logits `(b, k, vocabulary)`, extended caches, and weights `(b, k, s)`."""
        x = self._embed(self.target_embedding, tokens[..., None], False, state[0].length)
        for_beginnings = lambda array: jnp.broadcast_to(
            array[:, None], (*tokens.shape, *array.shape[1:])
        )
        caches, weights, bias = [], None, self._decoder_bias()
        for block, cache, read in zip(self.decoder, state, memory):  # x is (b, k, 1, d)
            read = jax.tree.map(for_beginnings, read)
            x, _, weights, extended = block(x, read, cache=cache, bias=bias)
            caches.append(extended)
        assert weights is not None
        return self._logits(x)[..., 0, :], tuple(caches), weights[..., 0, :].mean(axis=-2)

    def _decoder_bias(self) -> None:
        """Returns the bias of the scores among targets, which published models may have."""

    def _encode(self, inputs: TokenInputs, train: bool) -> Float[Array, "b s d"]:
        source, lengths = inputs["source"], inputs["source_lengths"]
        chex.assert_rank(source, 2)
        chex.assert_shape(lengths, source.shape[:1])
        x = self._embed(self.source_embedding, source, train)
        for block in self.encoder:
            x = block(x, lengths=lengths, train=train, need_weights=False).context
        return self.encoder_norm(x)

    def _embed(
        self, layer: nn.Embed, tokens: Int[Array, "*b t"], train: bool, offset: Array | int = 0
    ) -> Float[Array, "*b t d"]:
        """Embeds tokens and their positions from `offset` on."""
        positions = sinusoidal(tokens.shape[-1], self.features, offset=offset)
        positions = with_rank(positions, tokens.ndim + 1)
        embedded = layer(tokens) * self.features**0.5 + positions
        return self.dropout(embedded, deterministic=not train)

    def _logits(self, x: Float[Array, "*b t d"]) -> Float[Array, "*b t v"]:
        products = self.target_embedding.attend(self.decoder_norm(x))
        return products + with_rank(self.logit_bias, products.ndim)
