"""Multi-head attention, for whole sequences and for decoding with a cache of keys and values."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, Unpack, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.typing import Initializer, PrecisionLike
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn import platforms
from flax_attn.attention import cache as caches
from flax_attn.attention import lens
from flax_attn.attention.cache import AnyCache, Cache, KeyValueCache, SlidingCache
from flax_attn.attention.checks import Normalizer, PerPair, Score, Window
from flax_attn.attention.core import (
    Across,
    Attended,
    Call,
    before_length,
    compute,
    heads_first,
    heads_last,
)
from flax_attn.attention.layers.shells import (
    LayerBase,
    LinenShell,
    Norm,
    Returned,
    apply_norm,
    as_input,
    lecun,
    without_padding,
)
from flax_attn.attention.normalizers import masked_softmax, needs_all_queries, with_sink
from flax_attn.attention.positions import MAX_PERIOD, positions_from, rotary
from flax_attn.attention.scores import scaled_dot
from flax_attn.attention.visibility import (
    Limits,
    hide,
    make_visibility,
    with_keys_as_queries,
    with_limits,
)
from flax_attn.types import Options


class HeadSizes(NamedTuple):
    """The number of key heads, and the widths of a key and of a value in one head."""

    key_heads: int
    key_width: int
    value_width: int


class KeysAndValues(NamedTuple):
    """The keys and values that queries attend to.

    They are inputs `(..., k, _)`, or projected ones, `(..., k, key heads, _)`.
    """

    key: Array
    value: Array
    lengths: ArrayLike | None
    is_projected: bool

    @classmethod
    def of(cls, cache: AnyCache) -> "KeysAndValues":
        keys, values = (jnp.swapaxes(array, -3, -2) for array in (cache.key, cache.value))
        return cls(keys, values, cache.length, is_projected=True)  # (..., k, key heads, _)

    @property
    def num_keys(self) -> int:
        return self.key.shape[-3] if self.is_projected else self.key.shape[-2]


class InHeads(LayerBase):
    """A layer whose inputs are projected to heads."""

    num_heads: int
    num_key_heads: int | None
    key_features: int | None
    value_features: int | None

    def _sizes(self, features: int) -> HeadSizes:
        """Returns the sizes of keys and values for queries of `features`."""
        heads = self.num_heads
        key_heads = heads if self.num_key_heads is None else self.num_key_heads
        key_features = features if self.key_features is None else self.key_features
        value_features = key_features if self.value_features is None else self.value_features
        sizes = f"{heads} heads, {key_heads} key heads"
        if min(heads, key_heads) < 1 or heads % key_heads:
            raise ValueError(f"expected num_heads to be a multiple of num_key_heads, got {sizes}")
        if key_features % heads or value_features % heads:
            got = f"{key_features} and {value_features} for {sizes}"
            raise ValueError(f"expected features to be a multiple of the heads, got {got}")
        return HeadSizes(key_heads, key_features // heads, value_features // heads)


@dataclasses.dataclass(eq=False, repr=False)
class MultiHeadBase(InHeads):
    """The arguments and the computation of `MultiHeadAttention`."""

    num_heads: int
    num_key_heads: int | None = None
    key_features: int | None = None
    value_features: int | None = None
    out_features: int | None = None
    score: Score | nn.Module = scaled_dot
    normalizer: Normalizer = masked_softmax
    use_bias: bool = True
    out_bias: bool | None = None
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    across: Across | None = None
    kernel_init: Initializer = lecun
    bias_init: Initializer = nn.initializers.zeros
    rotary: bool = False
    rotary_features: int | None = None
    rotary_max_period: float = MAX_PERIOD
    rotary_frequencies: tuple[float, ...] | None = None
    query_key_norm: bool | Norm = False
    sinks: bool = False
    output_gate: bool = False
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None
    return_weights: bool = True

    @with_limits
    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"] | None = None,
        value: Float[Array, "*b k _"] | None = None,
        *,
        cache: KeyValueCache | None = None,
        train: bool | None = None,
        need_weights: bool = True,
        **limits: Unpack[Limits],
    ) -> Returned:
        """Attends from `query` to `key`.

        Without `key`, the key is the query. Without `value`, the value is the key.

        A query that may attend to no key, and a key that no query may attend to, are set to zero
        before their projection. So they have no effect on the gradients of the parameters. If a
        query may attend to no key, every head is 0, and its context is the bias of `out`.

        Args:
            query, key, value: `(..., q, d)` and `(..., k, _)`.
            cache: keys and values from `extend`, instead of `key`, `value` and `key_lengths`.
            key_lengths, key_segments: without `key`, by default those of the query.

        Returns:
            `Attended` with the context `(..., q, out_features)` and weights `(..., heads, q, k)`.
            Other arguments and errors are those of `dot_product_attention`.
        """
        query = as_input("query", query, self.dtype)  # (..., q, d)
        if key is None and cache is None:  # self-attention
            limits = with_keys_as_queries(limits)
        memory = self._memory(query, key, value, cache, limits.pop("key_lengths", None))
        limits = cast(Limits, limits | {"key_lengths": memory.lengths})
        offset = limits.get("query_offset", 0)
        return self._attend(query, offset, memory, limits, train, need_weights)

    def extend(
        self,
        cache: Cache,
        key: Float[Array, "*b t d"],
        value: Float[Array, "*b t _"] | None = None,
        lengths: ArrayLike | None = None,
    ) -> Cache:
        """Returns the cache with the keys and values of `t` more tokens, `lengths` of them real.

        They may be one token, a whole prompt, or the memory that a decoder attends to. With
        `rotary` their positions start at `cache.length`. If a token holds NaN, its keys and values
        are NaN. A mask can still hide them later. The NaN reaches no parameter.

        Errors are those of `append`.
        """
        return caches.append(cache, *self._new(cache, key, value, lengths), lengths)

    def decode(
        self,
        inputs: Float[Array, "*b t d"],
        cache: Cache,
        *,
        lengths: ArrayLike | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        window: Window | None = None,
        prefix_lengths: ArrayLike | None = None,
        train: bool | None = None,
        need_weights: bool = True,
    ) -> tuple[Returned, Cache]:
        """Attends causally, from `t` new tokens to themselves and to the cached ones.

        The cache that is returned holds the new tokens, too. Decoding token by token, or a prompt
        first, gives the same result as `__call__(..., causal=True)` on all tokens at once.

        Args:
            inputs: `(..., t, d)`.
            cache: from `init_cache`, or from the step before.
            lengths: `(...)`, the number of real tokens in each batch row.
            mask, bias, window, prefix_lengths, train, need_weights: as in `__call__`. The call that
                brings a prefix brings all of it. With a sliding cache, mask and bias are functions
                of positions, and no keys are a prefix.

        Returns:
            `Attended` and the cache. In the weights `(..., heads, t, k)`, the keys are all
            positions that the cache has room for. With a sliding cache of `left + 1` slots, they
            are the last `left` tokens in it, and then the `t` new tokens.

        Raises:
            ValueError: a normaliser that needs all queries at once, such as the monotonic ones.
            ValueError: a sliding cache without a window, or with a larger one than its own.
        """
        if needs_all_queries(normalizer := lens.replaced(self.normalizer)):
            raise ValueError(f"expected a normalizer for one query at a time, got {normalizer}")
        inputs = as_input("inputs", inputs, self.dtype)  # (..., t, d)
        keys, values = self._new(cache, inputs, None, lengths)  # (..., t, key heads, width)
        extended = caches.append(cache, keys, values, lengths)
        read, offset = extended, cache.length  # offset (...)
        if isinstance(cache, SlidingCache):
            caches.check_window(cache, window, prefix_lengths)
            lens.check_no_mask("a sliding cache, whose keys are at no fixed positions")
            read, offset = caches.in_order(cache, keys, values, lengths), cache.key.shape[-2] - 1
            mask = caches.from_position("mask", mask, cache.length - offset)
            bias = caches.from_position("bias", bias, cache.length - offset)
        memory = KeysAndValues.of(read)  # (..., k, key heads, width)
        limits = Limits(
            mask=mask,
            bias=bias,
            causal=True,
            window=window,
            query_offset=offset,  # among the keys that are read; `rotary` counts all tokens
            prefix_lengths=prefix_lengths,
            query_lengths=lengths,
            key_lengths=memory.lengths,
        )
        attended = self._attend(inputs, cache.length, memory, limits, train, need_weights)
        return attended, extended

    def init_cache(
        self,
        features: int,
        leading: tuple[int, ...],
        max_length: int | None = None,
        dtype: DTypeLike | None = None,
        window: Window | None = None,
    ) -> KeyValueCache | SlidingCache:
        """Makes an empty cache.

        Args:
            features: width of the inputs that `decode` will get.
            leading: their batch axes, such as `(batch size,)`.
            max_length: the number of tokens that the cache has room for; not for a sliding cache.
            dtype: dtype of keys and values; None for that of the layer, or float32.
            window: `(left, right)`, as in the calls of `decode`. The cache is then a
                `SlidingCache` of `left + 1` slots. It takes any number of tokens.

        Raises:
            ValueError: neither `max_length` nor `window`, or a window without a left bound.
        """
        dtype = self.dtype if dtype is None else dtype
        own_dtype = jnp.float32 if dtype is None else dtype
        sizes = self._sizes(features)
        if window is not None:
            left, _ = window
            if left is None:
                raise ValueError(f"expected a window with a left bound for a cache, got {window}")
            return SlidingCache(*caches.empty_cache(leading, left + 1, *sizes, dtype=own_dtype))
        if max_length is None:
            raise ValueError("expected max_length or window for a cache, got neither")
        return caches.empty_cache(leading, max_length, *sizes, dtype=own_dtype)

    def _memory(
        self,
        query: Array,
        key: ArrayLike | None,
        value: ArrayLike | None,
        cache: KeyValueCache | None,
        lengths: ArrayLike | None,
    ) -> KeysAndValues:
        """Returns the inputs of keys and values, by default the query, or the cache."""
        if cache is not None:
            has_others = any(other is not None for other in (key, value, lengths))
            if isinstance(cache, SlidingCache) or has_others:
                raise ValueError("expected a KeyValueCache, and no key, value or key_lengths")
            return KeysAndValues.of(cache)
        key = query if key is None else as_input("key", key, self.dtype)  # (..., k, _)
        value = key if value is None else as_input("value", value, self.dtype)  # (..., k, _)
        if query.shape[:-2] != key.shape[:-2] or key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                "expected query (..., q, d), key (..., k, d'), value (..., k, e) of equal rows; "
                f"got {query.shape}, {key.shape}, {value.shape}"
            )
        return KeysAndValues(key, value, lengths, is_projected=False)

    def _attend(
        self,
        query: Array,
        offset: ArrayLike,
        memory: KeysAndValues,
        limits: Limits,
        train: bool | None,
        need_weights: bool,
    ) -> Returned:
        """Projects the inputs, with zeros where hidden, attends, and projects the context."""
        *rows, num_queries, _ = query.shape
        shape = (*rows, self.num_heads, num_queries, memory.num_keys)  # (..., heads, q, k)
        visible = make_visibility(shape, (self.num_heads,), **limits)
        has_key, has_query = visible.reachable_in_any_head(self.chunk_size)  # (..., q), (..., k)
        keys, values = memory.key, memory.value  # (..., k, _), or (..., k, key heads, _)
        if not memory.is_projected:
            inputs = hide(keys, has_query), hide(values, has_query)  # no NaN reaches a kernel
            keys, values = self._keys_and_values(*inputs, self._sizes(query.shape[-1]))
        width, sizes = keys.shape[-1], (self.num_heads, values.shape[-1])
        shown = hide(query, has_key)  # (..., q, d)
        queries = self._project("query", (self.num_heads, width), shown)  # (..., q, heads, width)
        queries = lens.at(self._path(), "query", queries)
        queries = self.turned(queries, offset)  # (..., q, heads, width)
        call = Call(
            queries,
            keys,
            values,
            visible,
            self._score(self.score, queries, keys),
            self._with_sinks(keys.shape[-2]),
            chunk_size=self.chunk_size,
            need_weights=self._wants(need_weights),
            across=None if memory.is_projected else self.across,
            is_cached=memory.is_projected,
            name=self._path(),
        )
        gate = nn.sigmoid(self._project("gate", sizes, shown)) if self.output_gate else None
        call = heads_first(call._replace(**self._dropout(train)))
        if gate is not None:  # as the context
            gate = before_length(gate, keys.shape[-2] if keys.shape[-2] < self.num_heads else None)
        attended = compute(call)  # context (..., heads, q, width), with heads in groups or not
        if gate is not None:
            attended = attended._replace(context=attended.context * gate)
        context, weights = heads_last(attended, visible.shape)  # (..., q, heads, width)
        context = lens.at(self._path(), "context", context)
        features = query.shape[-1] if self.out_features is None else self.out_features
        context = self._project("out", features, context, axis=(-2, -1))  # (..., q, features)
        context = lens.at(self._path(), "output", context)
        return self._returned(Attended(context, weights), need_weights)

    def _new(
        self,
        cache: KeyValueCache | SlidingCache,
        key: Array,
        value: Array | None,
        lengths: ArrayLike | None,
    ) -> tuple[Array, Array]:
        """Projects keys and values of new tokens, which are NaN where a token holds one."""
        key = as_input("key", key, self.dtype)
        value = key if value is None else as_input("value", value, self.dtype)
        if key.shape[:-2] != cache.length.shape:
            raise ValueError(f"expected the batch axes {cache.length.shape}, got {key.shape}")
        key, value = without_padding(key, lengths), without_padding(value, lengths)  # (..., t, _)
        finite = [jnp.isfinite(array).all(axis=-1) for array in (key, value)]  # (..., t)
        key, value = (hide(array, is_finite) for array, is_finite in zip((key, value), finite))
        sizes = HeadSizes(cache.key.shape[-3], cache.key.shape[-1], cache.value.shape[-1])
        projected = self._keys_and_values(key, value, sizes, cache.length)  # (..., t, key heads, _)
        keys, values = (
            jnp.where(is_finite[..., None, None], array, jnp.nan)  # (..., t, key heads, width)
            for array, is_finite in zip(projected, finite)
        )
        return keys, values

    def _keys_and_values(
        self, key: Array, value: Array, sizes: HeadSizes, offset: ArrayLike = 0
    ) -> tuple[Array, Array]:
        """Projects keys and values to `(..., k, key heads, width)`."""
        keys = self._project("key", (sizes.key_heads, sizes.key_width), key)
        values = self._project("value", (sizes.key_heads, sizes.value_width), value)
        keys, values = lens.at(self._path(), "key", keys), lens.at(self._path(), "value", values)
        return self.turned(keys, offset), values  # (..., k, key heads, width) each

    def _project(
        self,
        name: str,
        features: int | tuple[int, ...],
        inputs: Array,
        axis: int | tuple[int, ...] = -1,
    ) -> Array:
        """Applies a projection, and for queries and keys the norm if there is one."""
        raise NotImplementedError

    def _with_sinks(self, key_heads: int) -> Normalizer:
        """Returns the normaliser, with a sink for each head if there are sinks."""
        if self.sinks is False:  # in nnx the parameter stands in the place of True
            return self.normalizer
        heads = self.num_heads
        sinks = self._param("sinks", nn.initializers.zeros, (heads,))  # (heads,)
        shape = (heads,) if key_heads == heads else (key_heads, heads // key_heads)
        make = functools.partial(with_sink, sinks.reshape(*shape, 1, 1))  # (*shape, 1, 1)
        return lens.around(make, self.normalizer)  # a lens replaces what is inside the sinks

    def turned(self, vectors: Array, offset: ArrayLike) -> Array:
        """Turns queries or keys `(..., t, heads, d)` from position `offset` on, if `rotary`."""
        if not self.rotary:
            return vectors
        turned = rotary(
            jnp.swapaxes(vectors, -3, -2),  # (..., heads, t, d)
            positions_from(offset, vectors.shape[-3])[..., None, :],  # (..., 1, t)
            features=self.rotary_features,
            max_period=self.rotary_max_period,
            frequencies=self.rotary_frequencies,
        )
        return jnp.swapaxes(turned, -3, -2)  # (..., t, heads, d)


class MultiHeadAttention(MultiHeadBase, LinenShell, nn.Module):
    """Attention in several heads. Each head has its own projections of queries, keys and values.

        head_i = attend(x W_q,i + b_q,i,  y W_k,i + b_k,i,  z W_v,i + b_v,i)
        context = sum_i head_i W_o,i + b_o

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2; Su et al. 2021 (arXiv:2104.09864)
    for `rotary`; Dehghani et al. 2023 (arXiv:2302.05442), section 2, for `query_key_norm`. The tree
    of parameters is that of `flax.linen.MultiHeadDotProductAttention`, so checkpoints move both
    ways. Three options add to the formula:

        rotary_frequencies    other angles of `rotary`, such as scaled ones for longer texts
        sinks                 weights = exp(e_k) / (exp(s_i) + sum_j exp(e_j)), s_i learned
        output_gate           head_i * sigmoid(x W_g,i) in place of head_i

    Source: Xiao et al. 2024 (arXiv:2309.17453) and OpenAI 2025 (arXiv:2508.10925) for `sinks`; Qiu
    et al. 2025 (arXiv:2505.06708) for `output_gate`.

    Attributes:
        num_heads: number of query heads.
        num_key_heads: number of key and value heads, a divisor of `num_heads`; None for
            `num_heads`.
        key_features: width of all query heads together; None for the width of the query.
        value_features: the same for values; None for `key_features`.
        out_features: width of the context; None for the width of the query.
        score: function of queries and keys `(..., heads, t, d)`, or a module that makes one, such
            as `AdditiveScore(64)`. The heads share it. It gets vectors, not positions. Do not
            rotate inside a score: it would start at position 0 in every block and at every step of
            decoding, and the result would be wrong without an error. Set `rotary` instead.
        normalizer: a function from scores to weights.
        use_bias: whether the projections have biases.
        out_bias: whether `out` has one; None for `use_bias`.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        across: as in `attend`. Attention to a cache is not cut.
        kernel_init, bias_init: initialisers of the four kernels and of the four biases.
        rotary: whether queries and keys are turned after the projection, by angles that grow with
            their positions, as the function `rotary` does. It says how weights of other models are
            reordered. Positions of queries start at `query_offset`, those of keys at 0. A
            cache holds keys that are already turned.
        rotary_features: the number of features of each head that are turned, the first ones. It is
            even; None for all.
        rotary_max_period: `max_period` of the function `rotary`.
        rotary_frequencies: `frequencies` of the function `rotary`, such as those that the function
            `scaled_frequencies` returns; None for those of `rotary_max_period`.
        query_key_norm: True for a layer norm with scales and without biases after the projection of
            queries and keys, over the features of each head. Or a class of norm, such as
            `nn.RMSNorm`, or a function of its attributes `dtype`, `param_dtype` and `name`. It
            gets `(..., t, heads, d)`.
        sinks: whether each head has a learned score that competes with those of the keys and has no
            value. A head can then attend to nothing. The parameter is `sinks`, `(heads,)`. Memory
            is linear in the lengths with `chunk_size` alone, and no kernel of a platform fits.
        output_gate: whether a sigmoid of the query gates each feature of the heads' contexts. The
            parameters are `gate`.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        precision: precision of the four projections, as in `jax.lax.Precision`.
        return_weights: as in `Attention`.
    """

    def __post_init__(self):
        check_rotary(self)
        super().__post_init__()

    __call__ = MultiHeadBase.__call__
    extend = MultiHeadBase.extend
    decode = MultiHeadBase.decode
    _with_sinks = nn.compact(MultiHeadBase._with_sinks)

    @nn.compact
    def _project(
        self,
        name: str,
        features: int | tuple[int, ...],
        inputs: Array,
        axis: int | tuple[int, ...] = -1,
    ) -> Array:
        dtypes: Options = {"dtype": inputs.dtype, "param_dtype": self.param_dtype}
        outputs = nn.DenseGeneral(
            features,
            axis=axis,
            use_bias=self.out_bias
            if name == "out" and self.out_bias is not None
            else self.use_bias,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            precision=self.precision,
            dot_general=None if self.across else on_one_axis,  # an axis that is cut stays one
            name=name,
            **dtypes,
        )(inputs)  # (..., *features)
        if self.query_key_norm and name in ("query", "key"):
            norm_class = self.query_key_norm
            norm = (
                functools.partial(nn.LayerNorm, use_bias=False)
                if norm_class is True
                else norm_class
            )
            outputs = apply_norm(norm, outputs, name=f"{name}_ln", **dtypes)
        return outputs


def check_rotary(layer: MultiHeadBase) -> None:
    """Raises a ValueError for attributes of rotary positions without them."""
    is_set = layer.rotary_features is not None or layer.rotary_frequencies is not None
    if not layer.rotary and (is_set or layer.rotary_max_period != MAX_PERIOD):
        raise ValueError("expected rotary=True beside other attributes of rotary")


def on_one_axis(inputs: Array, kernel: Array, dimension_numbers: Any, **options: Any) -> Array:
    """Computes `jax.lax.dot_general` of `(..., *c)` and `(*c, *features)`, for `dot_general=`.

    The batch axes of the inputs become one axis before the product, and are put back after it. The
    result is the same. The gradient of the kernel then contracts one axis. With two axes, XLA first
    transposes both of its operands on a CPU. Where an axis of a mesh is explicit, all stay: JAX
    merges no axis that is cut. The outputs are then cut as the batch and the features are.
    """
    (contracted, _), _ = dimension_numbers
    axes = inputs.ndim - len(contracted)
    if explicit := list(filter(platforms.has_explicit_axes, (kernel, inputs))):
        cuts = (jax.typeof(array).sharding.spec for array in (inputs, kernel))
        rows, features = next(cuts)[:axes], next(cuts)[len(contracted) :]
        mesh = jax.typeof(explicit[0]).sharding.mesh
        options["out_sharding"] = NamedSharding(mesh, P(*rows, *features))
        return jax.lax.dot_general(inputs, kernel, dimension_numbers, **options)
    batch, width = inputs.shape[:axes], math.prod(inputs.shape[axes:])
    flat = kernel.reshape(math.prod(kernel.shape[: len(contracted)]), -1)  # (c, features)
    product = jax.lax.dot(inputs.reshape(-1, width), flat, **options)  # (batch, features)
    return product.reshape(*batch, *kernel.shape[len(contracted) :])  # (..., *features)
