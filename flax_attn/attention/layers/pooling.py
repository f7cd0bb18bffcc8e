"""Attention without queries: over the positions of a sequence, or the features of an input.

Attention pooling makes one weighted sum of the vectors of a sequence, or several.
"""

import dataclasses
import functools
from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Key

from flax_attn.attention import lens
from flax_attn.attention.arrays import as_dtype_of, with_rank
from flax_attn.attention.checks import as_mask, as_number, broadcastable
from flax_attn.attention.core import Attended, Call, compute
from flax_attn.attention.layers.shells import LayerBase, LinenShell, Returned, as_input, lecun
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.visibility import Visibility, hide, make_visibility
from flax_attn.types import Options


@dataclasses.dataclass(eq=False, repr=False)
class AttentionPoolingBase(LayerBase):
    """The arguments and the computation of `AttentionPooling`."""

    hidden_features: int | None = None
    use_bias: bool = True
    kernel_init: Initializer = lecun
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        mask: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        need_weights: bool = True,
    ) -> Returned:
        """Pools `(..., t, d)` to the context `(..., d)`, with weights `(..., t)`.

        `mask` `(..., t)` is True on the positions that count; `lengths` `(...)` is the number of
        real positions in each batch row.
        """
        inputs = as_input("inputs", inputs, self.dtype)
        inputs, visible = _without_padding(inputs, mask, lengths)  # (..., t, d)
        options: Options = {"use_bias": self.use_bias, "kernel_init": self.kernel_init}
        hidden = inputs
        if self.hidden_features is not None:
            hidden = jnp.tanh(self._dense("hidden", self.hidden_features, inputs, **options))
        # "energy" is the score: checkpoints have the parameter under this name.
        scores = self._dense("energy", 1, hidden, **options)  # (..., t, 1)
        context, weights = _pool(self, scores, inputs, visible, need_weights)
        pooled = context[..., 0, :], None if weights is None else weights[..., 0, :]
        return self._returned(Attended(*pooled), need_weights)  # (..., d), (..., t)


class AttentionPooling(AttentionPoolingBase, LinenShell, nn.Module):
    """One weighted sum over the positions of a sequence.

        e_t = v · x_t + b,  or  v · tanh(W x_t + c) + b with `hidden_features`
        weights = softmax(e),   context = sum_t weights_t x_t

    Source: Yang et al. 2016, "Hierarchical attention networks", eq. 5 to 7, for the second form.

    Attributes:
        hidden_features: width of the hidden layer; None for none.
        use_bias: whether there are biases. `b` does not change the weights; other programs have it.
        kernel_init: initialiser of the kernels.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        return_weights: as in `Attention`.
    """

    __call__ = nn.compact(AttentionPoolingBase.__call__)


@dataclasses.dataclass(eq=False, repr=False)
class StructuredSelfAttentionBase(LayerBase):
    """The arguments and the computation of `StructuredSelfAttention`."""

    hidden_features: int
    num_hops: int
    kernel_init: Initializer = lecun
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        mask: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        need_weights: bool = True,
    ) -> Returned:
        """Pools `(..., t, d)` to the context `(..., hops, d)`, with weights `(..., hops, t)`.

        The arguments are those of `AttentionPooling`.
        """
        inputs = as_input("inputs", inputs, self.dtype)
        inputs, visible = _without_padding(inputs, mask, lengths)  # (..., t, d)
        options: Options = {"use_bias": False, "kernel_init": self.kernel_init}
        hidden = jnp.tanh(self._dense("hidden", self.hidden_features, inputs, **options))
        # "energies" are the scores: checkpoints have the parameter under this name.
        scores = self._dense("energies", self.num_hops, hidden, **options)  # (..., t, hops)
        return self._returned(_pool(self, scores, inputs, visible, need_weights), need_weights)


class StructuredSelfAttention(StructuredSelfAttentionBase, LinenShell, nn.Module):
    """Several weighted sums over the positions of a sequence, its hops. Each has its own weights.

        A = softmax(W_2 tanh(W_1 H^T)),   M = A H

    Source: Lin et al. 2017 (arXiv:1703.03130), eq. 6 and 7. Add `diversity_penalty` of the weights
    to the loss. It makes the hops attend to different positions.

    Attributes:
        hidden_features: rows of `W_1`.
        num_hops: rows of `W_2`.
        kernel_init: initialiser of both.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of both.
        return_weights: as in `Attention`.
    """

    __call__ = nn.compact(StructuredSelfAttentionBase.__call__)


