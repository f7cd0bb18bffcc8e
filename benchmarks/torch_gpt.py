"""A GPT in PyTorch as nanoGPT builds it, with parameters copied from ours: one product for queries,
keys and values, PyTorch's fused attention, and embeddings that serve twice.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-6  # of the norms, as ours


class Block(nn.Module):
    def __init__(self, features: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(features, EPSILON)
        self.project = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.feed_forward_norm = nn.LayerNorm(features, EPSILON)
        self.feed_forward = nn.Sequential(
            nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features)
        )

    def forward(self, x: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        """With a cache, of keys and values, `x` are the tokens after those in it."""
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in self.project(self.attention_norm(x)).chunk(3, dim=-1)
        )
        is_first = cache is None or not cache
        if cache is not None:
            if cache:
                key = torch.cat([cache[0], key], dim=2)
                value = torch.cat([cache[1], value], dim=2)
            cache[:] = [key, value]
        context = F.scaled_dot_product_attention(query, key, value, is_causal=is_first)
        x = x + self.out(context.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.feed_forward_norm(x))


class GPT(nn.Module):
    """Logits `(b, t, vocabulary)` of the token after each."""

    def __init__(
        self, vocabulary_size: int, max_length: int, features: int, num_heads: int, num_blocks: int
    ):
        super().__init__()
        self.max_length = max_length
        self.tokens = nn.Embedding(vocabulary_size, features)
        self.positions = nn.Embedding(max_length, features)
        self.blocks = nn.ModuleList(Block(features, num_heads) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(features, EPSILON)

    def forward(self, tokens: Tensor, caches: Any = None, last: bool = False) -> Tensor:
        """With `last`, the logits after the last token alone."""
        first = 0 if not caches or not caches[0] else caches[0][0].shape[2]
        positions = torch.arange(first, first + tokens.shape[1])
        x = self.tokens(tokens) + self.positions(positions)
        for i, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[i])
        x = self.norm(x[:, -1:] if last else x)
        return x @ self.tokens.weight.T

    @torch.no_grad()
    def generate(self, tokens: Tensor, length: int, temperature: float, top_k: int) -> Tensor:
        """Reads the last `max_length` tokens anew at every step, as nanoGPT does."""
        for _ in range(length):
            logits = self(tokens[:, -self.max_length :], last=True)[:, -1]
            tokens = torch.cat([tokens, draw(logits, temperature, top_k)], dim=1)
        return tokens

    @torch.no_grad()
    def generate_cached(
        self, tokens: Tensor, length: int, temperature: float, top_k: int
    ) -> Tensor:
        """With a cache. A text that has outgrown it is read anew from half of it, as ours is."""
        half, caches = self.max_length // 2, [[] for _ in self.blocks]
        logits = self(tokens[:, -half:], caches, last=True)[:, -1]
        for _ in range(length):
            token = draw(logits, temperature, top_k)
            tokens = torch.cat([tokens, token], dim=1)
            if caches[0][0].shape[2] == self.max_length:
                caches, token = [[] for _ in self.blocks], tokens[:, -half:]
            logits = self(token, caches, last=True)[:, -1]
        return tokens


def draw(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """Returns the next token of each row."""
    logits = logits / temperature
    if top_k:
        best, _ = torch.topk(logits, top_k)
        logits[logits < best[:, [-1]]] = -torch.inf
    return torch.multinomial(logits.softmax(-1), 1)


def gpt(params: Any, num_heads: int) -> GPT:
    """Returns the model with the parameters of ours."""
    table, positions = params["embedding"]["embedding"], params["position_table"]["embedding"]
    names = [name for name in params if name.startswith("blocks_")]
    model = GPT(len(table), len(positions), table.shape[1], num_heads, len(names))
    tensor = lambda array: torch.from_numpy(np.array(array))

    def copy_norm(norm: nn.LayerNorm, own: Any) -> None:
        norm.weight.data, norm.bias.data = tensor(own["scale"]), tensor(own["bias"])

    def copy_dense(dense: nn.Linear, kernel: np.ndarray, bias: np.ndarray) -> None:
        dense.weight.data, dense.bias.data = tensor(kernel).T.contiguous(), tensor(bias)

    model.tokens.weight.data, model.positions.weight.data = tensor(table), tensor(positions)
    copy_norm(model.norm, params["norm"])
    for number, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        own, width = params[f"blocks_{number}"], table.shape[1]
        heads = [own["attention"][name] for name in ("query", "key", "value")]
        kernel = np.concatenate([part["kernel"].reshape(width, width) for part in heads], axis=1)
        copy_dense(block.project, kernel, np.concatenate([p["bias"].ravel() for p in heads]))
        out = own["attention"]["out"]
        copy_dense(block.out, out["kernel"].reshape(width, width), out["bias"])
        for dense, name in zip(block.feed_forward[::2], ("hidden", "out")):
            assert isinstance(dense, nn.Linear)
            copy_dense(
                dense, own["feed_forward"][name]["kernel"], own["feed_forward"][name]["bias"]
            )
        copy_norm(block.attention_norm, own["attention_norm"])
        copy_norm(block.feed_forward_norm, own["feed_forward_norm"])
    return model
