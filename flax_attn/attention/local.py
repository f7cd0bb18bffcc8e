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
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.visibility import per_row

Function = Callable[..., Array]


class LocalAttention(nn.Module):
    """Query `t` attends to keys `t - D` to `t + D`: local-m, for sequences that run in step.

    Source: Luong et al. 2015 (arXiv:1508.04025), section 3.2, "monotonic alignment".

    Attributes:
        reach: `D`, keys to each side.
        score: a score function, or a module that makes one; None for `BilinearScore`.
    """

    reach: int
    score: Function | nn.Module | None = None

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
    ) -> Attended:
        """Attends; the values are the keys where none are given, and `(...)` lengths say how many of each are real."""
        query, mask = _real(query, key, query_lengths, key_lengths)
        mask = masks.both(mask, masks.window(*masks.grid(query.shape[-2], key.shape[-2]), self.reach, self.reach))
        score = resolve_score(BilinearScore(name="score") if self.score is None else self.score, query.shape[-1], key.shape[-1])
        return attend(query, key, key if value is None else value, score=score, mask=mask)


class PredictiveLocalAttention(nn.Module):
    """Each query predicts the place it attends to, and looks at a window around it: local-p.

        p = S sigmoid(v · tanh(W q)),   weights_s = softmax_s(e) exp(-(s - p)^2 / (2 sigma^2)) for |s - p| <= D

    with `S` the length of the keys and `sigma = D / 2`. Rows sum to at most 1. The gradient reaches `p` by the Gaussian.

    Source: Luong et al. 2015 (arXiv:1508.04025), section 3.2, eq. 9 and 10, "predictive alignment".

    Attributes:
        reach: `D`, keys to each side.
        features: rows of `W`.
        score: a score function, or a module that makes one; None for `BilinearScore`.
        kernel_init: initialiser of `W` and of `v`.
    """

    reach: int
    features: int
    score: Function | nn.Module | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
    ) -> Attended:
        """Attends, as `LocalAttention` does."""
        if not self.reach > 0:
            raise ValueError(f"expected a reach above 0, got {self.reach}")
        num_keys = key.shape[-2]
        query, real = _real(query, key, query_lengths, key_lengths)
        lengths = jnp.asarray(num_keys if key_lengths is None else key_lengths)
        dense = lambda features, name: nn.Dense(features, use_bias=False, kernel_init=self.kernel_init, dtype=query.dtype, name=name)
        place = dense(1, "place")(jnp.tanh(dense(self.features, "hidden")(query)))  # (..., q, 1)
        share = nn.sigmoid(place.astype(jnp.promote_types(place.dtype, jnp.float32)))
        center = jnp.broadcast_to(lengths, key.shape[:-2])[..., None, None] * share
        distance = jnp.arange(num_keys).reshape((1,) * (key.ndim - 1) + (-1,)) - center  # (..., q, k)
        gaussian = jnp.exp(-jnp.square(distance) / (2 * (self.reach / 2) ** 2))
        mask = masks.both(jnp.abs(distance) <= self.reach, real)

        def normalizer(scores: Array, mask: Array) -> Array:
            return masked_softmax(scores, mask) * gaussian

        score = resolve_score(BilinearScore(name="score") if self.score is None else self.score, query.shape[-1], key.shape[-1])
        return attend(query, key, key if value is None else value, score=score, normalizer=normalizer, mask=mask)


def _real(query: Array, key: Array, query_lengths: ArrayLike | None, key_lengths: ArrayLike | None) -> tuple[Array, Array]:
    """The queries without padding, and the mask `(..., q, k)` of the real queries and keys."""
    lengths = {"query_lengths": query_lengths, "key_lengths": key_lengths}
    found = []
    for (name, given), array in zip(lengths.items(), (query, key)):
        valid = per_row(name, masks.as_lengths(name, array.shape[-2] if given is None else given), array.shape[:-2])
        found.append(masks.lengths(valid[..., 0] if valid.ndim else valid, jnp.arange(array.shape[-2])[:, None]))  # (..., t, 1)
    queries, keys = found
    return jnp.where(queries, query, 0), masks.both(queries, jnp.swapaxes(keys, -1, -2))
