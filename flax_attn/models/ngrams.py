"""A classifier of texts for little data: words with character n-grams, and pairs of words.

    e_t = word_t + sum of the n-grams of word t / sqrt(their number)
    z   = [for each encoder: hops over [encoder(e)_t; e_t];
           hops over words and pairs; sum of words and pairs / sqrt(their number)]

Source: n-grams as in Bojanowski et al. 2017 (arXiv:1607.04606), whole words dropped as in Iyyer et
al. 2015, hops as in Lin et al. 2017 (arXiv:1703.03130), convolutions over words as in Kim 2014
(arXiv:1408.5882).
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer

from flax_attn.attention import StructuredSelfAttention, masks
from flax_attn.models.forward import TokenInputs
from flax_attn.models.initializers import flax
from flax_attn.models.recurrent import CELLS, Recurrent
from flax_attn.models.text import ClassOutputs

WIDTHS = (2, 3, 4)  # of the convolutions, in words
small = nn.initializers.normal(0.1)


class NGramAttention(nn.Module):
    """Encoders and hops over words with their n-grams; and over words and pairs without encoders.

    Unknown words are represented by their n-grams alone. Without pairs in the data, the second part
    is left out.

    Attributes:
        vocabulary_size, num_classes, num_ngrams, num_pairs: decided by the data; 0 for no n-grams
            or pairs.
        embedding_features: width of all embeddings.
        encoders: of `rnn`, `gru`, `lstm`, in both directions, and `convolution` over 2, 3 and 4
            words.
        features: width of the states in each direction, or of each convolution.
        attention_features, num_hops: of the attention, `d_a` and `r` of the source.
        word_dropout_rate: share of words, and of pairs, that are dropped whole in training.
        embedding_dropout_rate: share of the embedding's and the encoder's outputs that are dropped
            in training.
        dropout_rate: share of `z` that is dropped in training.

    Raises:
        ValueError: an encoder that comes twice; no encoder, where there are no pairs either.
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
    def __call__(self, inputs: TokenInputs, *, train: bool = False) -> ClassOutputs:
        if len(set(self.encoders)) < len(self.encoders) or not (self.encoders or self.num_pairs):
            raise ValueError(
                f"expected encoders, each of them once, or pairs of words in the data, got "
                f"{self.encoders}"
            )
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        mask = masks.from_lengths(lengths, tokens.shape[1])[:, 0]  # (b, t)
        kept = self._kept(mask, train) | (mask & (lengths == 1)[:, None])  # a lone word stays
        words = self._words(inputs, kept)
        words = jnp.where(mask[..., None], self._dropout(words, train), 0)  # (b, t, d)
        contexts, attention = [], {}
        for encoder in self.encoders:
            states = self._dropout(self._encode(encoder, words, lengths), train)  # (b, t, e)
            states = jnp.concatenate([states, words], axis=-1)  # (b, t, e + d)
            context, weights = self._hops(f"attention_{encoder}", states, mask)  # (b, r (e + d))
            contexts.append(context)
            attention[f"hops_{encoder}"] = weights  # (b, r, t)
        if self.num_pairs:
            words_and_pairs, allowed = self._add_pairs(words, kept, inputs["pairs"], train)
            context, weights = self._hops("pair_attention", words_and_pairs, allowed)  # (b, r d)
            contexts += [context, sum_over_root(words_and_pairs, allowed)]  # (b, r d), (b, d)
            attention["hops_words"], attention["hops_pairs"] = jnp.split(weights, 2, axis=-1)
        z = jnp.concatenate(contexts, axis=-1)
        z = nn.Dropout(self.dropout_rate, deterministic=not train)(z)
        logits = nn.Dense(self.num_classes, name="logits")(z)  # (b, classes)
        chex.assert_shape(logits, (lengths.shape[0], self.num_classes))
        return logits, {"attention": attention}

    def _dropout(self, x: Float[Array, "b t d"], train: bool) -> Float[Array, "b t d"]:
        return nn.Dropout(self.embedding_dropout_rate, deterministic=not train)(x)

    def _hops(
        self, name: str, x: Float[Array, "b t d"], mask: Bool[Array, "b t"]
    ) -> tuple[Float[Array, "b rd"], Float[Array, "b r t"]]:
        """Computes the contexts of all hops side by side, and their weights."""
        attention = StructuredSelfAttention(self.attention_features, self.num_hops, name=name)
        context, weights = attention(x, mask=mask)  # (b, r, d), (b, r, t)
        assert weights is not None
        return context.reshape(x.shape[0], -1), weights  # (b, r d), (b, r, t)

    def _kept(self, mask: Bool[Array, "b t"], train: bool) -> Bool[Array, "b t"]:
        """Drops whole words or pairs from the mask in training."""
        if not train or not self.word_dropout_rate:
            return mask
        rng, rate = self.make_rng("dropout"), self.word_dropout_rate
        return mask & jax.random.bernoulli(rng, 1 - rate, mask.shape)  # (b, t)

    def _words(self, inputs: TokenInputs, kept: Bool[Array, "b t"]) -> Float[Array, "b t d"]:
        """Embeds words with their n-grams; all that are dropped have a vector of their own."""
        tokens = inputs["tokens"]
        dropped = self.param("dropped", small, (self.embedding_features,))  # (d,)
        words = self._embed("words", self.vocabulary_size, tokens)  # (b, t, d)
        if self.num_ngrams:
            ngrams = self._embed("ngrams", self.num_ngrams, inputs["ngrams"])  # (b, t, n, d)
            is_known = tokens[..., None] > 1  # 0 pads, 1 is unknown
            words = jnp.where(is_known, words, 0) + sum_over_root(ngrams, inputs["ngrams"] > 0)
        return jnp.where(kept[..., None], words, dropped[None, None])  # (b, t, d)

    def _embed(self, name: str, size: int, ids: Integer[Array, "..."]) -> Float[Array, "..."]:
        return nn.Embed(size, self.embedding_features, embedding_init=small, name=name)(ids)

    def _add_pairs(
        self,
        words: Float[Array, "b t d"],
        kept: Bool[Array, "b t"],
        ids: Integer[Array, "b p"],
        train: bool,
    ) -> tuple[Float[Array, "b n d"], Bool[Array, "b n"]]:
        """Puts pairs after the words. Returns also the mask of what is not dropped."""
        pairs = self._dropout(self._embed("pairs", self.num_pairs, ids), train)  # (b, p, d)
        allowed = jnp.concatenate([kept, self._kept(ids > 1, train)], axis=1)  # (b, t + p)
        return jnp.concatenate([words, pairs], axis=1), allowed  # (b, t + p, d)

    def _encode(
        self, encoder: str, words: Float[Array, "b t d"], lengths: Int[Array, " b"]
    ) -> Float[Array, "b t e"]:
        """Encodes the words in their order, by a recurrent network or by convolutions."""
        if encoder in CELLS:
            options = {"bidirectional": True, "initialization": flax, "name": encoder}
            return Recurrent(encoder, self.features, **options)(words, lengths)
        if encoder != "convolution":
            raise ValueError(
                f"expected encoders of {', '.join(CELLS)} and convolution, got {encoder!r}"
            )
        convolve = lambda width: nn.Conv(self.features, (width,), name=f"convolution{width}")(words)
        return jnp.concatenate([nn.relu(convolve(width)) for width in WIDTHS], axis=-1)


def sum_over_root(
    values: Float[Array, "*b n d"], mask: Bool[Array, "*b n"]
) -> Float[Array, "*b d"]:
    """Sums the values where the mask is True, over the square root of their number.

    The root keeps the variance.
    """
    count = jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)  # (*b, 1)
    return jnp.where(mask[..., None], values, 0).sum(axis=-2) / jnp.sqrt(count)  # (*b, d)
