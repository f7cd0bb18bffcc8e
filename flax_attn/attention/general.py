"""General attention: any score and any normaliser between queries, keys and values as they are."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention.core import Attended, attend
from flax_attn.attention.normalizers import hard, masked_softmax, sampled_hard
from flax_attn.attention.scores import scaled_dot

Function = Callable[..., Array]


class Attention(nn.Module):
    """Queries attend to keys and gather values, `normalizer(score(query, key) + bias, mask) value`, without projections.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473), section 3.1; Luong et al. 2015 (arXiv:1508.04025), section 3.1.

    Attributes:
        score: a score function, or a module of `learned_scores` that makes one, such as `AdditiveScore(64)`.
        normalizer: from energies to weights.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
    """

    score: Function | nn.Module = scaled_dot
    normalizer: Function = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        mask: ArrayLike | Function | None = None,
        bias: ArrayLike | Function | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends; the values are the keys where none are given. Arguments, result and errors are those of `attend`."""
        return attend(
            query,
            key,
            key if value is None else value,
            score=resolve_score(self.score, query.shape[-1], key.shape[-1]),
            normalizer=self.normalizer,
            mask=mask,
            bias=bias,
            **dropout_options(self, self.dropout_rate, train),
            chunk_size=self.chunk_size,
            need_weights=need_weights,
        )


class HardAttention(nn.Module):
    """Every query attends to one key: in training one drawn with the probabilities of softmax, else the most probable.

    Source: Xu et al. 2015 (arXiv:1502.03044), section 4.1; the gradient is that of the Gumbel-softmax (straight-through)
    where theirs is by REINFORCE.

    Attributes:
        score: as in `Attention`.
        temperature: of the softmax whose gradient stands in.
    """

    score: Function | nn.Module = scaled_dot
    temperature: float = 1.0

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        mask: ArrayLike | Function | None = None,
        train: bool = False,
    ) -> Attended:
        """Attends, as `Attention` does; in training draws from the random stream `sample`."""
        normalizer = functools.partial(hard, temperature=self.temperature)
        if train:
            normalizer = functools.partial(sampled_hard, rng=self.make_rng("sample"), temperature=self.temperature)
        score = resolve_score(self.score, query.shape[-1], key.shape[-1])
        return attend(query, key, key if value is None else value, score=score, normalizer=normalizer, mask=mask)


def resolve_score(score: Function | nn.Module, query_features: int, key_features: int) -> Function:
    """The score function, made by the module where it is one."""
    return score(query_features, key_features) if isinstance(score, nn.Module) else score


def dropout_options(module: nn.Module, rate: float, train: bool) -> dict[str, Any]:
    """The arguments of `attend` for dropout: none of it unless `train`, and then with a key of the stream `dropout`."""
    return {"dropout_rate": rate, "dropout_rng": module.make_rng("dropout")} if train and rate else {}
