"""Luong's local attention: each query looks at a window of the keys, at its own place or at one that it predicts."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention import masks
from flax_attn.attention.core import Attended, attend
from flax_attn.attention.general import resolve_score
from flax_attn.attention.learned_scores import BilinearScore
from flax_attn.attention.normalizers import across_queries, masked_softmax

Function = Callable[..., Array]


class LocalAttention(nn.Module):
    """Query `t` attends to keys `t - D` to `t + D`: local-m, for sequences that run in step.

    Source: Luong et al. 2015 (arXiv:1508.04025), section 3.2, "monotonic alignment".

    Attributes:
        reach: `D`, keys to each side.
        score: a score function, or a module that makes one.
    """

    reach: int
    score: Function | nn.Module = BilinearScore()

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        key_lengths: ArrayLike | None = None,
    ) -> Attended:
        """Attends; the values are the keys where none are given, and `key_lengths` `(...)` says how many are real."""
        near = masks.window(*masks.grid(query.shape[-2], key.shape[-2]), self.reach, self.reach)
        mask = near if key_lengths is None else masks.both(near, masks.from_lengths(key_lengths, key.shape[-2]))
        score = resolve_score(self.score, query.shape[-1], key.shape[-1])
        return attend(query, key, key if value is None else value, score=score, mask=mask)


class PredictiveLocalAttention(nn.Module):
    """Each query predicts the place it attends to, and looks at a window around it: local-p.

        p = S sigmoid(v · tanh(W q)),   weights_s = softmax_s(e) exp(-(s - p)^2 / (2 sigma^2)) for |s - p| <= D

    with `S` the length of the keys and `sigma = D / 2`. Rows sum to at most 1. The gradient reaches `p` by the Gaussian.

    Source: Luong et al. 2015 (arXiv:1508.04025), section 3.2, eq. 9 and 10, "predictive alignment".

    Attributes:
        reach: `D`, keys to each side.
        features: rows of `W`.
        score: a score function, or a module that makes one.
        kernel_init: initialiser of `W` and of `v`.
    """

    reach: int
    features: int
    score: Function | nn.Module = BilinearScore()
    kernel_init: Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        key_lengths: ArrayLike | None = None,
    ) -> Attended:
        """Attends, as `LocalAttention` does."""
        num_keys = key.shape[-2]
        lengths = masks.as_lengths("key_lengths", num_keys if key_lengths is None else key_lengths)
        real = masks.from_lengths(jnp.broadcast_to(lengths, key.shape[:-2]), num_keys)  # (..., 1, k)
        dense = lambda features, name: nn.Dense(features, use_bias=False, kernel_init=self.kernel_init, name=name)
        share = nn.sigmoid(dense(1, "place")(jnp.tanh(dense(self.features, "hidden")(query))))  # (..., q, 1)
        center = jnp.broadcast_to(lengths, key.shape[:-2])[..., None, None] * share
        distance = jnp.arange(num_keys).reshape((1,) * (key.ndim - 1) + (-1,)) - center  # (..., q, k)
        gaussian = jnp.exp(-jnp.square(distance) / (2 * (self.reach / 2) ** 2))
        mask = (jnp.abs(distance) <= self.reach) & real

        @across_queries
        def normalizer(scores: Array, mask: Array) -> Array:
            return masked_softmax(scores, mask) * gaussian

        score = resolve_score(self.score, query.shape[-1], key.shape[-1])
        return attend(query, key, key if value is None else value, score=score, normalizer=normalizer, mask=mask)
