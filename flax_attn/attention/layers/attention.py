"""Attention in one head: between arrays, of a sequence to itself, to one key, or to near keys.

Luong's local attention lets each query attend to a window of keys around a position: its own
(local-m), or one that it predicts (local-p).
"""

import dataclasses
import functools
import itertools
from typing import Unpack

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention import lens
from flax_attn.attention.arrays import as_dtype_of, wide, with_rank
from flax_attn.attention.checks import Normalizer, Score, as_scale, weights_shape
from flax_attn.attention.core import Across, Attended, Call, compute
from flax_attn.attention.layers.learned import BilinearScore
from flax_attn.attention.layers.shells import (
    LayerBase,
    LinenShell,
    Returned,
    as_input,
    as_inputs,
    lecun,
)
from flax_attn.attention.masks import both
from flax_attn.attention.normalizers import hard, masked_softmax, sampled_hard
from flax_attn.attention.scores import dot, project_wide, scaled_dot
from flax_attn.attention.visibility import (
    Limits,
    SelfLimits,
    Visibility,
    hide,
    make_visibility,
    of_self,
    with_limits,
)
from flax_attn.types import Options


@dataclasses.dataclass(eq=False, repr=False)
class AttentionBase(LayerBase):
    """The arguments and the computation of `Attention`."""

    score: Score | nn.Module = scaled_dot
    normalizer: Normalizer = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    dtype: DTypeLike | None = None
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Returned:
        """Attends. Without `value`, the values are the keys.

        The limits, from `mask` to `key_segments`, are those of `dot_product_attention`. The result
        and the errors are those of `attend`.
        """
        inputs = as_inputs(query, key, value, self.dtype)
        options: Options = {"normalizer": self.normalizer, "chunk_size": self.chunk_size}
        options |= {"across": self.across, **limits}
        return self._attended(inputs, self.score, need_weights, train, **options)


class Attention(AttentionBase, LinenShell, nn.Module):
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
        return_weights: whether a call returns `Attended`. With False it returns the context alone,
            so that the layer stands in a `Sequential`.
    """

    __call__ = AttentionBase.__call__


@dataclasses.dataclass(eq=False, repr=False)
class SelfAttentionBase(LayerBase):
    """The arguments and the computation of `SelfAttention`."""

    key_features: int
    value_features: int
    scale: ArrayLike | None = None
    use_bias: bool = False
    normalizer: Normalizer = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    kernel_init: Initializer = lecun
    bias_init: Initializer = nn.initializers.zeros
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[SelfLimits],
    ) -> Returned:
        """Attends from every position to every position; the context is `(..., t, value_features)`.

        `lengths` `(...)` is the number of real positions in each batch row. `segments` `(..., t)`
        is the id of the sequence that each position belongs to. The other limits are those of
        `dot_product_attention`.
        """
        inputs = as_input("inputs", inputs, self.dtype)
        visible = make_visibility((*inputs.shape[:-1], inputs.shape[-2]), **of_self(**limits))
        query, key, value = self._project(inputs, visible)  # (..., t, _)
        call = Call(query, key, value, visible, dot, self.normalizer, **self._dropout(train))
        options = {"chunk_size": self.chunk_size, "across": self.across, "name": self._path()}
        call = call._replace(**options, need_weights=self._wants(need_weights))
        context, weights = compute(call)  # (..., t, value_features), (..., t, t)
        weights = None if weights is None else weights.astype(inputs.dtype)  # (..., t, t)
        return self._returned(Attended(context.astype(inputs.dtype), weights), need_weights)

    def _project(self, inputs: Array, visible: Visibility) -> tuple[Array, Array, Array]:
        """Projects queries, keys and values. Where kernels are folded, the keys are the inputs.

        A position that nothing attends to, or that attends to nothing, is zeroed before the
        products. So it reaches no kernel's gradient.
        """
        kernels, biases = self._parameters(inputs)
        is_folded = inputs.shape[-1] < self.key_features and not self.use_bias
        if is_folded:  # x (W_q W_k^T) x^T
            kernels["query"] = kernels["query"] @ kernels.pop("key").T  # (d, d)
        if visible.all_visible:
            keys, products = inputs, _project_together(inputs, kernels, biases)
        else:
            queries, keys = (hide(inputs, real) for real in visible.reachable(self.chunk_size))
            others = {name: kernel for name, kernel in kernels.items() if name != "query"}
            products = _project_together(queries, {"query": kernels["query"]}, biases)
            products |= _project_together(keys, others, biases)
        value = products["value"].astype(inputs.dtype)  # (..., t, value_features)
        if is_folded:  # the query may be beyond the range of half precision
            return products["query"], keys, value
        return products["query"].astype(inputs.dtype), products["key"].astype(inputs.dtype), value

    def _parameters(self, inputs: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Makes kernels and biases by name; the scale is in those of the query."""
        kernels, biases, sizes = {}, {}, self._sizes()
        for name, size in sizes.items():
            shape = inputs.shape[-1], size  # (d, size)
            kernels[name] = self._param(f"{name}_kernel", self.kernel_init, shape)
        for name, size in sizes.items() if self.use_bias else ():
            biases[name] = self._param(f"{name}_bias", self.bias_init, (size,))
        scale = as_scale(self.scale)
        scale = self.key_features**-0.5 if scale is None else scale
        kernels, biases = jax.tree.map(lambda array: array.astype(inputs.dtype), (kernels, biases))
        for parameters in (kernels, biases):
            if "query" in parameters:
                query = parameters["query"]
                parameters["query"] = as_dtype_of(query, scale) * query
        return kernels, biases

    def _sizes(self) -> dict[str, int]:
        """Returns the width of each projection."""
        keys = self.key_features
        return {"query": keys, "key": keys, "value": self.value_features}


