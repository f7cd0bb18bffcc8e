"""The recurrent encoder-decoder in PyTorch, as its tutorials write it: a loop over the decoder's steps in Python."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Seq2Seq(nn.Module):
    """Bidirectional GRU, Bahdanau's decoder with keys projected once, logits by the target's embeddings."""

    def __init__(self, source_size: int, target_size: int, embedding: int, features: int, attention: int, dropout: float):
        super().__init__()
        self.source_embedding, self.target_embedding = nn.Embedding(source_size, embedding), nn.Embedding(target_size, embedding)
        self.encoder = nn.GRU(embedding, features // 2, bidirectional=True, batch_first=True)
        self.keys = nn.Linear(features, attention, bias=False)
        self.bridge = nn.Linear(features // 2, features)
        self.query = nn.Linear(features, attention, bias=False)
        self.vector = nn.Linear(attention, 1, bias=False)
        self.cell = nn.GRUCell(embedding + features, features)
        self.output = nn.Linear(2 * features + embedding, embedding)
        self.logit_bias = nn.Parameter(torch.zeros(target_size))
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.dropout(self.source_embedding(source)), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        states = self.dropout(states)
        keys, hidden = self.keys(states), torch.tanh(self.bridge(states[:, 0, states.shape[-1] // 2 :]))
        mask = torch.arange(states.shape[1])[None] < lengths[:, None]
        embedded, found = self.dropout(self.target_embedding(target)), []
        for i in range(target.shape[1]):
            energies = self.vector(torch.tanh(self.query(hidden)[:, None] + keys))[..., 0]
            weights = energies.masked_fill(~mask, -torch.inf).softmax(-1)
            context = (weights[:, None] @ states)[:, 0]
            hidden = self.cell(torch.cat([embedded[:, i], context], -1), hidden)
            found.append(torch.cat([hidden, context], -1))
        outputs = torch.tanh(self.output(torch.cat([torch.stack(found, 1), embedded], -1)))
        return nn.functional.linear(self.dropout(outputs), self.target_embedding.weight, self.logit_bias)


def build(model: Any, params: Any) -> Seq2Seq:
    """The model of the same sizes as ours, with our parameters copied in."""
    sizes = (model.source_vocabulary_size, model.target_vocabulary_size, model.embedding_features, model.features)
    built = Seq2Seq(*sizes, model.attention_features, model.dropout_rate)
    tensor = lambda array: torch.from_numpy(np.array(array))
    turned = lambda array: tensor(array).T.contiguous()
    step = params["step"]
    built.source_embedding.weight.data = tensor(params["source_embedding"]["embedding"])
    built.target_embedding.weight.data = tensor(params["target_embedding"]["embedding"])
    for ours, theirs in (("forward1", "l0"), ("backward1", "l0_reverse")):
        for kind, name in (("input", "ih"), ("recurrent", "hh")):
            getattr(built.encoder, f"weight_{name}_{theirs}").data = turned(params["encoder"][ours][f"{kind}_kernel"])
            getattr(built.encoder, f"bias_{name}_{theirs}").data = tensor(params["encoder"][ours][f"{kind}_bias"])
    built.keys.weight.data = turned(params["keys"]["kernel"])
    built.bridge.weight.data, built.bridge.bias.data = turned(params["bridge"]["kernel"]), tensor(params["bridge"]["bias"])
    built.query.weight.data = turned(step["score"]["query_kernel"])
    built.vector.weight.data = tensor(step["score"]["vector"])[None]
    built.cell.weight_ih.data = turned(np.concatenate([params["inputs"]["kernel"], step["read_kernel"]]))
    built.cell.bias_ih.data = tensor(params["inputs"]["bias"])
    built.cell.weight_hh.data, built.cell.bias_hh.data = turned(step["recurrent_kernel"]), tensor(step["recurrent_bias"])
    built.output.weight.data = turned(np.concatenate([params["output"]["kernel"], params["output_of_embedding"]["kernel"]]))
    built.output.bias.data = tensor(params["output"]["bias"])
    built.logit_bias.data = tensor(params["logit_bias"])
    return built


def trainer(model: Seq2Seq, batch: Any, learning_rate: float, clip_norm: float, label_smoothing: float) -> Callable[..., Tensor]:
    """A training step on one batch with Adam and clipping; returns the loss before the step. `train=False` is the loss without dropout."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    inputs = [torch.from_numpy(np.array(batch["inputs"][name])).long() for name in ("source", "source_lengths", "target")]
    labels = torch.from_numpy(np.array(batch["targets"])).long()

    def loss_of(smoothing: float) -> Tensor:
        logits = model(*inputs)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=smoothing)

    def step(train: bool = True, smoothing: float = 0.0) -> Tensor:
        model.train(train)
        if not train:
            with torch.no_grad():
                return loss_of(smoothing)
        optimizer.zero_grad()
        loss = loss_of(label_smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        return loss.detach()

    return step
