"""Recurrent models of the shapes task: the published one, and a fair one.

Both are made of the LSTM of `recurrent`.
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flax_attn.models.forward import SignalOutputs
from flax_attn.models.initializers import torch
from flax_attn.models.recurrent import Recurrent, RecurrentLayer


class LSTM(nn.Module):
    """The tutorial's LSTM, whose recurrence carries nothing useful.

    It reads a whole signal as ONE time step, and its time axis is the batch. The state goes from
    one example to the next, though they are unrelated, and on into the next batch. So this is a
    gated dense layer with noise from its neighbours in the batch. It is kept as published, so that
    figures compare; `BiLSTM` is the fair model. It has 130,660 parameters on signals of 100 points.

    The state is the collection `carry`, without gradient across batches. Reset it before every
    epoch and evaluation.

    Attributes:
        features: width of the hidden state.
    """

    features: int = 128

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t c"], *, train: bool = False) -> SignalOutputs:
        hidden = self.variable("carry", "hidden", jnp.zeros, (self.features,))  # (features,)
        memory = self.variable("carry", "memory", jnp.zeros, (self.features,))  # (features,)
        signals = inputs.reshape(inputs.shape[0], -1)  # (b, t c), and b is the time
        layer = RecurrentLayer("lstm", self.features, name="lstm")
        states, (last_hidden, last_memory) = layer(signals, (hidden.value, memory.value))
        if not self.is_initializing() and self.is_mutable_collection("carry"):
            hidden.value, memory.value = jax.lax.stop_gradient((last_hidden, last_memory))
        outputs = torch.dense(signals.shape[-1], self.features, "dense")(states)  # (b, t c)
        return outputs.reshape(inputs.shape), {}


class BiLSTM(nn.Module):
    """A bidirectional LSTM along the sequence, with a dense layer on both states of each position.

    Source: Graves & Schmidhuber 2005, "Framewise phoneme classification with bidirectional LSTM".

    Attributes:
        features: width of the hidden state in each direction.
        num_classes: channels of the output: 1 for a signal or a number, or one a class.
    """

    features: int = 64
    num_classes: int = 1

    @nn.compact
    def __call__(self, inputs: Float[Array, "b t d"], *, train: bool = False) -> SignalOutputs:
        recurrent = Recurrent("lstm", self.features, bidirectional=True, name="recurrent")
        states = recurrent(inputs)  # (b, t, 2 e)
        outputs = torch.dense(self.num_classes, 2 * self.features, "dense")(states)
        chex.assert_shape(outputs, (*inputs.shape[:2], self.num_classes))
        return outputs, {}
