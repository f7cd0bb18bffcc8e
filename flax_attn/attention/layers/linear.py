"""Linear attention as a layer: projections, a short convolution, decays, and an output gate."""

import dataclasses
from collections.abc import Callable
from typing import Unpack

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer, PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention import lens
from flax_attn.attention.arrays import with_rank
from flax_attn.attention.cache import StateCache
from flax_attn.attention.core import Attended
from flax_attn.attention.layers.multi_head import InHeads
from flax_attn.attention.layers.shells import (
    LinenShell,
    Norm,
    Returned,
    as_input,
    lecun,
    without_padding,
)
from flax_attn.attention.linear import (
    CHUNK_SIZE,
    causal_convolution,
    l2_normalized,
    linear_attention,
)
from flax_attn.attention.visibility import Limits, with_limits
from flax_attn.types import Options

# By name: whether the state decays, and whether a write replaces what the key returns.
RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
CONVOLVED = ("query", "key", "value")
OF_PAIRS = ("mask", "bias", "window", "prefix_lengths")


@dataclasses.dataclass(eq=False, repr=False)
class LinearAttentionBase(InHeads):
    """The arguments and the computation of `LinearAttention`."""

    num_heads: int
    num_key_heads: int | None = None
    rule: str = "gated_delta"
    key_features: int | None = None
    value_features: int | None = None
    out_features: int | None = None
    feature_map: Callable[[Array], Array] | None = l2_normalized
    decay_per_feature: bool = False
    conv_size: int = 4
    output_gate: bool = True
    use_bias: bool = False
    chunk_size: int = CHUNK_SIZE
    kernel_init: Initializer = lecun
    norm: Norm = nn.RMSNorm
    epsilon: float = 1e-6
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        inputs: Float[Array, "*b t d"],
        *,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Returned:
        """Attends from each token to itself and to those before it.

        Args:
            inputs: `(..., t, d)`.
            train: nothing differs in training; blocks pass it to every attention.
            need_weights: whether the implied weights are computed, in memory quadratic in `t`.
            query_lengths, query_segments: as `lengths` and `segments` in `linear_attention`.
            limits: those of pairs are refused. Attention is causal with and without `causal`.

        Returns:
            `Attended` with the context `(..., t, out_features)` and the implied weights
            `(..., heads, t, t)`, which may be negative and do not sum to 1.

        Raises:
            ValueError: a mask, bias, window or prefix, which a state cannot follow.
        """
        del train
        _check_no_pairs(limits)
        lengths, segments = limits.get("query_lengths"), limits.get("query_segments")
        return self._attend(inputs, None, lengths, segments, need_weights)[0]

    def decode(
        self,
        inputs: Float[Array, "*b t d"],
        cache: StateCache,
        *,
        lengths: ArrayLike | None = None,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> tuple[Returned, StateCache]:
        """Attends from `t` new tokens to themselves and to what the state holds of earlier ones.

        Token by token, or in parts of any size, it gives the same result as one call.

        Args:
            inputs: `(..., t, d)`.
            cache: from `init_cache`, or from the step before.
            lengths: `(...)`, the number of real tokens in each batch row.
            train, need_weights, limits: as in `__call__`.

        Returns:
            `Attended` with weights `(..., heads, t, t)` on the new tokens alone, and the cache.
        """
        del train
        _check_no_pairs(limits)
        attended, state, past = self._attend(inputs, cache, lengths, None, need_weights)
        added = jnp.shape(inputs)[-2] if lengths is None else jnp.asarray(lengths)
        return attended, StateCache(state, past, cache.length + added)

    def init_cache(
        self,
        features: int,
        leading: tuple[int, ...],
        max_length: int | None = None,
        dtype: DTypeLike | None = None,
        window: object = None,
    ) -> StateCache:
        """Makes an empty cache for inputs `(*leading, t, features)`, for any number of tokens.

        The state is in float32. `max_length` and `window` are those of other attentions.
        """
        del max_length, window
        dtype = self.dtype if dtype is None else dtype
        sizes, widths = self._sizes(features), self._widths(features)
        state = *leading, self.num_heads, sizes.key_width, sizes.value_width
        channels = sum(widths[name] for name in CONVOLVED)
        return StateCache(
            jnp.zeros(state, jnp.float32),  # (..., heads, d, e)
            jnp.zeros((*leading, max(self.conv_size - 1, 0), channels), dtype or jnp.float32),
            jnp.zeros(leading, jnp.int32),
        )

    def _attend(
        self,
        inputs: Array,
        cache: StateCache | None,
        lengths: ArrayLike | None,
        segments: ArrayLike | None,
        need_weights: bool,
    ) -> tuple[Returned, Array, Array]:
        """Returns what the caller asked for, and the state and the last inputs after the tokens."""
        inputs = without_padding(as_input("inputs", inputs, self.dtype), lengths)  # (..., t, d)
        *rows, length, features = inputs.shape
        sizes, widths = self._sizes(features), self._widths(features)
        linear = lambda name: self._linear(name, widths[name], inputs)  # (..., t, width)
        state, past = (None, None) if cache is None else (cache.state, cache.inputs)
        convolved = jnp.concatenate([linear(name) for name in CONVOLVED], axis=-1)  # (..., t, c)
        if self.conv_size:
            kernel = self._param("conv", lecun, (self.conv_size, convolved.shape[-1]))  # (n, c)
            convolved, past = causal_convolution(
                convolved, kernel, lengths=lengths, segments=segments, past=past
            )
            convolved = nn.silu(convolved)  # (..., t, c)
        else:
            past = convolved[..., :0, :]  # a cache without inputs
        ends = widths["query"], 2 * widths["query"]
        query, key, value = (
            part.reshape(*rows, length, -1, width)
            for part, width in zip(
                jnp.split(convolved, ends, axis=-1),
                (sizes.key_width, sizes.key_width, sizes.value_width),
            )
        )  # (..., t, key heads, d), (..., t, heads, e)
        if sizes.key_heads < self.num_heads:  # each value head has its own state
            shared = self.num_heads // sizes.key_heads
            query, key = (jnp.repeat(array, shared, axis=-2) for array in (query, key))
        query, key, value = (
            lens.at(self._path(), part, array)
            for part, array in (("query", query), ("key", key), ("value", value))
        )
        has_strength, wants = "strength" in widths, self._wants(need_weights)
        at_once = wants or jax.export.is_symbolic_dim(length)
        (context, weights), state = linear_attention(
            query,
            key,
            value,
            log_decay=self._log_decay(linear("decay")) if "decay" in widths else None,
            write_strength=nn.sigmoid(linear("strength")) if has_strength else None,
            feature_map=self.feature_map,
            lengths=lengths,
            segments=segments,
            state=state,
            chunk_size=None if at_once else self.chunk_size,
            need_weights=wants,
            name=self._path(),
        )  # (..., t, heads, e)
        context = self._normed("context_norm", context)
        if self.output_gate:
            context = context * nn.silu(linear("gate").reshape(context.shape))  # (..., t, heads, e)
        context = lens.at(self._path(), "context", context)
        out = features if self.out_features is None else self.out_features
        context = self._linear("out", out, context.reshape(*rows, length, -1))  # (..., t, out)
        context = lens.at(self._path(), "output", context)
        return self._returned(Attended(context, weights), need_weights), state, past

    def _log_decay(self, steps: Array) -> Array:
        """Computes `-exp(a) softplus(x W + b)`, `(..., t, heads)` or for each feature, of `x W`."""
        heads = self.num_heads
        bias = self._param("decay_bias", small_steps, steps.shape[-1:])  # (heads,) or (heads d,)
        rate = jnp.exp(self._param("decay_rate", log_uniform, (heads,)))  # (heads,)
        steps = steps.astype(bias.dtype)
        steps += with_rank(bias, steps.ndim)
        if self.decay_per_feature:
            steps, rate = steps.reshape(*steps.shape[:-1], heads, -1), rate[:, None]
        return -with_rank(rate, steps.ndim) * nn.softplus(steps)

    def _linear(self, name: str, features: int, inputs: Array) -> Array:
        options: Options = {"kernel_init": self.kernel_init, "precision": self.precision}
        return self._dense(name, features, inputs, use_bias=self.use_bias, **options)

    def _widths(self, features: int) -> dict[str, int]:
        """Returns the widths of the projections of inputs, by name."""
        key_heads, key_width, value_width = self._sizes(features)
        decays, writes = RULES[self.rule]
        values = self.num_heads * value_width
        widths = dict.fromkeys(("query", "key"), key_heads * key_width) | {"value": values}
        if self.output_gate:
            widths["gate"] = values
        if writes:
            widths["strength"] = self.num_heads
        if decays:
            widths["decay"] = self.num_heads * (key_width if self.decay_per_feature else 1)
        return widths


class LinearAttention(LinearAttentionBase, LinenShell, nn.Module):
    """Causal attention without softmax, in several heads, as in Gated DeltaNet.

        q, k, v = silu(convolution([x W_q, x W_k, x W_v]))
        g = -exp(a) softplus(x W_g + c),  b = sigmoid(x W_b)
        head_i = norm(linear_attention(q_i, k_i, v_i, g_i, b_i)) * silu(x W_z,i)
        context = sum_i head_i W_o,i

    It stands where a causal `MultiHeadAttention` does, also in a `DecoderBlock`. Decoding takes the
    same time and memory per token at every length.

    Source: Yang et al. 2025 (arXiv:2412.06464), section 3.4; Dao & Gu 2024 (arXiv:2405.21060) for
    the decays.

    Attributes:
        num_heads: number of heads, each with a state of its own.
        num_key_heads: number of heads of queries and keys, a divisor of `num_heads`; consecutive
            heads share one. None for `num_heads`.
        rule: `linear`, `gated`, `delta` or `gated_delta`.
        key_features: width of `num_heads` keys; None for the width of the inputs.
        value_features: the same for values; None for `key_features`.
        out_features: width of the context; None for the width of the inputs.
        feature_map: applied to queries and keys; None for none.
        decay_per_feature: whether each feature of the keys has a decay, as in GLA and Kimi delta
            attention, or each head.
        conv_size: the number of tokens that the convolution reads; 0 for no convolution.
        output_gate: whether there is the factor `silu(x W_z)`.
        use_bias: whether the projections have biases.
        chunk_size: tokens that are computed at once where no weights are needed.
        kernel_init: initialiser of the projections.
        norm, epsilon: of the context of each head, as in `EncoderBlock`.
        dtype: dtype of the computation and of the result; None for that of the inputs. The state is
            in float32.
        param_dtype: dtype of the parameters.
        precision: precision of the projections, as in `jax.lax.Precision`.
        return_weights: as in `Attention`.
    """

    def __post_init__(self):
        check_rule(self)
        super().__post_init__()

    __call__ = LinearAttentionBase.__call__
    decode = LinearAttentionBase.decode
    _attend = nn.compact(LinearAttentionBase._attend)


def check_rule(layer: LinearAttentionBase) -> None:
    """Raises a ValueError for an unknown rule."""
    if layer.rule not in RULES:
        raise ValueError(f"expected a rule of {tuple(RULES)}, got {layer.rule!r}")


def small_steps(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
    """Draws biases whose softplus is between 0.001 and 0.1, on a logarithmic scale, as in Mamba."""
    steps = jnp.exp(jax.random.uniform(key, shape, dtype, jnp.log(1e-3), jnp.log(1e-1)))
    return steps + jnp.log(-jnp.expm1(-steps))  # the inverse of softplus


def log_uniform(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
    """Draws logarithms of rates between 1 and 16, as in Mamba-2."""
    return jnp.log(jax.random.uniform(key, shape, dtype, 1.0, 16.0))


def _check_no_pairs(limits: Limits) -> None:
    """Raises a ValueError for a limit of pairs of tokens."""
    for name in OF_PAIRS:
        if limits.get(name) is not None:
            raise ValueError(
                f"expected no {name} in linear attention: a state does not know who will read it"
            )
