"""Attention in one head: between arrays, of a sequence to itself, to one key, or to near keys.

Luong's local attention lets each query attend to a window of keys around a position: its own
(local-m), or one that it predicts (local-p).
"""

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
from flax_attn.attention.checks import (
    Normalizer,
    PerPair,
    Score,
    Window,
    as_floats,
    as_lengths,
    as_scale,
    check_dropout,
    weights_shape,
)
from flax_attn.attention.core import Across, Attended, Call, compute, make_call
from flax_attn.attention.layers.learned import BilinearScore, glorot
from flax_attn.attention.masks import both
from flax_attn.attention.normalizers import hard, masked_softmax, sampled_hard
from flax_attn.attention.scores import dot, project_wide, scaled_dot
from flax_attn.attention.visibility import Limits, Visibility, hide, make_visibility
from flax_attn.types import Options


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

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool = False,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Attended:
        """Attends. Without `value`, the values are the keys.

        The limits `mask`, `bias`, `causal`, `window`, `prefix_lengths`, `query_lengths`,
        `key_lengths`, `query_segments` and `key_segments` are those of `dot_product_attention`. The
        result and the errors are those of `attend`.
        """
        query, key, value = as_inputs(query, key, value, self.dtype)
        call = make_call(
            query,
            key,
            value,
            score=resolve_score(self.score, query.shape[-1], key.shape[-1]),
            normalizer=self.normalizer,
            chunk_size=self.chunk_size,
            need_weights=need_weights,
            across=self.across,
            name=path_of(self),
            **dropout(self, train),
            **limits,
        )
        return compute(call)