class SelfAttention(SelfAttentionBase, LinenShell, nn.Module):
    """Single-head dot-product self-attention.

        weights = softmax(scale * (x W_q + b_q) (x W_k + b_k)^T),   context = weights (x W_v + b_v)

    Source: the self-attention of Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.1, with one
    head and no output projection. `scale=1.0` gives the unscaled form.

    Without biases, and with keys wider than the input, the scores are computed as
    `x (W_q W_k^T) x^T`: the same function of the same parameters with fewer operations.

    Attributes:
        key_features: width of queries and keys.
        value_features: width of values and of the context.
        scale: factor of the dot products; None for `1 / sqrt(key_features)`.
        use_bias: whether the projections have biases.
        normalizer: a function from scores to weights.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        across: as in `attend`.
        kernel_init: initialiser of the three kernels `(d, key_features)`, `(d, key_features)`,
            `(d, value_features)`.
        bias_init: initialiser of the three biases.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        return_weights: as in `Attention`.
    """

    __call__ = nn.compact(SelfAttentionBase.__call__)


@dataclasses.dataclass(eq=False, repr=False)
class HardAttentionBase(LayerBase):
    """The arguments and the computation of `HardAttention`."""

    score: Score | nn.Module = scaled_dot
    temperature: float = 1.0
    dtype: DTypeLike | None = None
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Returned:
        """Attends as `Attention` does. In training it takes keys of the random stream `sample`."""
        choose = hard
        if self._is_training(train):
            choose = functools.partial(sampled_hard, rng=self._key("sample"))
        choose = functools.partial(choose, temperature=self.temperature)
        inputs = as_inputs(query, key, value, self.dtype)
        return self._attended(inputs, self.score, need_weights, normalizer=choose, **limits)


class HardAttention(HardAttentionBase, LinenShell, nn.Module):
    """Every query attends to one key.

    In training the key is drawn at random with the probabilities of softmax. Otherwise it is the
    most probable key.

    Source: Xu et al. 2015 (arXiv:1502.03044), section 4.1. The gradient is that of the
    Gumbel-softmax (straight-through). The paper uses REINFORCE instead.

    Attributes:
        score: as in `Attention`.
        temperature: temperature of the softmax that gives the gradient.
        dtype: as in `Attention`.
        return_weights: as in `Attention`.
    """

    __call__ = HardAttentionBase.__call__


class LinenLocalShell(LinenShell):
    """The shell of a layer that has a score of its own if it is given none."""

    def _score(self, score: Score | nn.Module | None, query: Array, key: Array) -> Score:
        if score is None:
            score = BilinearScore(param_dtype=self.param_dtype, name="score")
        return super()._score(score, query, key)


