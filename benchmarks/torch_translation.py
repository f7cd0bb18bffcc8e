"""The recurrent encoder-decoder in PyTorch, as its tutorials write it: a loop over the decoder's
steps in Python.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.torch_models import load_dense, load_recurrent, tensor, turned


class Seq2Seq(nn.Module):
    """Bidirectional GRU, Bahdanau's decoder with keys projected once, logits by the target's
    embeddings.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        embedding: int,
        features: int,
        attention: int,
        dropout: float,
    ):
        super().__init__()
        self.source_embedding, self.target_embedding = (
            nn.Embedding(source_size, embedding),
            nn.Embedding(target_size, embedding),
        )
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
        packed = pack_padded_sequence(
            self.dropout(self.source_embedding(source)),
            lengths,
            batch_first=True,
            enforce_sorted=False,
        )
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        states = self.dropout(states)
        keys, hidden = (
            self.keys(states),
            torch.tanh(self.bridge(states[:, 0, states.shape[-1] // 2 :])),
        )
        mask = torch.arange(states.shape[1])[None] < lengths[:, None]
        embedded, states_and_contexts = self.dropout(self.target_embedding(target)), []
        for i in range(target.shape[1]):
            energies = self.vector(torch.tanh(self.query(hidden)[:, None] + keys))[..., 0]
            weights = energies.masked_fill(~mask, -torch.inf).softmax(-1)
            context = (weights[:, None] @ states)[:, 0]
            hidden = self.cell(torch.cat([embedded[:, i], context], -1), hidden)
            states_and_contexts.append(torch.cat([hidden, context], -1))
        outputs = torch.tanh(
            self.output(torch.cat([torch.stack(states_and_contexts, 1), embedded], -1))
        )
        return nn.functional.linear(
            self.dropout(outputs), self.target_embedding.weight, self.logit_bias
        )


def seq2seq(params: Any, sizes: dict[str, int], dropout_rate: float) -> Seq2Seq:
    """Returns the model of `translate_multi30k` with our parameters copied in."""
    step, embedding = params["step"], params["target_embedding"]["embedding"]
    features, attention = step["score"]["query_kernel"].shape
    model = Seq2Seq(*sizes.values(), embedding.shape[1], features, attention, dropout_rate)
    model.source_embedding.weight.data = tensor(params["source_embedding"]["embedding"])
    model.target_embedding.weight.data = tensor(embedding)
    load_recurrent(model.encoder, params["encoder"]["forward1"])
    load_recurrent(model.encoder, params["encoder"]["backward1"], "l0_reverse")
    model.keys.weight.data = turned(params["keys"]["kernel"])
    load_dense(model.bridge, params["bridge"])
    model.query.weight.data = turned(step["score"]["query_kernel"])
    model.vector.weight.data = tensor(step["score"]["vector"])[None]
    model.cell.weight_ih.data = turned(
        np.concatenate([params["inputs"]["kernel"], step["read_kernel"]])
    )
    model.cell.bias_ih.data = tensor(params["inputs"]["bias"])
    model.cell.weight_hh.data, model.cell.bias_hh.data = (
        turned(step["recurrent_kernel"]),
        tensor(step["recurrent_bias"]),
    )
    kernel = np.concatenate([params["output"]["kernel"], params["output_of_embedding"]["kernel"]])
    load_dense(model.output, {"kernel": kernel, "bias": params["output"]["bias"]})
    model.logit_bias.data = tensor(params["logit_bias"])
    return model