class SelfAttention(nn.Module):
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
    """

    key_features: int
    value_features: int
    scale: ArrayLike | None = None
    use_bias: bool = False
    normalizer: Normalizer = masked_softmax
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends from every position to every position; the context is `(..., t, value_features)`.

        `mask` and `bias` are those of `attend`. `causal`, `window` and `prefix_lengths` are those
        of `dot_product_attention`. `lengths` `(...)` is the number of real positions in each batch
        row. `segments` `(..., t)` is the id of the sequence that each position belongs to.
        """
        inputs = as_input("inputs", inputs, self.dtype)
        limits: Limits = {"mask": mask, "bias": bias, "causal": causal, "window": window}
        limits |= {"prefix_lengths": prefix_lengths, "query_lengths": lengths}
        limits |= {"key_lengths": lengths, "query_segments": segments, "key_segments": segments}
        visible = make_visibility((*inputs.shape[:-1], inputs.shape[-2]), **limits)
        query, key, value = self._project(inputs, visible)
        call = Call(query, key, value, visible, dot, self.normalizer, **dropout(self, train))
        options = {"chunk_size": self.chunk_size, "across": self.across, "name": path_of(self)}
        context, weights = compute(call._replace(**options, need_weights=need_weights))
        weights = None if weights is None else weights.astype(inputs.dtype)
        return Attended(context.astype(inputs.dtype), weights)

    def _project(self, inputs: Array, visible: Visibility) -> tuple[Array, Array, Array]:
        """Projects queries, keys and values. Where kernels are folded, the keys are the inputs.

        A position that nothing attends to, or that attends to nothing, is zeroed before the
        products. So it reaches no kernel's gradient.
        """
        kernels, biases = self._parameters(inputs)
        is_folded = inputs.shape[-1] < self.key_features and not self.use_bias
        if is_folded:  # x (W_q W_k^T) x^T
            kernels["query"] = kernels["query"] @ kernels.pop("key").T
        if visible.all_visible:
            keys, products = inputs, _project_together(inputs, kernels, biases)
        else:
            queries, keys = (hide(inputs, real) for real in visible.reachable(self.chunk_size))
            others = {name: kernel for name, kernel in kernels.items() if name != "query"}
            products = _project_together(queries, {"query": kernels["query"]}, biases)
            products |= _project_together(keys, others, biases)
        value = products["value"].astype(inputs.dtype)
        if is_folded:  # the query may be beyond the range of half precision
            return products["query"], keys, value
        return products["query"].astype(inputs.dtype), products["key"].astype(inputs.dtype), value

    def _parameters(self, inputs: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Makes kernels and biases by name; the scale is in those of the query."""
        sizes = {"query": self.key_features, "key": self.key_features, "value": self.value_features}
        kernels, biases, dtype = {}, {}, self.param_dtype
        for name, size in sizes.items():
            shape = inputs.shape[-1], size
            kernels[name] = self.param(f"{name}_kernel", self.kernel_init, shape, dtype)
        for name, size in sizes.items() if self.use_bias else ():
            biases[name] = self.param(f"{name}_bias", self.bias_init, (size,), dtype)
        scale = as_scale(self.scale)
        scale = self.key_features**-0.5 if scale is None else scale
        kernels, biases = jax.tree.map(lambda array: array.astype(inputs.dtype), (kernels, biases))
        for parameters in (kernels, biases):
            if "query" in parameters:
                query = parameters["query"]
                parameters["query"] = as_dtype_of(query, scale) * query
        return kernels, biases


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
        train: bool = False,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Attended:
        """Attends as `Attention` does. In training it takes keys of the random stream `sample`."""
        choose = hard
        if train:
            choose = functools.partial(sampled_hard, rng=self.make_rng("sample"))
        query, key, value = as_inputs(query, key, value, self.dtype)
        call = make_call(
            query,
            key,
            value,
            score=resolve_score(self.score, query.shape[-1], key.shape[-1]),
            normalizer=functools.partial(choose, temperature=self.temperature),
            name=path_of(self),
            need_weights=need_weights,
            **limits,
        )
        return compute(call)


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

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool = False,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Attended:
        """Attends as `Attention` does. Without `value`, the values are the keys.

        A `window` is a TypeError: the reach is the window.
        """
        query, key, value = as_inputs(query, key, value, self.dtype)
        call = make_call(
            query,
            key,
            value,
            score=_local_score(self.score, self.param_dtype, query, key),
            chunk_size=self.chunk_size,
            need_weights=need_weights,
            window=(self.reach, self.reach),
            name=path_of(self),
            **dropout(self, train),
            **limits,  # pyright: ignore[reportCallIssue]
        )
        return compute(call)


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
        if self.reach < 1:
            raise ValueError(f"expected a reach of 1 or above, got {self.reach}")
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"],
        value: Float[Array, "*b k e"] | None = None,
        *,
        train: bool = False,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Attended:
        """Attends. The arguments are those of `LocalAttention`."""
        query, key, value = as_inputs(query, key, value, self.dtype)
        shape = weights_shape(query, key, value)
        visible = make_visibility(shape, **limits)
        query = hide(query, visible.reachable()[0])  # before its position is predicted
        distance = self._distances(query, shape[-1], visible.key_lengths)
        mask, bias = visible.block()
        near = jnp.abs(distance) <= self.reach
        call = make_call(
            query,
            key,
            value,
            score=_local_score(self.score, self.param_dtype, query, key),
            normalizer=self._normalizer(distance),
            need_weights=need_weights,
            mask=near if mask is None else both(mask, near),
            bias=bias,
            name=path_of(self),
            **dropout(self, train),
        )
        return compute(call)

    def _distances(
        self, query: Array, num_keys: int, lengths: Array | None
    ) -> Float[Array, "*b q k"]:
        """Computes distances from the position that each query predicts to each key, `s - p`."""
        share = self._predict(query)
        valid = num_keys if lengths is None else lengths.astype(share.dtype)
        return with_rank(jnp.arange(num_keys), query.ndim).astype(share.dtype) - valid * share

    def _normalizer(self, distance: Float[Array, "*b q k"]) -> Normalizer:
        """Makes softmax times the Gaussian of the distance, whose deviation is half the reach.

        A lens with another normaliser replaces softmax. The Gaussian stays.
        """
        gaussian = jnp.exp(-jnp.square(distance) / (2 * (self.reach / 2) ** 2))
        times_gaussian = lambda normalizer: (
            lambda scores, mask: normalizer(scores, mask=mask) * gaussian
        )
        return lens.around(times_gaussian, masked_softmax)

    def _predict(self, query: Array) -> Float[Array, "*b q 1"]:
        """Predicts positions as a share of the length: `sigmoid(v · tanh(W q))`, in float32."""
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


def _local_score(
    score: Score | nn.Module | None, param_dtype: DTypeLike, query: Array, key: Array
) -> Score:
    """Makes the score of a layer: by default a `BilinearScore`, with a kernel of this dtype."""
    if score is None:
        init = lambda key, shape, *_: glorot(key, shape, param_dtype)
        score = BilinearScore(kernel_init=init, name="score")
    return resolve_score(score, query.shape[-1], key.shape[-1])


def as_input(name: str, array: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """Converts an input of a layer to an array of floats, in the given dtype or in its own."""
    array = as_floats(name, array)
    return array if dtype is None else array.astype(dtype)


def as_inputs(
    query: ArrayLike, key: ArrayLike, value: ArrayLike | None, dtype: DTypeLike | None = None
) -> tuple[Array, Array, Array]:
    """Converts query, key and value by `as_input`; without values they are the keys."""
    query, key = as_input("query", query, dtype), as_input("key", key, dtype)
    return query, key, key if value is None else as_input("value", value, dtype)


def resolve_score(score: Score | nn.Module, query_features: int, key_features: int) -> Score:
    """Returns the score function, made by the module where it is one."""
    return score(query_features, key_features) if isinstance(score, nn.Module) else score


def path_of(layer: nn.Module) -> str:
    """Returns the path of a layer, such as `blocks_1/attention`; empty if it has none."""
    return "" if layer.scope is None else "/".join(layer.path)


def dropout(layer: nn.Module, train: bool) -> Options:
    """Makes the arguments of dropout: in training, the rate and a key of the stream `dropout`."""
    rate = layer.dropout_rate if train else 0.0  # pyright: ignore
    if not rate:
        return {}
    options: Options = {"dropout_rate": rate, "dropout_rng": layer.make_rng("dropout")}
    check_dropout(*options.values())
    return options


def without_padding(inputs: Array, lengths: ArrayLike | None) -> Array:
    """Zeros the inputs `(..., t, d)` from `lengths` `(...)` on."""
    if lengths is None:
        return inputs
    leading, lengths = inputs.shape[:-2], as_lengths("lengths", lengths)
    indices = with_rank(jnp.arange(inputs.shape[-2]), len(leading) + 1)
    return hide(inputs, indices < jnp.broadcast_to(lengths, leading)[..., None])


def _project_together(
    inputs: Array, kernels: dict[str, Array], biases: dict[str, Array]
) -> dict[str, Array]:
    """Multiplies the inputs by several kernels in one product, which is 1.14 times as fast."""
    outputs = project_wide(inputs, jnp.concatenate(list(kernels.values()), axis=-1))
    if biases:
        bias = jnp.concatenate([biases[name] for name in kernels]).astype(outputs.dtype)
        outputs += with_rank(bias, outputs.ndim)
    *ends, _ = itertools.accumulate(kernel.shape[-1] for kernel in kernels.values())
    return dict(zip(kernels, jnp.split(outputs, ends, axis=-1)))
