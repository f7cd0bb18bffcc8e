"""One step of a recurrent decoder that attends: the equations of `translation`, for one `i`."""

from collections.abc import Callable
from typing import NamedTuple

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
from flax_attn.attention.scores import project
from flax_attn.models.cpu.recurrence import RecurrentState
from flax_attn.models.initializers import flax
from flax_attn.models.recurrent import CELLS

ScoreOrModule = Callable[..., Array] | nn.Module

PROJECTED = ("additive", "general")  # scores whose keys are projected before, once a source
SCORES = (*PROJECTED, "concat", "bilinear", "trilinear", "dot", "scaled_dot", "cosine")


def make_score(name: str, features: int) -> ScoreOrModule:
    """Makes the score of a name in `SCORES`; `features` is the width of its hidden layer."""
    match name:
        case "additive":
            return AdditiveScore(features, project_keys=False)
        case "general":  # q W k is the dot product with a key that is projected already
            return dot
        case "concat":
            return ConcatScore(features)
        case "bilinear":
            return BilinearScore(use_bias=True)
        case "trilinear":
            return TrilinearScore()
    return {"dot": dot, "scaled_dot": scaled_dot, "cosine": cosine}[name]


class Memory(NamedTuple):
    """The encoded sources, as a decoder reads them.

    Keys `(b, s, a)` for its score, values `(b, s, e)`, and the lengths `(b,)`.
    """

    keys: Float[Array, "b s a"]
    values: Float[Array, "b s e"]
    lengths: Int[Array, " b"]


class StepResult(NamedTuple):
    """The result of a step, `(b, k, _)`, which the logits are made of, and the weights."""

    result: Float[Array, "b k _"]
    weights: Float[Array, "b k s"] | None


class DecoderStep(nn.Module):
    """Base of the two steps: their attention and their recurrence.

    Attributes:
        cell, features: of the recurrence, as in `RecurrentLayer`.
        score, reach, attention_features: of the attention, as in `Seq2Seq`.
    """

    cell: str
    features: int
    score: ScoreOrModule
    reach: int
    attention_features: int

    def __call__(
        self, state: RecurrentState, inputs: Float[Array, "b k g"], memory: Memory
    ) -> tuple[RecurrentState, StepResult]:
        """Computes the next state and the result, from products of embeddings with the kernel."""
        raise NotImplementedError

    def attend(self, query: Float[Array, "b k h"], memory: Memory) -> Attended:
        """Attends to the whole source, or around a position that the query predicts."""
        keys, values, lengths = memory
        if self.reach:
            local = PredictiveLocalAttention(
                self.reach, self.attention_features, self.score, name="attention"
            )
            return local(query, keys, values, key_lengths=lengths)
        attention = Attention
        if isinstance(self.score, AdditiveScore):
            # Its hidden layer is computed again for the gradient. To store it for every step and
            # key takes longer.
            attention = nn.remat(Attention, prevent_cse=False)
        mask = masks.from_lengths(lengths, keys.shape[1])
        return attention(self.score, name="attention")(query, keys, values, mask=mask)

    def advance(
        self, state: RecurrentState, inputs: Float[Array, "b k g"], read: Float[Array, "b k e"]
    ) -> RecurrentState:
        """Computes the next state, from the products with an embedding and from `read`."""
        cell, width = CELLS[self.cell], CELLS[self.cell].num_gates * self.features
        kernel = lambda name, init, size: self.param(name, init(self.features), (size, width))
        read_kernel = kernel("read_kernel", flax.input_kernel, read.shape[-1])  # (e, g)
        recurrent_kernel = kernel("recurrent_kernel", flax.recurrent_kernel, self.features)
        bias = self.param("recurrent_bias", flax.bias(self.features), (width,))  # (g,)
        products = project(state[0], recurrent_kernel) + bias[None, None]  # (b, k, g)
        return cell.step(state, inputs + project(read, read_kernel), products)  # (b, k, h) each


class BahdanauStep(DecoderStep):
    """The state before attends, and the context goes into the next state."""

    @nn.compact
    def __call__(
        self, state: RecurrentState, inputs: Float[Array, "b k g"], memory: Memory
    ) -> tuple[RecurrentState, StepResult]:
        """Returns `[z_i; c_i]` as the result."""
        context, weights = self.attend(state[0], memory)  # (b, k, e), (b, k, s)
        state = self.advance(state, inputs, context)
        return state, StepResult(jnp.concatenate([state[0], context], axis=-1), weights)


class LuongStep(DecoderStep):
    """The new state attends, and the output goes into the next step."""

    @nn.compact
    def __call__(
        self, state: RecurrentState, inputs: Float[Array, "b k g"], memory: Memory
    ) -> tuple[RecurrentState, StepResult]:
        """Returns `o_i` as the result. The last array of the state is `o_{i-1}`."""
        *of_cell, output = state
        of_cell = self.advance(tuple(of_cell), inputs, output)
        context, weights = self.attend(of_cell[0], memory)  # (b, k, e), (b, k, s)
        both = jnp.concatenate([context, of_cell[0]], axis=-1)  # (b, k, e + h)
        output = jnp.tanh(nn.Dense(self.features, use_bias=False, name="output")(both))  # (b, k, h)
        return (*of_cell, output), StepResult(output, weights)


STEPS = {"bahdanau": BahdanauStep, "luong": LuongStep}
