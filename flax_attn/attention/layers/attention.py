"""Attention between queries, keys and values without projections."""

import functools

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention.arrays import hide, with_rank
from flax_attn.attention.checks import (
    as_floats,
    as_lengths,
    check_array,
    check_rate,
    weights_shape,
)
from flax_attn.attention.core import Attended, attend_pairs
from flax_attn.attention.dot_products import scaled_dot
from flax_attn.attention.how import Across, How
from flax_attn.attention.normalizers import hard, masked_softmax, sampled_hard
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.types import Normalizer, PerPair, Score, Window


class Attention(nn.Module):
    """Attention without projections, `normalizer(score(query, key) + bias) value`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473), section 3.1; Luong et al. 2015
    (arXiv:1508.04025), section 3.1.

    Attributes:
        score: a score function, or a module that makes one, such as `AdditiveScore(64)`.
        normalizer: a function from scores to weights.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        across: as in `attend`.
        dtype: dtype of the computation and of the result; None for that of the inputs.
    """

    score: Score | nn.Module = scaled_dot
    normalizer: Normalizer = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    dtype: DTypeLike | None = None

    def __post_init__(self):
        check_rate("dropout_rate", self.dropout_rate)
        super().__post_init__()

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        window: Window | None = None,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
        query_segments: ArrayLike | None = None,
        key_segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends. Without `value`, the values are the keys.

        `mask`, `bias`, the result and the errors are those of `attend`. The other arguments are
        those of `dot_product_attention`.
        """
        query, key, value = as_inputs(query, key, value, self.dtype)
        pairs = (
            Pairs(weights_shape(query, key, value))
            .under(mask, bias)
            .limited(causal, window)
            .padded(query_lengths, key_lengths)
            .packed(query_segments, key_segments)
        )
        pairs = with_dropout(pairs, self, self.dropout_rate, train)
        score = resolve_score(self.score, query.shape[-1], key.shape[-1])
        how = How(score, self.normalizer, self.chunk_size, need_weights, self.across)
        return attend_pairs(query, key, value, pairs, how)


class HardAttention(nn.Module):
    """Every query attends to one key.

    In training the key is drawn at random with the probabilities of softmax. Otherwise it is the
    most probable key.

    Source: Xu et al. 2015 (arXiv:1502.03044), section 4.1. The gradient is that of the
    Gumbel-softmax (straight-through). The paper uses REINFORCE instead.

    Attributes:
        score: as in `Attention`.
        temperature: temperature of the softmax that gives the gradient.
        dtype: as in `Attention`.
    """

    score: Score | nn.Module = scaled_dot
    temperature: float = 1.0
    dtype: DTypeLike | None = None

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        window: Window | None = None,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
        query_segments: ArrayLike | None = None,
        key_segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends as `Attention` does. In training it takes keys of the random stream `sample`."""
        query, key, value = as_inputs(query, key, value, self.dtype)
        pairs = (
            Pairs(weights_shape(query, key, value))
            .under(mask, bias)
            .limited(causal, window)
            .padded(query_lengths, key_lengths)
            .packed(query_segments, key_segments)
        )
        choose = functools.partial(sampled_hard, rng=self.make_rng("sample")) if train else hard
        normalizer = functools.partial(choose, temperature=self.temperature)
        score = resolve_score(self.score, query.shape[-1], key.shape[-1])
        return attend_pairs(query, key, value, pairs, How(score, normalizer, None, need_weights))


def as_input(name: str, array: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """An input of a layer as an array of floats, in the given dtype or in its own.

    Raises:
        TypeError: a list, or an array of another kind than floats.
    """
    check_array(name, array)
    array = as_floats(name, array)
    return array if dtype is None else array.astype(dtype)


def as_inputs(
    query: ArrayLike, key: ArrayLike, value: ArrayLike | None, dtype: DTypeLike | None = None
) -> tuple[Array, Array, Array]:
    """Query, key and value by `as_input`; the values are the keys where none are given."""
    query, key = as_input("query", query, dtype), as_input("key", key, dtype)
    return query, key, key if value is None else as_input("value", value, dtype)


def resolve_score(score: Score | nn.Module, query_features: int, key_features: int) -> Score:
    """The score function, made by the module where it is one."""
    return score(query_features, key_features) if isinstance(score, nn.Module) else score


def with_dropout(pairs: Pairs, module: nn.Module, rate: float, train: bool) -> Pairs:
    """The pairs with dropout in training, with a key of the random stream `dropout`."""
    return pairs.dropping(rate, module.make_rng("dropout")) if train and rate else pairs


def without_padding(inputs: Array, lengths: ArrayLike | None) -> Array:
    """The inputs `(..., t, d)` with zeros from `lengths` `(...)` on."""
    if lengths is None:
        return inputs
    leading, lengths = inputs.shape[:-2], as_lengths("lengths", lengths)
    if lengths.shape not in ((), leading):
        raise ValueError(
            f"expected lengths of shape {leading}, one a row of the batch, got {lengths.shape}"
        )
    indices = with_rank(jnp.arange(inputs.shape[-2]), len(leading) + 1)
    return hide(inputs, indices < jnp.broadcast_to(lengths, leading)[..., None])
