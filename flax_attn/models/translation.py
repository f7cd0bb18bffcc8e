"""Recurrent encoder and decoder with attention between them: a source `(b, s)` and a target `(b, t)` to logits `(b, t, vocabulary)`.

    encoder     h_1 .. h_s = BiGRU(x_1 .. x_s)
    Bahdanau    c_i = attend(z_{i-1}, h),   z_i = GRU(z_{i-1}, [y_{i-1}; c_i]),       o_i = tanh(W [z_i; c_i; y_{i-1}])
    Luong       z_i = GRU(z_{i-1}, [y_{i-1}; o_{i-1}]),   c_i = attend(z_i, h),       o_i = tanh(W [c_i; z_i])

Source: Bahdanau et al. 2015 (arXiv:1409.0473), appendix A, with `tanh` for maxout; Luong et al. 2015 (arXiv:1508.04025), section 3,
whose input feeding is the `o_{i-1}` above. The keys of the scores `additive` and `general` are projected once a source, and what the
target's embeddings bring to the recurrence and to the output is computed at once; what is left to each step is one attention and two
products.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_attn.attention import (
    AdditiveScore,
    Attended,
    Attention,
    BilinearScore,
    ConcatScore,
    PredictiveLocalAttention,
    TrilinearScore,
    cosine,
    dot,
    masks,
    scaled_dot,
)
from flax_attn.attention.projection import project
from flax_attn.models.initializers import flax
from flax_attn.models.recurrent import CELLS, Recurrent, State

Outputs = tuple[Float[Array, "b t v"], dict]
Score = Callable[..., Array] | nn.Module

# The score by name for an attention of so many features; it sees keys that are projected to that width for the first two alone.
PROJECTED: dict[str, Callable[[int], Score]] = {"additive": lambda h: AdditiveScore(h, project_keys=False), "general": lambda h: dot}
SCORES: dict[str, Callable[[int], Score]] = PROJECTED | {
    "concat": ConcatScore,
    "bilinear": lambda h: BilinearScore(use_bias=True),
    "trilinear": lambda h: TrilinearScore(),
    "dot": lambda h: dot,
    "scaled_dot": lambda h: scaled_dot,
    "cosine": lambda h: cosine,
}


class Memory(NamedTuple):
    """What a decoder reads of the sources: keys for its score, values `(b, s, e)`, and their lengths `(b,)`."""

    keys: Float[Array, "b s a"]
    values: Float[Array, "b s e"]
    lengths: Int[Array, " b"]


class BahdanauStep(nn.Module):
    """One step: the state before it attends, and what it finds goes into the next state.

    Attributes:
        cell, features: of the recurrence, as in `RecurrentLayer`.
        score, reach, attention_features: of the attention, as in `Seq2Seq`.
    """

    cell: str
    features: int
    score: Score
    reach: int
    attention_features: int

    @nn.compact
    def __call__(self, state: State, inputs: Float[Array, "b k g"], memory: Memory) -> tuple[State, Attended]:
        """From states `(b, k, features)` and the products of the embeddings with the cell's kernel, the next ones.

        The context of the `Attended` is all that the output is made of, `[z_i; c_i]`.
        """
        found = look(self, state[0], memory)
        state = advance(self, state, inputs, found.context)
        return state, Attended(jnp.concatenate([state[0], found.context], axis=-1), found.weights)


class LuongStep(nn.Module):
    """One step: the new state attends, and the output made of it is fed to the next one.

    Attributes: those of `BahdanauStep`.
    """

    cell: str
    features: int
    score: Score
    reach: int
    attention_features: int

    @nn.compact
    def __call__(self, state: State, inputs: Float[Array, "b k g"], memory: Memory) -> tuple[State, Attended]:
        """As in `BahdanauStep`; the last part of the state is the output `o_{i-1}`, and the context is `o_i`."""
        *parts, fed = state
        parts = advance(self, tuple(parts), inputs, fed)
        found = look(self, parts[0], memory)
        both = jnp.concatenate([found.context, parts[0]], axis=-1)
        output = jnp.tanh(nn.Dense(self.features, use_bias=False, name="output")(both))
        return (*parts, output), Attended(output, found.weights)


STEPS = {"bahdanau": BahdanauStep, "luong": LuongStep}


def look(step: BahdanauStep | LuongStep, query: Float[Array, "b k h"], memory: Memory) -> Attended:
    """The attention of a step, made within it: over the whole source, or around a place that the query predicts."""
    if step.reach:
        local = PredictiveLocalAttention(step.reach, step.attention_features, step.score, name="attention")
        return local(query, memory.keys, memory.values, key_lengths=memory.lengths)
    mask = masks.from_lengths(memory.lengths, memory.keys.shape[1])
    # An additive score is computed again going back: to keep its hidden layer for every step and key takes longer.
    attention = nn.remat(Attention, prevent_cse=False) if isinstance(step.score, AdditiveScore) else Attention
    return attention(step.score, name="attention")(query, memory.keys, memory.values, mask=mask)


def advance(step: BahdanauStep | LuongStep, state: State, inputs: Float[Array, "b k g"], read: Float[Array, "b k e"]) -> State:
    """The recurrence of a step, made within it: `read` is what goes in beside the embedding."""
    function, gates, _ = CELLS[step.cell]
    width = gates * step.features
    read_kernel = step.param("read_kernel", flax.input_kernel(step.features), (read.shape[-1], width))
    recurrent_kernel = step.param("recurrent_kernel", flax.recurrent_kernel(step.features), (step.features, width))
    bias = step.param("recurrent_bias", flax.bias(step.features), (width,))
    return function(state, inputs + project(read, read_kernel), project(state[0], recurrent_kernel) + bias[None, None])


class Seq2Seq(nn.Module):
    """An encoder in both directions, and a decoder that attends to its states.

    `inputs` are `source` `(b, s)`, `source_lengths` `(b,)` and `target` `(b, t)`, which begins with the last token of the target's
    vocabulary, the mark of both ends. `encode`, `start` and `decode_step` are what a search needs.

    Attributes:
        source_vocabulary_size, target_vocabulary_size: decided by the data.
        embedding_features: width of the embeddings.
        cell: `rnn`, `gru` or `lstm`, of encoder and decoder.
        features: width of the decoder's state, and of both directions of the encoder together.
        num_layers: layers of the encoder.
        decoder: `bahdanau` or `luong`.
        attention: a score of `SCORES`.
        attention_features: width of the hidden layer of an additive score, and of the one that predicts a place.
        reach: keys to each side of the place that the query predicts (local-p); 0 attends to the whole source.
        tied_embeddings: whether the logits are products with the target's embeddings.
        shared_embeddings: whether source and target have the same embeddings, for a vocabulary that they share.
        dropout_rate: share of the embeddings, of the encoder's outputs and of the decoder's that are dropped in training.
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
        for name, known in (("decoder", STEPS), ("attention", SCORES), ("cell", CELLS)):
            if getattr(self, name) not in known:
                raise ValueError(f"expected {name} of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.features % 2:
            raise ValueError(f"expected an even number of features, half for each direction of the encoder, got {self.features}")
        if self.shared_embeddings and self.source_vocabulary_size > self.target_vocabulary_size:
            raise ValueError("expected one vocabulary of source and target for shared_embeddings")
        self.target_embedding = embedding(self.target_vocabulary_size, self.embedding_features)
        self.source_embedding = (
            self.target_embedding if self.shared_embeddings else embedding(self.source_vocabulary_size, self.embedding_features)
        )
        self.encoder = Recurrent(
            self.cell, self.features // 2, self.num_layers, bidirectional=True, initialization=flax, dropout_rate=self.dropout_rate
        )
        if self.attention in PROJECTED:
            self.keys = nn.Dense(self.features if self.attention == "general" else self.attention_features, use_bias=False)
        self.bridge = nn.Dense(self.features)
        self.inputs = nn.Dense(CELLS[self.cell][1] * self.features)
        score = SCORES[self.attention](self.attention_features)
        self.step = STEPS[self.decoder](self.cell, self.features, score, self.reach, self.attention_features)
        if self.decoder == "bahdanau":
            self.output = nn.Dense(self.embedding_features)
            self.output_of_embedding = nn.Dense(self.embedding_features, use_bias=False)
        if not self.tied_embeddings:
            self.logits = nn.Dense(self.target_vocabulary_size)
        elif self.decoder == "luong" and self.features != self.embedding_features:
            raise ValueError(f"expected embedding_features={self.features}, the features of the decoder, for tied_embeddings with luong")
        else:
            self.logit_bias = self.param("logit_bias", nn.initializers.zeros, (self.target_vocabulary_size,))
        self.dropout = nn.Dropout(self.dropout_rate)

    def __call__(self, inputs: dict[str, Int[Array, "..."]], *, train: bool = False) -> Outputs:
        """Logits `(b, t, vocabulary)` of each target's next token, and the weights `(b, t, s)` as `alignment`."""
        target = inputs["target"]
        memory = self.encode(inputs, train=train)
        embedded = self.dropout(self.target_embedding(target), deterministic=not train)  # (b, t, d)
        products = jnp.swapaxes(self.inputs(embedded), 0, 1)[:, :, None]  # (t, b, 1, g)
        scan = nn.scan(lambda step, state, now: step(state, now, memory), variable_broadcast="params", split_rngs={"params": False})
        _, (found, weights) = scan(self.step, self.start(memory), products)
        found, weights = (jnp.swapaxes(array[:, :, 0], 0, 1) for array in (found, weights))  # (b, t, ...)
        logits = self.vocabulary_logits(found, embedded, train)
        chex.assert_shape(logits, (*target.shape, self.target_vocabulary_size))
        return logits, {"attention": {"alignment": weights}}

    def encode(self, inputs: dict[str, Int[Array, "..."]], *, train: bool = False) -> Memory:
        """Reads the sources."""
        source, lengths = inputs["source"], inputs["source_lengths"]
        chex.assert_rank(source, 2)
        chex.assert_shape(lengths, source.shape[:1])
        embedded = self.dropout(self.source_embedding(source), deterministic=not train)
        values = self.dropout(self.encoder(embedded, lengths, train=train), deterministic=not train)  # (b, s, e)
        return Memory(self.keys(values) if self.attention in PROJECTED else values, values, lengths)

    def start(self, memory: Memory, max_length: int = 0) -> State:
        """The state before the first step, `(b, 1, features)`, made of what the encoder has read from the end to the start."""
        backward = memory.values[:, :1, self.features // 2 :]
        hidden = jnp.tanh(self.bridge(backward))
        parts = CELLS[self.cell][2] - 1 + (self.decoder == "luong")  # the memory of an LSTM, and the output that is fed
        return (hidden, *(jnp.zeros_like(hidden),) * parts)

    def decode_step(self, state: State, tokens: Int[Array, "b k"], memory: Memory) -> tuple[Array, State, Array]:
        """Logits `(b, k, vocabulary)` of what follows the tokens, the next state, and the weights `(b, k, s)`."""
        embedded = self.target_embedding(tokens)
        state, (found, weights) = self.step(state, self.inputs(embedded), memory)
        return self.vocabulary_logits(found, embedded, train=False), state, weights

    def vocabulary_logits(self, found: Float[Array, "b t e"], embedded: Float[Array, "b t d"], train: bool) -> Float[Array, "b t v"]:
        if self.decoder == "bahdanau":
            found = jnp.tanh(self.output(found) + self.output_of_embedding(embedded))
        found = self.dropout(found, deterministic=not train)
        if not self.tied_embeddings:
            return self.logits(found)
        return self.target_embedding.attend(found) + self.logit_bias[None, None]


def embedding(size: int, features: int) -> nn.Embed:
    return nn.Embed(size, features, embedding_init=nn.initializers.normal(features**-0.5))
