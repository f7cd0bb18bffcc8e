"""The tutorial's three models in PyTorch, with parameters copied from ours, so that equal work can be checked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn


class Attention(nn.Module):
    """Unscaled dot-product self-attention over channels-first signals."""

    def __init__(self, features: int, key_features: int):
        super().__init__()
        self.query = nn.Conv1d(features, key_features, 1, bias=False)
        self.key = nn.Conv1d(features, key_features, 1, bias=False)
        self.value = nn.Conv1d(features, features, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = (self.query(x).transpose(1, 2) @ self.key(x)).softmax(-1)
        return (weights @ self.value(x).transpose(1, 2)).transpose(1, 2)


class LSTM(nn.Module):
    """The tutorial's LSTM, which takes the batch for its time axis and keeps its state, without gradient, between batches."""

    def __init__(self):
        super().__init__()
        self.lstm, self.dense = nn.LSTM(100, 128), nn.Linear(128, 100)
        self.state = (torch.zeros(1, 1, 128), torch.zeros(1, 1, 128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, state = self.lstm(x, self.state)
        self.state = tuple(part.detach() for part in state)
        return self.dense(states)


def conv(d: int, e: int) -> nn.Conv1d:
    return nn.Conv1d(d, e, 5, padding=2)


def build(name: str, params: Any) -> nn.Module:
    """The model of a config's name with the given parameters, ours, copied in."""
    tensor = lambda array: torch.from_numpy(np.array(array))

    def load_conv(layer: nn.Conv1d, part: dict) -> None:
        layer.weight.data, layer.bias.data = tensor(part["kernel"]).permute(2, 1, 0).contiguous(), tensor(part["bias"])

    if name == "cnn":
        layers = [conv(1, 64), nn.ReLU(), conv(64, 64), nn.ReLU(), conv(64, 64), nn.ReLU(), conv(64, 64), nn.ReLU(), conv(64, 1)]
        for i in range(5):
            load_conv(layers[2 * i], params[f"conv{i + 1}"])  # pyright: ignore
        return nn.Sequential(*layers)
    if name == "cnn_attention":
        attention = Attention(64, 96)
        for part in ("query", "key", "value"):
            getattr(attention, part).weight.data = tensor(params["attention"][f"{part}_kernel"]).T[..., None].contiguous()
        layers = [conv(1, 64), nn.ReLU(), conv(64, 64), nn.ReLU(), attention, nn.ReLU(), conv(64, 64), nn.ReLU(), conv(64, 1)]
        for i, place in enumerate((0, 2, 6, 8)):
            load_conv(layers[place], params[f"conv{i + 1}"])  # pyright: ignore
        return nn.Sequential(*layers)
    model, part = LSTM(), params["lstm"]
    model.lstm.weight_ih_l0.data = tensor(part["input_kernel"]).T.contiguous()
    model.lstm.weight_hh_l0.data = tensor(part["recurrent_kernel"]).T.contiguous()
    model.lstm.bias_ih_l0.data, model.lstm.bias_hh_l0.data = tensor(part["input_bias"]), tensor(part["recurrent_bias"])
    model.dense.weight.data, model.dense.bias.data = tensor(params["dense"]["kernel"]).T.contiguous(), tensor(params["dense"]["bias"])
    return model


def trainer(model: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> Callable[[], float]:
    """A training step on one batch `(b, 100, 1)` with the tutorial's optimiser; returns the loss before the step."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), eps=1e-5)
    x, y = (torch.from_numpy(np.array(array)).transpose(1, 2).contiguous() for array in (inputs, targets))

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()  # pyright: ignore

    return step