@dataclasses.dataclass(eq=False, repr=False)
class InputAttentionCellBase(LayerBase):
    """The arguments and the computation of `InputAttentionCell`."""

    features: int
    out_features: int
    alpha: ArrayLike = 1.0
    activation: Callable[[Array], Array] = jnp.tanh
    out_activation: Callable[[Array], Array] = lambda y: y
    kernel_init: Initializer = lecun
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    def __call__(
        self, carry: Float[Array, "*b h"], inputs: Float[Array, "*b d"]
    ) -> tuple[Float[Array, "*b h"], Returned]:
        """Computes one step. Returns the next state and `Attended`.

        The context is the output `y` `(..., out_features)`, the weights are `g` `(..., d)`.

        Raises:
            ValueError: a carry of another shape than the batch of the inputs and `features`.
        """
        inputs, carry = as_input("inputs", inputs, self.dtype), as_input("carry", carry)
        if carry.shape != (shape := (*inputs.shape[:-1], self.features)):
            raise ValueError(f"expected a carry of shape {shape}, got {carry.shape}")
        dense = functools.partial(self._dense, kernel_init=self.kernel_init)
        width, hidden = inputs.shape[-1], carry.astype(inputs.dtype)  # (..., h)
        from_state = dense("state_gate", width, hidden, use_bias=False)  # (..., d)
        gates = nn.sigmoid(from_state + dense("input_gate", width, inputs))  # (..., d)
        scores = as_dtype_of(gates, as_number(self.alpha)) * gates  # (..., d)
        weights = lens.normalized(masked_softmax, scores, self._path()).astype(inputs.dtype)
        from_state = dense("state", self.features, hidden, use_bias=False)  # (..., h)
        state = self.activation(from_state + dense("input", self.features, inputs * weights))
        output = dense("output", self.out_features, state, use_bias=False)  # (..., out_features)
        attended = self._returned(Attended(self.out_activation(output), weights))
        return state.astype(carry.dtype), attended  # a carry keeps its dtype


class InputAttentionCell(InputAttentionCellBase, LinenShell, nn.RNNCellBase):
    """A recurrent cell that gives a weight to each feature of its input.

        a_t = sigmoid(W_ha h_{t-1} + W_xa x_t + b_a),   g_t = softmax(alpha a_t)
        h_t = phi(W_hh h_{t-1} + W_xh (x_t * g_t) + b_h),   y_t = phi_y(W_hy h_t)

    The weights `g_t` depend on the state `h_{t-1}` and on the input `x_t`.

    Source: the idea is from Qin et al. 2017 (arXiv:1704.02971), section 3.2.1; the equations are
    from a tutorial, with `alpha = 1`. Since `a_t` is between 0 and 1, one of n weights is then at
    most `e / (e + n - 1)`, with Euler's number `e`.

    Attributes:
        features: width of the state.
        out_features: width of `y`.
        alpha: factor of the scores; with a larger one the weights differ more.
        activation, out_activation: `phi` and `phi_y`.
        kernel_init: initialiser of the kernels.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        return_weights: as in `Attention`.
    """

    __call__ = nn.compact(InputAttentionCellBase.__call__)

    @nn.nowrap
    def initialize_carry(
        self, rng: Key[Array, ""], input_shape: tuple[int, ...]
    ) -> Float[Array, "*b h"]:
        """Makes the state before the first step: zeros."""
        return jnp.zeros((*input_shape[:-1], self.features))  # (..., h)

    @property
    def num_feature_axes(self) -> int:
        return 1


def diversity_penalty(weights: Float[Array, "*b r t"]) -> Float[Array, "*b"]:
    """Computes the squared Frobenius norm `||A A^T - I||_F^2` of weights, for each batch row.

    It is 0 if each hop attends to a single position, and no two hops to the same one.

    Source: Lin et al. 2017 (arXiv:1703.03130), eq. 8.
    """
    overlap = jnp.einsum("...it,...jt->...ij", weights, weights)  # (..., r, r)
    identity = with_rank(jnp.eye(weights.shape[-2], dtype=weights.dtype), weights.ndim)
    return jnp.sum(jnp.square(overlap - identity), axis=(-2, -1))


def _without_padding(
    inputs: Array, mask: ArrayLike | None, lengths: ArrayLike | None
) -> tuple[Array, Visibility]:
    """Zeros the padding of inputs, and tells which positions `(..., hops, t)` the hops see."""
    rows, num = inputs.shape[:-2], inputs.shape[-2]
    if mask is not None:
        mask = broadcastable("mask", as_mask(mask), (*rows, num))[..., None, :]  # (..., 1, t)
    visible = make_visibility((*rows, 1, num), mask=mask, key_lengths=lengths)
    return hide(inputs, visible.reachable()[1]), visible


def _pool(
    layer: LayerBase, scores: Array, inputs: Array, visible: Visibility, need_weights: bool
) -> Attended:
    """Attends with scores `(..., t, hops)`, which stand for queries: they are their own score."""
    scores = jnp.swapaxes(scores, -1, -2)  # (..., hops, t)
    visible = dataclasses.replace(visible, shape=scores.shape)  # for hops, which all see the same
    score = lambda query, key: query  # (..., hops, t)
    wanted = layer._wants(need_weights)
    call = Call(scores, inputs, inputs, visible, score, need_weights=wanted, name=layer._path())
    return compute(call)