@dataclasses.dataclass(eq=False, repr=False)
class LocalAttentionBase(LayerBase):
    """The arguments and the computation of `LocalAttention`."""

    reach: int
    score: Score | nn.Module | None = None
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Returned:
        """Attends as `Attention` does. Without `value`, the values are the keys.

        A `window` is a TypeError: the reach is the window.
        """
        inputs = as_inputs(query, key, value, self.dtype)
        options: Options = dict(limits, chunk_size=self.chunk_size)
        window = self.reach, self.reach
        return self._attended(inputs, self.score, need_weights, train, window=window, **options)


class LocalAttention(LocalAttentionBase, LinenLocalShell, nn.Module):
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
        return_weights: as in `Attention`.
    """

    __call__ = nn.compact(LocalAttentionBase.__call__)


@dataclasses.dataclass(eq=False, repr=False)
class PredictiveLocalAttentionBase(LayerBase):
    """The arguments and the computation of `PredictiveLocalAttention`."""

    reach: int
    features: int
    score: Score | nn.Module | None = None
    kernel_init: Initializer = lecun
    dropout_rate: float = 0.0
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Returned:
        """Attends. The arguments are those of `LocalAttention`."""
        if self.reach < 1:
            raise ValueError(f"expected a reach of 1 or above, got {self.reach}")
        query, key, value = as_inputs(query, key, value, self.dtype)
        shape = weights_shape(query, key, value)  # (..., q, k)
        visible = make_visibility(shape, **limits)
        query = hide(query, visible.reachable()[0])  # before its position is predicted
        distance = self._distances(query, shape[-1], visible.key_lengths)  # (..., q, k)
        mask, bias = visible.block()  # (..., q, k); axes of 1 stay
        near = jnp.abs(distance) <= self.reach  # (..., q, k)
        options: Options = {"normalizer": self._normalizer(distance), "bias": bias}
        options["mask"] = near if mask is None else both(mask, near)
        return self._attended((query, key, value), self.score, need_weights, train, **options)

    def _distances(
        self, query: Array, num_keys: int, lengths: Array | None
    ) -> Float[Array, "*b q k"]:
        """Computes distances from the position that each query predicts to each key, `s - p`."""
        share = self._predict(query)  # (..., q, 1)
        valid = num_keys if lengths is None else lengths.astype(share.dtype)  # () or (..., 1, 1)
        return with_rank(jnp.arange(num_keys), query.ndim).astype(share.dtype) - valid * share

    def _normalizer(self, distance: Float[Array, "*b q k"]) -> Normalizer:
        """Makes softmax times the Gaussian of the distance, whose deviation is half the reach.

        A lens with another normaliser replaces softmax. The Gaussian stays.
        """
        gaussian = jnp.exp(-jnp.square(distance) / (2 * (self.reach / 2) ** 2))  # (..., q, k)
        times_gaussian = lambda normalizer: (
            lambda scores, mask: normalizer(scores, mask=mask) * gaussian  # (..., q, k)
        )
        return lens.around(times_gaussian, masked_softmax)

    def _predict(self, query: Array) -> Float[Array, "*b q 1"]:
        """Predicts positions as a share of the length: `sigmoid(v · tanh(W q))`, in float32."""
        options = {"use_bias": False, "kernel_init": self.kernel_init}
        hidden = self._dense("hidden", self.features, query, **options)  # (..., q, features)
        # "place" is the position: checkpoints have the parameter under this name.
        position = self._dense("place", 1, jnp.tanh(hidden), **options)  # (..., q, 1)
        return nn.sigmoid(position.astype(wide(position.dtype)))  # (..., q, 1)


class PredictiveLocalAttention(PredictiveLocalAttentionBase, LinenLocalShell, nn.Module):
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
        return_weights: as in `Attention`.
    """

    __call__ = nn.compact(PredictiveLocalAttentionBase.__call__)


def _project_together(
    inputs: Array, kernels: dict[str, Array], biases: dict[str, Array]
) -> dict[str, Array]:
    """Multiplies the inputs by several kernels in one product, which is 1.14 times as fast."""
    outputs = project_wide(inputs, jnp.concatenate(list(kernels.values()), axis=-1))
    if biases:
        bias = jnp.concatenate([biases[name] for name in kernels]).astype(outputs.dtype)
        outputs += with_rank(bias, outputs.ndim)  # (..., t, all widths)
    *ends, _ = itertools.accumulate(kernel.shape[-1] for kernel in kernels.values())
    return dict(zip(kernels, jnp.split(outputs, ends, axis=-1)))  # (..., t, width) each
