"""Luong's local attention: each query attends to a window of keys around a position.

The position is the query's own (local-m), or one that the query predicts (local-p).
"""

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention import looking
from flax_attn.attention.arrays import hide, wide, with_rank
from flax_attn.attention.checks import check_rate, check_size, weights_shape
from flax_attn.attention.core import Attended, attend_pairs
from flax_attn.attention.how import How
from flax_attn.attention.layers.attention import as_inputs, resolve_score, with_dropout
from flax_attn.attention.layers.scores import BilinearScore, glorot
from flax_attn.attention.masks import both
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.reach import reachable
from flax_attn.attention.types import Normalizer, PerPair, Score


class LocalAttention(nn.Module):
    """Query `t` attends to keys `t - D` to `t + D` (local-m).

    It fits a source and a target in which equal positions belong together.

    Source: Luong et al. 2015 (arXiv:1508.04025), section 3.2, "monotonic alignment".

    Attributes:
        reach: `D`, the number of keys on each side.
        score: a score function, or a module that makes one; None for `BilinearScore`.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters of `BilinearScore`, if `score` is None.
    """

    reach: int
    score: Score | nn.Module | None = None
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        check_size("reach", self.reach, least=0)
        check_rate("dropout_rate", self.dropout_rate)
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
        query_segments: ArrayLike | None = None,
        key_segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends as `Attention` does. Without `value`, the values are the keys."""
        query, key, value = as_inputs(query, key, value, self.dtype)
        pairs = (
            Pairs(weights_shape(query, key, value))
            .under(mask, bias)
            .limited(causal, (self.reach, self.reach))
            .padded(query_lengths, key_lengths)
            .packed(query_segments, key_segments)
        )
        pairs = with_dropout(pairs, self, self.dropout_rate, train)
        score = _score(self.score, self.param_dtype, query, key)
        how = How(score, chunk_size=self.chunk_size, need_weights=need_weights)
        return attend_pairs(query, key, value, pairs, how)


class PredictiveLocalAttention(nn.Module):
    """Each query predicts a position, and attends to a window of keys around it (local-p).

        p = S sigmoid(v · tanh(W q)),
        weights_s = softmax_s(e) exp(-(s - p)^2 / (2 sigma^2)) for |s - p| <= D

    Here `e` are the scores, `S` is the number of keys, and `sigma = D / 2`. Rows sum to at most 1.
    The gradient reaches `p` through the Gaussian.

    Source: Luong et al. 2015 (arXiv:1508.04025), section 3.2, eq. 9 and 10, "predictive alignment".

    Attributes:
        reach: `D`, the number of keys on each side.
        features: rows of `W`.
        score: a score function, or a module that makes one; None for `BilinearScore`.
        kernel_init: initialiser of `W` and of `v`.
        dropout_rate: share of the weights that are dropped in training.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of `W` and `v`, and of `BilinearScore` if `score` is None.
    """

    reach: int
    features: int
    score: Score | nn.Module | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()
    dropout_rate: float = 0.0
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    def __post_init__(self):
        check_size("reach", self.reach)
        check_size("features", self.features)
        check_rate("dropout_rate", self.dropout_rate)
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
        query_segments: ArrayLike | None = None,
        key_segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends. The arguments are those of `LocalAttention`."""
        query, key, value = as_inputs(query, key, value, self.dtype)
        pairs = (
            Pairs(weights_shape(query, key, value))
            .under(mask, bias)
            .limited(causal, None)
            .padded(query_lengths, key_lengths)
            .packed(query_segments, key_segments)
        )
        query = hide(query, reachable(pairs)[0])  # before its position is predicted
        distance = self._distances(query, pairs)
        pairs = with_dropout(self._near(distance, pairs), self, self.dropout_rate, train)
        score = _score(self.score, self.param_dtype, query, key)
        how = How(score, self._normalizer(distance), need_weights=need_weights)
        return attend_pairs(query, key, value, pairs, how)

    def _distances(self, query: Array, pairs: Pairs) -> Float[Array, "*b q k"]:
        """From the position that each query predicts to each key, `s - p`."""
        num_keys, share = pairs.shape[-1], self._predict(query)
        lengths = pairs.key_lengths
        valid = num_keys if lengths is None else lengths.astype(share.dtype)
        return with_rank(jnp.arange(num_keys), query.ndim).astype(share.dtype) - valid * share

    def _near(self, distance: Float[Array, "*b q k"], pairs: Pairs) -> Pairs:
        """The pairs within reach; the others are hidden."""
        block = pairs.whole()
        near = jnp.abs(distance) <= self.reach
        near = near if block.mask is None else both(block.mask, near)
        return Pairs(pairs.shape).under(near, block.bias)

    def _normalizer(self, distance: Float[Array, "*b q k"]) -> Normalizer:
        """Softmax times the Gaussian of the distance, whose deviation is half the reach.

        A lens with another normaliser replaces softmax. The Gaussian stays.
        """
        gaussian = jnp.exp(-jnp.square(distance) / (2 * (self.reach / 2) ** 2))
        times_gaussian = lambda normalizer: (
            lambda scores, mask: normalizer(scores, mask=mask) * gaussian
        )
        return looking.around(times_gaussian, masked_softmax)

    def _predict(self, query: Array) -> Float[Array, "*b q 1"]:
        """The position as a share of the length: `sigmoid(v · tanh(W q))` in float32 or better."""
        hidden = self._dense(self.features, "hidden", query)
        # "place" is the position: checkpoints have the parameter under this name.
        position = self._dense(1, "place", jnp.tanh(hidden))
        return nn.sigmoid(position.astype(wide(position.dtype)))

    def _dense(self, features: int, name: str, inputs: Array) -> Array:
        layer = nn.Dense(
            features,
            use_bias=False,
            kernel_init=self.kernel_init,
            dtype=inputs.dtype,
            param_dtype=self.param_dtype,
            name=name,
        )
        return layer(inputs)


def _score(
    score: Score | nn.Module | None, param_dtype: DTypeLike, query: Array, key: Array
) -> Score:
    """The score of a layer: by default a `BilinearScore`, with a kernel of this dtype."""
    if score is None:
        init = lambda key, shape, *_: glorot(key, shape, param_dtype)
        score = BilinearScore(kernel_init=init, name="score")
    return resolve_score(score, query.shape[-1], key.shape[-1])
