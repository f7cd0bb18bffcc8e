"""A classifier of texts for little data: words with their character n-grams, read in order, and pairs of words beside them.

    e_t = word_t + sum of the n-grams of word t / sqrt(their number)
    z   = [hops over [encoder(e)_t; e_t] for each encoder; hops over words and pairs; sum of words and pairs / sqrt(their number)]

Source: n-grams as in Bojanowski et al. 2017 (arXiv:1607.04606), whole words dropped as in Iyyer et al. 2015, hops as in
Lin et al. 2017 (arXiv:1703.03130), convolutions over words as in Kim 2014 (arXiv:1408.5882).
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flax_attn.attention import StructuredSelfAttention, masks
from flax_attn.models.initializers import flax
from flax_attn.models.recurrent import CELLS, Recurrent

Outputs = tuple[Float[Array, "b classes"], dict]
WIDTHS = (2, 3, 4)  # of the convolutions, in words
small = nn.initializers.normal(0.1)


class NGramAttention(nn.Module):
    """Words and n-grams under encoders and hops; and where the data has pairs, hops and a sum over words and pairs in no order.

    A word that the vocabulary does not have is its n-grams alone.

    Attributes:
        vocabulary_size, num_classes, num_ngrams, num_pairs: decided by the data; 0 n-grams or pairs are none.
        embedding_features: width of all embeddings.
        encoders: of `rnn`, `gru`, `lstm`, in both directions, and `convolution` over 2, 3 and 4 words.
        features: width of the states in each direction, or of each convolution.
        attention_features, num_hops: of the attention, `d_a` and `r` of the source.
        word_dropout_rate: share of words, and of pairs, that are dropped whole in training.
        embedding_dropout_rate: share of the embedding's and the encoder's outputs that are dropped in training.
        dropout_rate: share of what the logits are made of that is dropped in training.
    """

    vocabulary_size: int
    num_classes: int
    num_ngrams: int = 0
    num_pairs: int = 0
    embedding_features: int = 64
    encoders: tuple[str, ...] = ("gru",)
    features: int = 64
    attention_features: int = 64
    num_hops: int = 4
    word_dropout_rate: float = 0.1
    embedding_dropout_rate: float = 0.3
    dropout_rate: float = 0.5

    @nn.compact
    def __call__(self, inputs: dict[str, Int[Array, "..."]], *, train: bool = False) -> Outputs:
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        mask = masks.from_lengths(lengths, tokens.shape[1])[:, 0]  # (b, t)
        dropout = lambda rate, x: nn.Dropout(rate, deterministic=not train)(x)
        kept = self._kept(mask, train) | (mask & (lengths == 1)[:, None])
        dropped = self.param("dropped", small, (self.embedding_features,))
        words = jnp.where(kept[..., None], self._words(inputs), dropped[None, None])
        words = jnp.where(mask[..., None], dropout(self.embedding_dropout_rate, words), 0)  # (b, t, d)

        hops = lambda name: StructuredSelfAttention(self.attention_features, self.num_hops, name=name)
        found, attention = [], {}  # weights (b, r, t) by name
        for encoder in self.encoders:
            states = dropout(self.embedding_dropout_rate, self._encode(encoder, words, lengths))
            pooled = hops(f"attention_{encoder}")(jnp.concatenate([states, words], axis=-1), mask=mask)  # (b, r, d)
            found.append(pooled.context.reshape(len(tokens), -1))
            attention[f"hops_{encoder}"] = pooled.weights
        if self.num_pairs:
            known = inputs["pairs"] > 1
            pairs = nn.Embed(self.num_pairs, self.embedding_features, embedding_init=small, name="pairs")(inputs["pairs"])
            both = jnp.concatenate([words, dropout(self.embedding_dropout_rate, pairs)], axis=1)
            allowed = jnp.concatenate([kept, self._kept(known, train)], axis=1)
            pooled = hops("pair_attention")(both, mask=allowed)
            found += [pooled.context.reshape(len(tokens), -1), sum_over_root(both, allowed)]
            assert pooled.weights is not None
            attention |= dict(zip(("hops_words", "hops_pairs"), jnp.split(pooled.weights, 2, axis=-1)))
        logits = nn.Dense(self.num_classes, name="logits")(dropout(self.dropout_rate, jnp.concatenate(found, axis=-1)))
        chex.assert_shape(logits, (len(lengths), self.num_classes))
        return logits, {"attention": attention}

    def _kept(self, mask: Bool[Array, "b t"], train: bool) -> Bool[Array, "b t"]:
        if not train or not self.word_dropout_rate:
            return mask
        return mask & jax.random.bernoulli(self.make_rng("dropout"), 1 - self.word_dropout_rate, mask.shape)

    def _words(self, inputs: dict[str, Int[Array, "..."]]) -> Float[Array, "b t d"]:
        tokens = inputs["tokens"]
        words = nn.Embed(self.vocabulary_size, self.embedding_features, embedding_init=small, name="words")(tokens)
        if not self.num_ngrams:
            return words
        ngrams = nn.Embed(self.num_ngrams, self.embedding_features, embedding_init=small, name="ngrams")(inputs["ngrams"])
        return jnp.where(tokens[..., None] > 1, words, 0) + sum_over_root(ngrams, inputs["ngrams"] > 0)

    def _encode(self, encoder: str, words: Float[Array, "b t d"], lengths: Int[Array, " b"]) -> Float[Array, "b t e"]:
        if encoder in CELLS:
            return Recurrent(encoder, self.features, bidirectional=True, initialization=flax, name=encoder)(words, lengths)
        if encoder != "convolution":
            raise ValueError(f"expected encoders of {', '.join(CELLS)} and convolution, got {encoder!r}")
        return jnp.concatenate([nn.relu(nn.Conv(self.features, (width,), name=f"convolution{width}")(words)) for width in WIDTHS], axis=-1)


def sum_over_root(values: Float[Array, "*b n d"], mask: Bool[Array, "*b n"]) -> Float[Array, "*b d"]:
    """The sum over those that the mask allows, over the square root of their number, which keeps the variance."""
    count = jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
    return jnp.where(mask[..., None], values, 0).sum(axis=-2) / jnp.sqrt(count)
