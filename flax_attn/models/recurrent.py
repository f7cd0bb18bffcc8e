"""Recurrent layers with nothing in the recurrence but what must be: neither the products with the inputs nor the kernel's gradient.

    rnn    h' = tanh(x W + b + h U + c)
    gru    r, z = sigmoid(x W + b + h U + c),   n = tanh(x W_n + b_n + r (h U_n + c_n)),   h' = (1 - z) n + z h
    lstm   i, f, g, o = x W + b + h U + c,   m' = sigmoid(f) m + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(m')

Source: Elman 1990; Cho et al. 2014 (arXiv:1406.1078); Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000;
all in PyTorch's form, which has two biases.
"""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flax_attn.attention.projection import project
from flax_attn.models import lstm_recurrence
from flax_attn.models.initializers import Initialization, torch

State = tuple[Array, ...]  # the hidden state first


def rnn(state: State, inputs: Array, products: Array) -> State:
    """`inputs` are the products `x W + b`, and `products` is `h U + c`; likewise below."""
    return (jnp.tanh(inputs + products),)


def gru(state: State, inputs: Array, products: Array) -> State:
    (hidden,) = state
    width = hidden.shape[-1]
    reset, update = jnp.split(nn.sigmoid(inputs[..., : 2 * width] + products[..., : 2 * width]), 2, axis=-1)
    new = jnp.tanh(inputs[..., 2 * width :] + reset * products[..., 2 * width :])
    return ((1 - update) * new + update * hidden,)


def lstm(state: State, inputs: Array, products: Array) -> State:
    _, memory = state
    i, f, g, o = jnp.split(inputs + products, 4, axis=-1)
    memory = nn.sigmoid(f) * memory + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(memory), memory


CELLS = {"rnn": (rnn, 1, 1), "gru": (gru, 3, 1), "lstm": (lstm, 4, 2)}  # the function, its gates, the parts of its state
Step = Callable[[State, Array, Array], State]
Terms = tuple[Array, ...]  # (t, ..., gates e): `x W + b + c`, or for a GRU `x W + b` and `c`; the last has the gradient of `h U`


def run(step: Step, reverse: bool, kernel: Array, terms: Terms, state: State, lengths: Array | None) -> tuple[Array, State, Array]:
    """The hidden states `(t, ..., e)`, zeros where a row has ended, the last state, and the hidden state before each step."""

    def body(state: State, step_terms: tuple[Terms, Array]) -> tuple[State, tuple[Array, Array]]:
        (inputs, *added), place = step_terms
        new = step(state, inputs, sum(added, jnp.einsum("...e,eg->...g", state[0], kernel)))
        if lengths is None:
            return new, (new[0], state[0])
        going = (place < lengths)[..., None]
        kept = tuple(jnp.where(going, a, b) for a, b in zip(new, state))
        return kept, (jnp.where(going, new[0], 0), state[0])

    last, (hidden, before) = jax.lax.scan(body, state, (terms, jnp.arange(len(terms[0]))), reverse=reverse)
    return hidden, last, before


def recur(step: Step, reverse: bool, kernel: Array, terms: Terms, state: State, lengths: Array | None) -> tuple[Array, State]:
    """Hidden states and the last state of a `run`, of an LSTM by the recurrence of its own. There is no forward mode."""
    if step is lstm:
        (inputs,) = terms
        return lstm_recurrence.recur(reverse, kernel, inputs, state, lengths)
    return _recur(step, reverse, kernel, terms, state, lengths)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _recur(step: Step, reverse: bool, kernel: Array, terms: Terms, state: State, lengths: Array | None) -> tuple[Array, State]:
    """A `run` with the gradient of the kernel as one product.

    Differentiated as it stands, the loop would add `h^T dz` to that gradient in every step: more memory to pass over than
    all the rest, and `t` small products in place of `sum_t h_t^T dz_t`, one large.
    """
    return run(step, reverse, kernel, terms, state, lengths)[:2]


