"""Attention that sums up a sequence: weights over its positions, and their weighted sums."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention.checks import broadcastable
from flax_attn.attention.core import Attended, attend
from flax_attn.attention.masks import as_mask

Function = Callable[..., Array]


class AttentionPooling(nn.Module):
    """One weighted sum over the positions of a sequence.

        e_t = v · x_t + b,  or  v · tanh(W x_t + c) + b with `hidden_features`;   weights = softmax(e);   context = sum_t weights_t x_t

    Source: Yang et al. 2016, "Hierarchical attention networks", eq. 5 to 7, for the second form.

    Attributes:
        hidden_features: width of the hidden layer; None for none.
        use_bias: whether there are biases; softmax does not see `b`, other programs count it.
        kernel_init: initialiser of the kernels.
    """

    hidden_features: int | None = None
    use_bias: bool = True
    kernel_init: Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, inputs: Float[Array, "*b t d"], *, mask: ArrayLike | None = None) -> Attended:
        """Pools `(..., t, d)` to the context `(..., d)`, with weights `(..., t)`; `mask` `(..., t)` is True on the positions that count."""
        inputs, mask = _without_padding(inputs, mask)
        options = {"use_bias": self.use_bias, "kernel_init": self.kernel_init, "dtype": inputs.dtype}
        hidden = inputs
        if self.hidden_features is not None:
            hidden = jnp.tanh(nn.Dense(self.hidden_features, **options, name="hidden")(inputs))
        energies = nn.Dense(1, **options, name="energy")(hidden)
        context, weights = _pool(energies, inputs, mask)
        return Attended(context[..., 0, :], weights[..., 0, :])


class StructuredSelfAttention(nn.Module):
    """Several weighted sums over the positions of a sequence, each with weights of its own: its hops.

        A = softmax(W_2 tanh(W_1 H^T)),   M = A H

    Source: Lin et al. 2017 (arXiv:1703.03130), eq. 6 and 7. Add `diversity_penalty` of the weights to the loss, so that the
    hops look at different places.

    Attributes:
        hidden_features: rows of `W_1`.
        num_hops: rows of `W_2`.
        kernel_init: initialiser of both.
    """

    hidden_features: int
    num_hops: int
    kernel_init: Initializer = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, inputs: Float[Array, "*b t d"], *, mask: ArrayLike | None = None) -> Attended:
        """Pools `(..., t, d)` to the context `(..., hops, d)`, with weights `(..., hops, t)`; `mask` as in `AttentionPooling`."""
        inputs, mask = _without_padding(inputs, mask)
        dense = lambda features, name: nn.Dense(features, use_bias=False, kernel_init=self.kernel_init, dtype=inputs.dtype, name=name)
        energies = dense(self.num_hops, "energies")(jnp.tanh(dense(self.hidden_features, "hidden")(inputs)))
        context, weights = _pool(energies, inputs, mask)
        return Attended(context, weights)


def diversity_penalty(weights: Float[Array, "*b r t"]) -> Float[Array, "*b"]:
    """The squared Frobenius norm `||A A^T - I||_F^2` of each row's weights: 0 where every hop looks at one place of its own.

    Source: Lin et al. 2017 (arXiv:1703.03130), eq. 8.
    """
    overlap = jnp.einsum("...it,...jt->...ij", weights, weights)
    identity = jnp.eye(weights.shape[-2], dtype=weights.dtype).reshape((1,) * (weights.ndim - 2) + (weights.shape[-2],) * 2)
    return jnp.sum(jnp.square(overlap - identity), axis=(-2, -1))


def _without_padding(inputs: Array, mask: ArrayLike | None) -> tuple[Array, Array | None]:
    """The inputs without padding, and the mask with an axis for each of theirs but the last. Raises as `attend` does."""
    if mask is None:
        return inputs, None
    mask = broadcastable("mask", as_mask(mask), inputs.shape[:-1])
    return jnp.where(mask[..., None], inputs, 0), mask


def _pool(energies: Array, inputs: Array, mask: Array | None) -> tuple[Array, Array]:
    """Attends with energies `(..., t, hops)` that stand for queries: the score is what they are."""
    energies = jnp.swapaxes(energies, -1, -2)  # (..., hops, t)
    attended = attend(energies, inputs, inputs, score=lambda query, key: query, mask=None if mask is None else mask[..., None, :])
    assert attended.weights is not None
    return attended.context, attended.weights
