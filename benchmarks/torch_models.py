"""The tutorials' models in PyTorch as they write them, with parameters copied from ours, so that
equal work can be checked.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Unscaled dot-product self-attention over channels-first signals."""

    def __init__(self, features: int, key_features: int):
        super().__init__()
        self.query = nn.Conv1d(features, key_features, 1, bias=False)
        self.key = nn.Conv1d(features, key_features, 1, bias=False)
        self.value = nn.Conv1d(features, features, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.query(x).transpose(1, 2) @ self.key(x)).softmax(-1)
        return (weights @ self.value(x).transpose(1, 2)).transpose(1, 2)


class LSTM(nn.Module):
    """The tutorial's LSTM, which takes the batch for its time axis and keeps its state, without
    gradient, between batches.
    """

    def __init__(self):
        super().__init__()
        self.lstm, self.dense = nn.LSTM(100, 128), nn.Linear(128, 100)
        self.reset()

    def reset(self) -> None:
        self.state = (torch.zeros(1, 1, 128), torch.zeros(1, 1, 128))

    def forward(self, x: Tensor) -> Tensor:
        states, state = self.lstm(x, self.state)
        self.state = tuple(part.detach() for part in state)
        return self.dense(states)


class PatchAttention(nn.Module):
    """One self-attention between 16 patches of 7 x 7 pixels."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(49, 49), nn.Linear(49, 49), nn.Linear(49, 49)
        self.logits = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unfold(1, 7, 7).unfold(2, 7, 7).reshape(len(x), 16, 49)
        weights = (self.query(x) @ self.key(x).transpose(1, 2) / 7).softmax(-1)
        return self.logits((weights @ self.value(x)).relu().flatten(1))


class RNNAttention(nn.Module):
    """A tanh RNN over words, attention pooling, two dense layers."""

    def __init__(self, vocabulary_size: int, num_classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, 100, padding_idx=0)
        self.recurrent = nn.RNN(100, 128, batch_first=True)
        self.energy, self.hidden, self.logits = (
            nn.Linear(128, 1),
            nn.Linear(128, 100),
            nn.Linear(100, num_classes),
        )
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(tokens))
        mask = torch.arange(tokens.shape[1])[None] < lengths[:, None]
        weights = self.energy(states)[..., 0].masked_fill(~mask, -torch.inf).softmax(-1)
        return self.logits(self.dropout(self.hidden((weights[..., None] * states).sum(1))))


class GRUAttention(nn.Module):
    """Two GRU layers, additive attention of their states on themselves, the mean over the words."""

    def __init__(self, vocabulary_size: int, num_classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, 100, padding_idx=0)
        self.recurrent = nn.GRU(100, 128, num_layers=2, bias=False, batch_first=True)
        self.query, self.key, self.vector = (nn.Linear(128, n, bias=False) for n in (128, 128, 1))
        self.logits = nn.Linear(128, num_classes)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(tokens))
        mask = torch.arange(tokens.shape[1])[None] < lengths[:, None]
        energies = self.vector(
            torch.tanh(self.query(states)[:, :, None] + self.key(states)[:, None])
        )[..., 0]
        context = energies.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ states
        return self.logits((context * mask[..., None]).sum(1) / lengths[:, None])


def tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array))


def turned(array: Any) -> Tensor:
    return tensor(array).T.contiguous()


def load_dense(layer: nn.Linear, part: Any) -> None:
    layer.weight.data, layer.bias.data = turned(part["kernel"]), tensor(part["bias"])


def load_recurrent(layer: Any, part: Any, suffix: str = "l0") -> None:
    """Loads a layer of `nn.RNN`, `nn.GRU` or `nn.LSTM`."""
    for kind, name in (("input", "ih"), ("recurrent", "hh")):
        getattr(layer, f"weight_{name}_{suffix}").data = turned(part[f"{kind}_kernel"])
        if f"{kind}_bias" in part:
            getattr(layer, f"bias_{name}_{suffix}").data = tensor(part[f"{kind}_bias"])


def conv(d: int, e: int) -> nn.Conv1d:
    return nn.Conv1d(d, e, 5, padding=2)


def load_conv(layer: nn.Conv1d, part: Any) -> None:
    layer.weight.data, layer.bias.data = (
        tensor(part["kernel"]).permute(2, 1, 0).contiguous(),
        tensor(part["bias"]),
    )


def cnn(params: Any, sizes: dict[str, int]) -> nn.Module:
    layers = [
        conv(1, 64),
        nn.ReLU(),
        conv(64, 64),
        nn.ReLU(),
        conv(64, 64),
        nn.ReLU(),
        conv(64, 64),
        nn.ReLU(),
        conv(64, 1),
    ]
    for i in range(5):
        load_conv(layers[2 * i], params[f"conv{i + 1}"])  # pyright: ignore
    return nn.Sequential(*layers)


def cnn_attention(params: Any, sizes: dict[str, int]) -> nn.Module:
    attention = Attention(64, 96)
    for part in ("query", "key", "value"):
        getattr(attention, part).weight.data = turned(params["attention"][f"{part}_kernel"])[
            ..., None
        ]
    layers = [
        conv(1, 64),
        nn.ReLU(),
        conv(64, 64),
        nn.ReLU(),
        attention,
        nn.ReLU(),
        conv(64, 64),
        nn.ReLU(),
        conv(64, 1),
    ]
    for i, place in enumerate((0, 2, 6, 8)):
        load_conv(layers[place], params[f"conv{i + 1}"])  # pyright: ignore
    return nn.Sequential(*layers)


def lstm(params: Any, sizes: dict[str, int]) -> nn.Module:
    model = LSTM()
    load_recurrent(model.lstm, params["lstm"])
    load_dense(model.dense, params["dense"])
    return model


def mlp(params: Any, sizes: dict[str, int]) -> nn.Module:
    hidden, logits = nn.Linear(784, 784), nn.Linear(784, 10)
    load_dense(hidden, params["hidden"])
    load_dense(logits, params["logits"])
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), logits)


def patch_attention(params: Any, sizes: dict[str, int]) -> nn.Module:
    model = PatchAttention()
    for name in ("query", "key", "value"):
        load_dense(
            getattr(model, name),
            {kind: params["attention"][f"{name}_{kind}"] for kind in ("kernel", "bias")},
        )
    load_dense(model.logits, params["logits"])
    return model


def rnn_attention(params: Any, sizes: dict[str, int]) -> nn.Module:
    model = RNNAttention(**sizes)
    model.embedding.weight.data = tensor(params["embedding"]["embedding"])
    load_recurrent(model.recurrent, params["recurrent"]["layer1"])
    load_dense(model.energy, params["attention"]["energy"])
    load_dense(model.hidden, params["hidden"])
    load_dense(model.logits, params["logits"])
    return model


def gru_attention(params: Any, sizes: dict[str, int]) -> nn.Module:
    model, score = GRUAttention(**sizes), params["score"]
    model.embedding.weight.data = tensor(params["embedding"]["embedding"])
    for i in (1, 2):
        load_recurrent(model.recurrent, params["recurrent"][f"layer{i}"], f"l{i - 1}")
    model.query.weight.data, model.key.weight.data = (
        turned(score["query_kernel"]),
        turned(score["key_kernel"]),
    )
    model.vector.weight.data = tensor(score["vector"])[None]
    load_dense(model.logits, params["logits"])
    return model
