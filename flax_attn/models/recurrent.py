"""Recurrent layers. The products with the inputs and the kernel's gradient are outside the loop.

    rnn    h' = tanh(x W + b + h U + c)
    gru    r, z = sigmoid(x W + b + h U + c),   n = tanh(x W_n + b_n + r (h U_n + c_n)),
           h' = (1 - z) n + z h
    lstm   i, f, g, o = x W + b + h U + c,   m' = sigmoid(f) m + sigmoid(i) tanh(g),
           h' = sigmoid(o) tanh(m')

Source: Elman 1990; Cho et al. 2014 (arXiv:1406.1078); Hochreiter & Schmidhuber 1997 with the forget
gate of Gers et al. 2000. All are in PyTorch's form, which has two biases.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_attn.attention.arrays import with_rank
from flax_attn.attention.scores import project
from flax_attn.models.cpu.recurrence import RecurrentState, RecurrentStep, RecurrentTerms, recur
from flax_attn.models.initializers import Initialization, torch


def rnn(state: RecurrentState, inputs: Array, products: Array) -> RecurrentState:
    """Computes the next state, from `inputs` `x W + b` and `products` `h U + c`; as below."""
    return (jnp.tanh(inputs + products),)


def gru(state: RecurrentState, inputs: Array, products: Array) -> RecurrentState:
    (hidden,) = state
    width = 2 * hidden.shape[-1]
    gates = nn.sigmoid(inputs[..., :width] + products[..., :width])  # (..., 2 e), r and z
    reset, update = jnp.split(gates, 2, axis=-1)
    new = jnp.tanh(inputs[..., width:] + reset * products[..., width:])  # (..., e)
    return ((1 - update) * new + update * hidden,)  # (..., e)


def lstm(state: RecurrentState, inputs: Array, products: Array) -> RecurrentState:
    _, memory = state
    i, f, g, o = jnp.split(inputs + products, 4, axis=-1)  # (..., e) each
    memory = nn.sigmoid(f) * memory + nn.sigmoid(i) * jnp.tanh(g)  # (..., e)
    return nn.sigmoid(o) * jnp.tanh(memory), memory


class Cell(NamedTuple):
    """A kind of recurrence, whose step takes the state, `x W + b` and `h U + c`."""

    step: RecurrentStep
    num_gates: int  # blocks of columns of the kernels
    num_states: int  # arrays of the state


CELLS = {
    "rnn": Cell(rnn, num_gates=1, num_states=1),
    "gru": Cell(gru, num_gates=3, num_states=1),
    "lstm": Cell(lstm, num_gates=4, num_states=2),
}


class RecurrentLayer(nn.Module):
    """A recurrent layer over the first axis, from `(t, ..., d)` to `(t, ..., features)`.

    Its derivatives are those of reverse mode, of any order; `jax.jvp` of it is a TypeError.

    Attributes:
        cell: `rnn`, `gru` or `lstm`.
        features: width of the hidden state.
        reverse: whether it runs from the end to the start.
        use_bias: whether it has biases, two as PyTorch's.
        initialization: how the parameters begin.
    """

    cell: str
    features: int
    reverse: bool = False
    use_bias: bool = True
    initialization: Initialization = torch

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "t *b d"],
        state: RecurrentState | None = None,
        lengths: Int[Array, "*b"] | None = None,
    ) -> tuple[Float[Array, "t *b e"], RecurrentState]:
        """Computes the outputs and the last state, from a state `(..., features)` or zeros.

        After the length of a row, outputs are zeros and the state stays as it is.
        """
        if self.cell not in CELLS:
            raise ValueError(f"expected a cell of {', '.join(CELLS)}, got {self.cell!r}")
        cell, init = CELLS[self.cell], self.initialization
        width = cell.num_gates * self.features
        if state is None:
            zeros = jnp.zeros((*inputs.shape[1:-1], self.features), inputs.dtype)  # (..., e)
            state = (zeros,) * cell.num_states
        kernel = lambda name, init, size: self.param(name, init(self.features), (size, width))
        input_kernel = kernel("input_kernel", init.input_kernel, inputs.shape[-1])  # (d, gates e)
        recurrent_kernel = kernel("recurrent_kernel", init.recurrent_kernel, self.features)
        terms = self._terms(project(inputs, input_kernel))  # (t, ..., gates e)
        return recur(cell.step, self.reverse, recurrent_kernel, terms, state, lengths)

    def _terms(self, products: Float[Array, "t *b g"]) -> RecurrentTerms:
        """Adds the biases to the products with the inputs."""
        terms = [products]
        if self.cell == "gru":  # a gate multiplies `h U + c`, so `c` is a term of its own
            terms.append(jnp.zeros_like(products))
        if self.use_bias:
            for name, i in (("input_bias", 0), ("recurrent_bias", -1)):
                init, shape = self.initialization.bias(self.features), products.shape[-1:]
                terms[i] += with_rank(self.param(name, init, shape), products.ndim)
        return tuple(terms)


class Recurrent(nn.Module):
    """Recurrent layers over the sequences of a batch, with dropout between them.

    Attributes:
        cell, features, use_bias, initialization: as in `RecurrentLayer`; `features` is the width in
            each direction.
        num_layers: layers on top of each other.
        bidirectional: whether each layer reads from both ends. Its outputs are then those of both
            directions side by side, `2 features` wide.
        dropout_rate: share of the outputs between layers that are dropped in training.
    """

    cell: str
    features: int
    num_layers: int = 1
    bidirectional: bool = False
    use_bias: bool = True
    initialization: Initialization = torch
    dropout_rate: float = 0.0

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "b t d"],
        lengths: Int[Array, " b"] | None = None,
        *,
        train: bool = False,
    ) -> Float[Array, "b t e"]:
        """Computes outputs `(b, t, e)` of the last layer, zeros where a row has ended."""
        x = jnp.swapaxes(inputs, 0, 1)  # (t, b, d)
        for number in range(1, self.num_layers + 1):
            if number > 1:
                x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
            if self.bidirectional:
                forward, _ = self._layer(f"forward{number}")(x, lengths=lengths)  # (t, b, e)
                backward, _ = self._layer(f"backward{number}", reverse=True)(x, lengths=lengths)
                x = jnp.concatenate([forward, backward], axis=-1)  # (t, b, 2 e)
            else:
                x, _ = self._layer(f"layer{number}")(x, lengths=lengths)  # (t, b, e)
        return jnp.swapaxes(x, 0, 1)  # (b, t, e)

    def _layer(self, name: str, reverse: bool = False) -> RecurrentLayer:
        options: dict[str, Any] = {"use_bias": self.use_bias, "initialization": self.initialization}
        return RecurrentLayer(self.cell, self.features, reverse, **options, name=name)
