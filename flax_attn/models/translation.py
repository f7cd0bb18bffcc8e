"""Recurrent encoder and decoder with attention, from sources and targets to logits.

    encoder     h_1 .. h_s = BiGRU(x_1 .. x_s)
    Bahdanau    c_i = attend(z_{i-1}, h),   z_i = GRU(z_{i-1}, [y_{i-1}; c_i]),
                o_i = tanh(W [z_i; c_i; y_{i-1}])
    Luong       z_i = GRU(z_{i-1}, [y_{i-1}; o_{i-1}]),   c_i = attend(z_i, h),
                o_i = tanh(W [c_i; z_i])

Source: Bahdanau et al. 2015 (arXiv:1409.0473), appendix A, with `tanh` for maxout; Luong et al.
2015 (arXiv:1508.04025), section 3, whose input feeding is the `o_{i-1}` above.

The keys of the scores `additive` and `general` are projected once a source. The products with the
target's embeddings are computed for all steps at once. One attention and two products are left to
each step.
"""

import chex
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_attn.models.cpu.recurrence import RecurrentState
from flax_attn.models.forward import TokenInputs
from flax_attn.models.initializers import flax
from flax_attn.models.recurrent import CELLS, Recurrent
from flax_attn.models.translation_steps import PROJECTED, SCORES, STEPS, Memory, make_score
from flax_attn.types import Options

TranslationOutputs = tuple[Float[Array, "b t v"], dict]


