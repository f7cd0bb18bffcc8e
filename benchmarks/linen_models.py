"""The same models in `flax.linen` the ordinary way: its convolution, its recurrent cells in
`nn.RNN`, attention by hand.

Each function returns the module and our parameters as it names them, so that equal work can be
checked.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

Params = Any
Built = tuple[nn.Module, Params]


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        for i in range(1, 5):
            x = nn.relu(nn.Conv(64, (5,), name=f"conv{i}")(x))
        return nn.Conv(1, (5,), name="conv5")(x)


class CNNAttention(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Conv(64, (5,), name="conv1")(x))
        x = nn.relu(nn.Conv(64, (5,), name="conv2")(x))
        query, key = (nn.Dense(96, use_bias=False, name=name)(x) for name in ("query", "key"))
        weights = nn.softmax(jnp.einsum("bqd,bkd->bqk", query, key))
        x = nn.relu(
            jnp.einsum("bqk,bkd->bqd", weights, nn.Dense(64, use_bias=False, name="value")(x))
        )
        return nn.Conv(1, (5,), name="conv4")(nn.relu(nn.Conv(64, (5,), name="conv3")(x)))


class LSTM(nn.Module):
    """The batch is its time, and the state goes on from batch to batch."""

    @nn.compact
    def __call__(self, x, train=False):
        state = self.variable("carry", "state", lambda: (jnp.zeros((1, 128)), jnp.zeros((1, 128))))
        carry, states = nn.RNN(nn.OptimizedLSTMCell(128, name="cell"), return_carry=True)(
            x[None, ..., 0], initial_carry=state.value
        )
        state.value = jax.lax.stop_gradient(carry)
        return nn.Dense(100, name="dense")(states[0])[..., None]


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Dense(784, name="hidden")(x.reshape(len(x), -1)))
        return nn.Dense(10, name="logits")(x)


class PatchAttention(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = x.reshape(len(x), 4, 7, 4, 7).swapaxes(2, 3).reshape(len(x), 16, 49)
        query, key, value = (nn.Dense(49, name=name)(x) for name in ("query", "key", "value"))
        weights = nn.softmax(jnp.einsum("bqd,bkd->bqk", query, key) / 7)
        x = nn.relu(jnp.einsum("bqk,bkd->bqd", weights, value))
        return nn.Dense(10, name="logits")(x.reshape(len(x), -1))


class RNNAttention(nn.Module):
    vocabulary_size: int
    num_classes: int

    @nn.compact
    def __call__(self, inputs, train=False):
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        mask = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
        x = nn.Embed(self.vocabulary_size, 100, name="embedding")(tokens)
        x = nn.RNN(nn.SimpleCell(128, name="cell"))(x, seq_lengths=lengths)
        energies = nn.Dense(1, name="energy")(x)[..., 0]
        weights = nn.softmax(jnp.where(mask, energies, -jnp.inf))
        x = nn.Dense(100, name="hidden")(jnp.einsum("bt,btd->bd", weights, x))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.num_classes, name="logits")(x)


class GRUAttention(nn.Module):
    vocabulary_size: int
    num_classes: int

    @nn.compact
    def __call__(self, inputs, train=False):
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        mask = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
        x = nn.Embed(self.vocabulary_size, 100, name="embedding")(tokens)
        for i in (1, 2):
            x = nn.RNN(nn.GRUCell(128, name=f"cell{i}"))(x, seq_lengths=lengths)
        query, key = (nn.Dense(128, use_bias=False, name=name)(x) for name in ("query", "key"))
        energies = nn.Dense(1, use_bias=False, name="vector")(
            jnp.tanh(query[:, :, None] + key[:, None])
        )[..., 0]
        weights = nn.softmax(jnp.where(mask[:, None], energies, -jnp.inf))
        context = jnp.einsum("bqk,bkd->bqd", weights, x) * mask[..., None]
        return nn.Dense(self.num_classes, name="logits")(context.sum(axis=1) / lengths[:, None])


class DecoderStep(nn.Module):
    @nn.compact
    def __call__(self, hidden, embedded, states, keys, mask):
        query = nn.Dense(256, use_bias=False, name="query")(hidden)
        energies = nn.Dense(1, use_bias=False, name="vector")(jnp.tanh(query[:, None] + keys))[
            ..., 0
        ]
        weights = nn.softmax(jnp.where(mask, energies, -jnp.inf))
        context = jnp.einsum("bs,bsd->bd", weights, states)
        hidden, _ = nn.GRUCell(512, name="cell")(hidden, jnp.concatenate([embedded, context], -1))
        return hidden, jnp.concatenate([hidden, context], -1)


class Seq2Seq(nn.Module):
    source_vocabulary_size: int
    target_vocabulary_size: int
    dropout_rate: float

    @nn.compact
    def __call__(self, inputs, train=False):
        dropout = nn.Dropout(self.dropout_rate, deterministic=not train)
        lengths, embed = (
            inputs["source_lengths"],
            nn.Embed(self.target_vocabulary_size, 256, name="target_embedding"),
        )
        x = dropout(
            nn.Embed(self.source_vocabulary_size, 256, name="source_embedding")(inputs["source"])
        )
        forward, backward = (
            nn.RNN(nn.GRUCell(256, name="forward")),
            nn.RNN(nn.GRUCell(256, name="backward")),
        )
        states = dropout(nn.Bidirectional(forward, backward)(x, seq_lengths=lengths))
        hidden = jnp.tanh(nn.Dense(512, name="bridge")(states[:, 0, 256:]))
        embedded, keys = (
            dropout(embed(inputs["target"])),
            nn.Dense(256, use_bias=False, name="keys")(states),
        )
        mask = jnp.arange(states.shape[1])[None] < lengths[:, None]
        axes = (1, nn.broadcast, nn.broadcast, nn.broadcast)
        scan = nn.scan(
            DecoderStep,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=axes,
            out_axes=1,
        )
        _, states_and_contexts = scan(name="step")(hidden, embedded, states, keys, mask)
        outputs = jnp.tanh(
            nn.Dense(256, name="output")(jnp.concatenate([states_and_contexts, embedded], -1))
        )
        bias = self.param("logit_bias", nn.initializers.zeros, (self.target_vocabulary_size,))
        return embed.attend(dropout(outputs)) + bias


def cnn(params: Params, sizes: dict[str, int]) -> Built:
    return CNN(), params


def cnn_attention(params: Params, sizes: dict[str, int]) -> Built:
    attention = {
        name: {"kernel": params["attention"][f"{name}_kernel"]}
        for name in ("query", "key", "value")
    }
    return CNNAttention(), {
        name: part for name, part in params.items() if name != "attention"
    } | attention


def lstm(params: Params, sizes: dict[str, int]) -> Built:
    part = params["lstm"]
    bias = np.split(part["input_bias"] + part["recurrent_bias"], 4)
    cell = {
        f"i{gate}": {"kernel": kernel}
        for gate, kernel in zip("ifgo", np.split(part["input_kernel"], 4, axis=1))
    }
    for gate, kernel, b in zip("ifgo", np.split(part["recurrent_kernel"], 4, axis=1), bias):
        cell[f"h{gate}"] = {"kernel": kernel, "bias": b}
    return LSTM(), {"cell": cell, "dense": params["dense"]}


def mlp(params: Params, sizes: dict[str, int]) -> Built:
    return MLP(), params


def patch_attention(params: Params, sizes: dict[str, int]) -> Built:
    part = params["attention"]
    attention = {
        name: {kind: part[f"{name}_{kind}"] for kind in ("kernel", "bias")}
        for name in ("query", "key", "value")
    }
    return PatchAttention(), {"logits": params["logits"]} | attention


def rnn_attention(params: Params, sizes: dict[str, int]) -> Built:
    part = params["recurrent"]["layer1"]
    cell = {
        "i": {"kernel": part["input_kernel"], "bias": part["input_bias"] + part["recurrent_bias"]}
    }
    cell |= {"h": {"kernel": part["recurrent_kernel"]}}
    kept = {name: params[name] for name in ("embedding", "hidden", "logits")}
    return RNNAttention(**sizes), kept | {"cell": cell, "energy": params["attention"]["energy"]}


def gru_attention(params: Params, sizes: dict[str, int]) -> Built:
    score, layers = params["score"], params["recurrent"]
    cells = {
        f"cell{i}": gru(
            layers[f"layer{i}"]["input_kernel"], layers[f"layer{i}"]["recurrent_kernel"], None, None
        )
        for i in (1, 2)
    }
    attention = {name: {"kernel": score[f"{name}_kernel"]} for name in ("query", "key")} | {
        "vector": {"kernel": score["vector"][:, None]}
    }
    return GRUAttention(**sizes), {
        name: params[name] for name in ("embedding", "logits")
    } | cells | attention


def seq2seq(params: Params, sizes: dict[str, int], dropout_rate: float) -> Built:
    step = params["step"]
    kinds = ("input_kernel", "recurrent_kernel", "input_bias", "recurrent_bias")
    encoder = {
        name: gru(*(params["encoder"][f"{name}1"][kind] for kind in kinds))
        for name in ("forward", "backward")
    }
    read = np.concatenate([params["inputs"]["kernel"], step["read_kernel"]])
    decoder = {
        "query": {"kernel": step["score"]["query_kernel"]},
        "vector": {"kernel": step["score"]["vector"][:, None]},
        "cell": gru(
            read, step["recurrent_kernel"], params["inputs"]["bias"], step["recurrent_bias"]
        ),
    }
    kernel = np.concatenate([params["output"]["kernel"], params["output_of_embedding"]["kernel"]])
    kept = {
        name: params[name]
        for name in ("source_embedding", "target_embedding", "bridge", "keys", "logit_bias")
    }
    output = {"output": {"kernel": kernel, "bias": params["output"]["bias"]}}
    return Seq2Seq(**sizes, dropout_rate=dropout_rate), kept | encoder | {"step": decoder} | output


def gru(
    input_kernel: Any, recurrent_kernel: Any, input_bias: Any, recurrent_bias: Any
) -> Mapping[str, Any]:
    """The parameters of an `nn.GRUCell`, with one bias a gate, and one more for the new state."""
    width = len(recurrent_kernel)
    zeros = np.zeros(3 * width, np.float32)
    inputs, hidden = (
        zeros if bias is None else np.asarray(bias) for bias in (input_bias, recurrent_bias)
    )
    biases = [
        inputs[:width] + hidden[:width],
        inputs[width : 2 * width] + hidden[width : 2 * width],
        inputs[2 * width :],
    ]
    cell = {
        f"i{g}": {"kernel": k, "bias": b}
        for g, k, b in zip("rzn", np.split(input_kernel, 3, axis=1), biases)
    }
    cell |= {f"h{g}": {"kernel": k} for g, k in zip("rzn", np.split(recurrent_kernel, 3, axis=1))}
    return cell | {"hn": cell["hn"] | {"bias": hidden[2 * width :]}}