def _recur_forward(step: Step, reverse: bool, kernel: Array, terms: Terms, state: State, lengths: Array | None) -> tuple:
    def loop(terms: Terms, state: State) -> tuple[tuple[Array, State], Array]:
        hidden, last, before = run(step, reverse, kernel, terms, state, lengths)
        return (hidden, last), before

    outputs, pull_back, before = jax.vjp(loop, terms, state, has_aux=True)
    return outputs, (pull_back, before)


def _recur_backward(step: Step, reverse: bool, residuals: tuple, cotangents: tuple[Array, State]) -> tuple:
    pull_back, before = residuals
    terms, state = pull_back(cotangents)
    leading = list(range(before.ndim - 1))
    return jnp.tensordot(before, terms[-1], (leading, leading)), terms, state, None


_recur.defvjp(_recur_forward, _recur_backward)


class RecurrentLayer(nn.Module):
    """A recurrent layer over the first axis: `(t, ..., d)` and a state of `(..., features)` to `(t, ..., features)` and the next state.

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
        self, inputs: Float[Array, "t *b d"], state: State | None = None, lengths: Int[Array, "*b"] | None = None
    ) -> tuple[Float[Array, "t *b e"], State]:
        """Runs over the inputs from a state, or from zeros; where a row has ended, by `lengths`, outputs are zeros and the state stays."""
        if self.cell not in CELLS:
            raise ValueError(f"expected a cell of {', '.join(CELLS)}, got {self.cell!r}")
        step, gates, parts = CELLS[self.cell]
        leading, width = inputs.shape[1:-1], gates * self.features
        if state is None:
            state = (jnp.zeros((*leading, self.features), inputs.dtype),) * parts
        input_kernel = self.param("input_kernel", self.initialization.input_kernel(self.features), (inputs.shape[-1], width))
        recurrent_kernel = self.param("recurrent_kernel", self.initialization.recurrent_kernel(self.features), (self.features, width))
        terms = [project(inputs, input_kernel)]  # (t, ..., gates e)
        if self.cell == "gru":  # which multiplies a part of the products by a gate: their gradient is that of a term of their own
            terms.append(jnp.zeros_like(terms[0]))
        if self.use_bias:
            for name, i in (("input_bias", 0), ("recurrent_bias", -1)):
                bias = self.param(name, self.initialization.bias(self.features), (width,))
                terms[i] += bias.reshape((1,) * (inputs.ndim - 1) + (-1,))
        return recur(step, self.reverse, recurrent_kernel, tuple(terms), state, lengths)


class Recurrent(nn.Module):
    """Recurrent layers over the sequences of a batch, in one direction or both, with dropout between them.

    Attributes:
        cell, features, use_bias, initialization: as in `RecurrentLayer`; `features` is the width in each direction.
        num_layers: layers on top of each other.
        bidirectional: whether each layer reads from both ends; its outputs are then joined, `2 features` wide.
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
        self, inputs: Float[Array, "b t d"], lengths: Int[Array, " b"] | None = None, *, train: bool = False
    ) -> Float[Array, "b t e"]:
        """Outputs `(b, t, e)` of the last layer, zeros where a row has ended."""
        x = jnp.swapaxes(inputs, 0, 1)  # (t, b, d)
        for i in range(1, self.num_layers + 1):
            if i > 1:
                x = nn.Dropout(self.dropout_rate, deterministic=not train)(x)
            layer = functools.partial(self._layer, x, lengths, i)
            if self.bidirectional:
                x = jnp.concatenate([layer("forward", False), layer("backward", True)], axis=-1)
            else:
                x = layer("layer", False)
        return jnp.swapaxes(x, 0, 1)

    def _layer(self, inputs: Array, lengths: Array | None, number: int, name: str, reverse: bool) -> Array:
        options = (self.cell, self.features, reverse, self.use_bias, self.initialization)
        return RecurrentLayer(*options, name=f"{name}{number}")(inputs, lengths=lengths)[0]