class Seq2Seq(nn.Module):
    """An encoder in both directions, and a decoder that attends to its states.

    `inputs` are `source` `(b, s)`, `source_lengths` `(b,)` and `target` `(b, t)`. A target begins
    with the last token of its vocabulary, which marks the start and the end of a sequence.
    `encode`, `start` and `decode_step` are what a search needs.

    Attributes:
        source_vocabulary_size, target_vocabulary_size: decided by the data.
        embedding_features: width of the embeddings.
        cell: `rnn`, `gru` or `lstm`, of encoder and decoder.
        features: width of the decoder's state, and of both directions of the encoder together.
        num_layers: layers of the encoder.
        decoder: `bahdanau` or `luong`.
        attention: a score of `SCORES`.
        attention_features: width of the hidden layer of an additive score, and of the layer that
            predicts a position.
        reach: keys to each side of the position that the query predicts (local-p); 0 attends to the
            whole source.
        tied_embeddings: whether the logits are products with the target's embeddings.
        shared_embeddings: whether source and target have the same embeddings, for a vocabulary that
            they share.
        dropout_rate: share of the embeddings, of the encoder's outputs and of the decoder's that
            are dropped in training.

    Raises:
        ValueError: an unknown cell, decoder or attention, an odd number of features, or widths or
            vocabularies that cannot be tied or shared.
    """

    source_vocabulary_size: int
    target_vocabulary_size: int
    embedding_features: int = 256
    cell: str = "gru"
    features: int = 256
    num_layers: int = 1
    decoder: str = "bahdanau"
    attention: str = "additive"
    attention_features: int = 256
    reach: int = 0
    tied_embeddings: bool = False
    shared_embeddings: bool = False
    dropout_rate: float = 0.0

    def setup(self):
        self._check()
        sizes = self.source_vocabulary_size, self.target_vocabulary_size
        self.target_embedding, self.source_embedding = embeddings(
            *sizes, self.embedding_features, self.shared_embeddings
        )
        options: Options = {"initialization": flax, "dropout_rate": self.dropout_rate}
        self.encoder = Recurrent(
            self.cell, self.features // 2, self.num_layers, bidirectional=True, **options
        )
        if self.attention in PROJECTED:
            is_additive = self.attention == "additive"
            width = self.attention_features if is_additive else self.features
            self.keys = nn.Dense(width, use_bias=False)
        self.bridge = nn.Dense(self.features)
        self.inputs = nn.Dense(CELLS[self.cell].num_gates * self.features)
        score = make_score(self.attention, self.attention_features)
        self.step = STEPS[self.decoder](
            self.cell, self.features, score, self.reach, self.attention_features
        )
        if self.decoder == "bahdanau":
            self.output = nn.Dense(self.embedding_features)
            self.output_of_embedding = nn.Dense(self.embedding_features, use_bias=False)
        if self.tied_embeddings:
            shape = (self.target_vocabulary_size,)
            self.logit_bias = self.param("logit_bias", nn.initializers.zeros, shape)
        else:
            self.logits = nn.Dense(self.target_vocabulary_size)
        self.dropout = nn.Dropout(self.dropout_rate)

    def __call__(self, inputs: TokenInputs, *, train: bool = False) -> TranslationOutputs:
        """Computes logits `(b, t, vocabulary)` of each target's next token.

        The weights `(b, t, s)` are `aux["attention"]["alignment"]`.
        """
        target = inputs["target"]
        memory = self.encode(inputs, train=train)
        embedded = self.dropout(self.target_embedding(target), deterministic=not train)  # (b, t, d)
        products = jnp.swapaxes(self.inputs(embedded), 0, 1)[:, :, None]  # (t, b, 1, g)

        one_step = lambda step, state, inputs: step(state, inputs, memory)
        scan = nn.scan(one_step, variable_broadcast="params", split_rngs={"params": False})
        _, (results, weights) = scan(self.step, self.start(memory), products)  # (t, b, 1, ...)
        results = jnp.swapaxes(results[:, :, 0], 0, 1)  # (b, t, e)
        weights = jnp.swapaxes(weights[:, :, 0], 0, 1)  # (b, t, s)
        logits = self.vocabulary_logits(results, embedded, train)  # (b, t, v)
        chex.assert_shape(logits, (*target.shape, self.target_vocabulary_size))
        return logits, {"attention": {"alignment": weights}}

    def encode(self, inputs: TokenInputs, *, train: bool = False) -> Memory:
        """Reads the sources."""
        source, lengths = inputs["source"], inputs["source_lengths"]
        chex.assert_rank(source, 2)
        chex.assert_shape(lengths, source.shape[:1])
        embedded = self.dropout(self.source_embedding(source), deterministic=not train)  # (b, s, d)
        states = self.encoder(embedded, lengths, train=train)  # (b, s, e)
        values = self.dropout(states, deterministic=not train)  # (b, s, e)
        keys = self.keys(values) if self.attention in PROJECTED else values  # (b, s, a)
        return Memory(keys, values, lengths)

    def start(self, memory: Memory, max_length: int = 0) -> RecurrentState:
        """Makes the state before the first step, `(b, 1, features)`.

        It is made of the encoder's state that has read the source from its end to its start.
        """
        backward = memory.values[:, :1, self.features // 2 :]  # (b, 1, e / 2)
        hidden = jnp.tanh(self.bridge(backward))  # (b, 1, features)
        num_zeros = CELLS[self.cell].num_states - 1  # the memory of an LSTM
        if self.decoder == "luong":
            num_zeros += 1  # the output that is fed to the next step
        return (hidden, *(jnp.zeros_like(hidden),) * num_zeros)

    def decode_step(
        self, state: RecurrentState, tokens: Int[Array, "b k"], memory: Memory
    ) -> tuple[Array, RecurrentState, Array]:
        """Computes logits `(b, k, vocabulary)`, the next state, and weights `(b, k, s)`."""
        embedded = self.target_embedding(tokens)  # (b, k, d)
        state, (result, weights) = self.step(state, self.inputs(embedded), memory)
        return self.vocabulary_logits(result, embedded, train=False), state, weights

    def vocabulary_logits(
        self, result: Float[Array, "b t e"], embedded: Float[Array, "b t d"], train: bool
    ) -> Float[Array, "b t v"]:
        """Computes logits, from the results of the steps and the embeddings of their tokens."""
        if self.decoder == "bahdanau":
            result = jnp.tanh(self.output(result) + self.output_of_embedding(embedded))  # (b, t, d)
        result = self.dropout(result, deterministic=not train)
        if not self.tied_embeddings:
            return self.logits(result)  # (b, t, v)
        return self.target_embedding.attend(result) + self.logit_bias[None, None]  # (b, t, v)

    @nn.nowrap
    def _check(self) -> None:
        """Raises a ValueError for fields that do not fit."""
        for name, choices in (("decoder", STEPS), ("attention", SCORES), ("cell", CELLS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"expected {name} of {(*choices,)}, got {getattr(self, name)!r}")
        if self.features % 2:
            raise ValueError(f"expected an even number of features, got {self.features}")
        is_luong, widths = self.decoder == "luong", {self.features, self.embedding_features}
        if self.tied_embeddings and is_luong and len(widths) > 1:
            raise ValueError("expected embedding_features=features for tied_embeddings with luong")


def embeddings(
    source_size: int, target_size: int, features: int, shared: bool
) -> tuple[nn.Embed, nn.Embed]:
    """Makes embeddings of target and source, maybe shared, with vectors of length about 1."""
    init = nn.initializers.normal(features**-0.5)
    target = nn.Embed(target_size, features, embedding_init=init)
    if not shared:
        return target, nn.Embed(source_size, features, embedding_init=init)
    if source_size > target_size:
        raise ValueError("expected one vocabulary of source and target for shared_embeddings")
    return target, target
