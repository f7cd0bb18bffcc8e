"""Recurrent models of the shapes task: the published one, and a fair one.

    i, f, g, o = split(x W_x + b_x + h W_h + b_h)
    c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(c')

Source: Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000, in PyTorch's form, which has two biases.
The products with the inputs stand outside the recurrence, as one.
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.attention.projection import project
from flax_attn.models.initializers import torch_kernel, torch_uniform


class LSTMLayer(nn.Module):
    """An LSTM over the first axis: `(t, ..., d)` and a state of two `(..., features)` to `(t, ..., features)` and the next state."""

    features: int
    reverse: bool = False
    unroll: int = 1

    @nn.compact
    def __call__(self, inputs: Float[Array, "t *b d"], state: tuple[Array, Array]) -> tuple[Float[Array, "t *b e"], tuple[Array, Array]]:
        init, width = torch_uniform(self.features), 4 * self.features
        input_kernel = self.param("input_kernel", init, (inputs.shape[-1], width))
        recurrent_kernel = self.param("recurrent_kernel", init, (self.features, width))
        bias = self.param("input_bias", init, (width,)) + self.param("recurrent_bias", init, (width,))
        projected = project(inputs, input_kernel)
        projected = projected + bias.reshape((1,) * (projected.ndim - 1) + (-1,))  # (t, ..., 4 e)

        def cell(state: tuple[Array, Array], projection: Array) -> tuple[tuple[Array, Array], Array]:
            hidden, memory = state
            i, f, g, o = jnp.split(projection + jnp.einsum("...e,eg->...g", hidden, recurrent_kernel), 4, axis=-1)
            memory = nn.sigmoid(f) * memory + nn.sigmoid(i) * jnp.tanh(g)
            hidden = nn.sigmoid(o) * jnp.tanh(memory)
            return (hidden, memory), hidden

        state, hidden = jax.lax.scan(cell, state, projected, reverse=self.reverse, unroll=self.unroll)
        return hidden, state


class LSTM(nn.Module):
    """The tutorial's LSTM, whose recurrence carries nothing useful: 130,660 parameters on signals of 100 points.

    It reads a whole signal as ONE time step, and its time axis is the batch: the state runs from one example to the
    next, which has nothing to do with it, and on into the next batch. So this is a gated dense layer with noise from
    its neighbours in the batch. It is kept as published, so that figures compare; `BiLSTM` is the fair model.

    The state is the collection `carry`, without gradient across batches. Reset it before every epoch and evaluation.

    Attributes:
        features: width of the hidden state.
    """

    features: int = 128

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t c"], *, train: bool = False) -> tuple[Float[Array, "b t c"], dict]:
        hidden = self.variable("carry", "hidden", jnp.zeros, (self.features,))
        memory = self.variable("carry", "memory", jnp.zeros, (self.features,))
        signals = inputs.reshape(inputs.shape[0], -1)  # (b, t c), and b is the time
        # Unrolled by two, a step costs 0.87 of what it does in a plain scan; with a batch in the state, as in BiLSTM, 1.2.
        states, (last_hidden, last_memory) = LSTMLayer(self.features, unroll=2, name="lstm")(signals, (hidden.value, memory.value))
        if not self.is_initializing() and self.is_mutable_collection("carry"):
            hidden.value, memory.value = jax.lax.stop_gradient((last_hidden, last_memory))
        outputs = nn.Dense(signals.shape[-1], kernel_init=torch_kernel, bias_init=torch_uniform(self.features), name="dense")(states)
        return outputs.reshape(inputs.shape), {}


class BiLSTM(nn.Module):
    """A bidirectional LSTM along the sequence, with a dense layer on both states of each position.

    Source: Graves & Schmidhuber 2005, "Framewise phoneme classification with bidirectional LSTM".

    Attributes:
        features: width of the hidden state in each direction.
    """

    features: int = 64

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t c"], *, train: bool = False) -> tuple[Float[Array, "b t 1"], dict]:
        sequence = jnp.swapaxes(inputs, 0, 1)  # (t, b, c)
        zeros = jnp.zeros((inputs.shape[0], self.features), inputs.dtype)
        forward, _ = LSTMLayer(self.features, name="forward")(sequence, (zeros, zeros))
        backward, _ = LSTMLayer(self.features, reverse=True, name="backward")(sequence, (zeros, zeros))
        both = jnp.swapaxes(jnp.concatenate([forward, backward], axis=-1), 0, 1)  # (b, t, 2 e)
        outputs = nn.Dense(1, kernel_init=torch_kernel, bias_init=torch_uniform(2 * self.features), name="dense")(both)
        chex.assert_shape(outputs, (*inputs.shape[:2], 1))
        return outputs, {}
