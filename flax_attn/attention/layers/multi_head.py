"""Multi-head attention, for whole sequences and for decoding with a cache of keys and values."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer, PrecisionLike
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention import cache as caches
from flax_attn.attention import positions
from flax_attn.attention.arrays import hide
from flax_attn.attention.cache import Cache, KeyValueCache, SlidingCache
from flax_attn.attention.checks import Window, check_rate, check_size
from flax_attn.attention.core import Attended, attend_in_heads, scaled_dot
from flax_attn.attention.how import How
from flax_attn.attention.layers.attention import (
    as_input,
    resolve_score,
    with_dropout,
    without_padding,
)
from flax_attn.attention.normalizers import masked_softmax, needs_all_queries
from flax_attn.attention.pairs import Pairs, PerPair
from flax_attn.attention.reach import reachable_in_any_head

Function = Callable[..., Array]


class MultiHeadAttention(nn.Module):
    """Attention in several heads, each between its own projections of queries, keys and values.

        head_i = attend(x W_q,i + b_q,i,  y W_k,i + b_k,i,  z W_v,i + b_v,i)
        context = sum_i head_i W_o,i + b_o

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2; Su et al. 2021 (arXiv:2104.09864)
    for `rotary`; Dehghani et al. 2023 (arXiv:2302.05442), section 2, for `query_key_norm`. The tree
    of parameters is that of `flax.linen.MultiHeadDotProductAttention`, so checkpoints move both
    ways.

    Attributes:
        num_heads: query heads.
        num_key_heads: key and value heads; they divide the query heads. None for the same number.
        key_features: width of queries and keys over all query heads; None for the query's width.
        value_features: width of values likewise; None for `key_features`.
        out_features: width of the context; None for the width of the query.
        score: function of queries and keys `(..., heads, t, d)`, or a module that makes one, such
            as `AdditiveScore(64)`, shared by the heads. It gets vectors, not positions. A score
            that rotates its vectors starts at position 0 in every block and at every step of
            decoding. The result is wrong, and there is no error. Set `rotary` instead.
        normalizer: from scores to weights.
        use_bias: whether the four projections have biases.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        kernel_init, bias_init: initialisers of the four kernels and of the four biases.
        rotary: whether queries and keys are turned by the angles of their positions after the
            projection. Queries are at `query_offset` onwards, keys at 0 onwards. A cache holds keys
            that are turned.
        rotary_features: the number of features of each head that are turned, the first ones, an
            even number; None for all.
        rotary_max_period: as in `rotary`.
        query_key_norm: whether queries and keys are normalised over the features of each head after
            the projection, with scales and without biases.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        precision: of the four projections, as in `jax.lax.Precision`.
    """

    num_heads: int
    num_key_heads: int | None = None
    key_features: int | None = None
    value_features: int | None = None
    out_features: int | None = None
    score: Function | nn.Module = scaled_dot
    normalizer: Function = masked_softmax
    use_bias: bool = True
    dropout_rate: float = 0.0
    chunk_size: int | None = None
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros
    rotary: bool = False
    rotary_features: int | None = None
    rotary_max_period: float = 10_000.0
    query_key_norm: bool = False
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: PrecisionLike = None

    def __post_init__(self):
        check_size("num_heads", self.num_heads)
        sizes = ("num_key_heads", "key_features", "value_features", "out_features")
        for name in (*sizes, "rotary_features"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if self.rotary_features is not None and not self.rotary:
            raise ValueError(f"expected rotary=True with rotary_features={self.rotary_features}")
        check_rate("dropout_rate", self.dropout_rate)
        super().__post_init__()

    def __call__(
        self,
        query: Float[Array, "*b q d"],
        key: Float[Array, "*b k _"] | None = None,
        value: Float[Array, "*b k _"] | None = None,
        *,
        cache: KeyValueCache | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        causal: bool = False,
        window: Window | None = None,
        query_offset: ArrayLike = 0,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
        query_segments: ArrayLike | None = None,
        key_segments: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends from `query` to `key`, and gathers `value`.

        The key is by default the query, the value by default the key.

        A query with nothing to attend, and a key that no query may attend, are zeroed before they
        are projected, so they leak nothing into the parameters. In a row with nothing to attend
        every head is 0, so its context is the bias of `out`.

        Args:
            query, key, value: `(..., q, d)` and `(..., k, _)`.
            cache: keys and values as `extend` made them, instead of `key`, `value` and
                `key_lengths`.
            key_lengths, key_segments: by default those of the query where no `key` is given.

        Returns:
            `Attended` with the context `(..., q, out_features)` and weights `(..., heads, q, k)`.
            Other arguments and errors are those of `dot_product_attention`.
        """
        query = as_input("query", query, self.dtype)
        if cache is not None:
            _check_alone(cache, key, value, key_lengths)
            key_lengths, num_keys = cache.length, cache.key.shape[-3]
        else:
            if key is None:
                key_lengths = query_lengths if key_lengths is None else key_lengths
                key_segments = query_segments if key_segments is None else key_segments
            key = query if key is None else as_input("key", key, self.dtype)
            value = key if value is None else as_input("value", value, self.dtype)
            _check_leading(query, key, value)
            num_keys = key.shape[-2]
        pairs = (
            Pairs.in_heads(*query.shape[:-2], self.num_heads, query.shape[-2], num_keys)
            .under(mask, bias)
            .limited(causal, window, query_offset)
            .padded(query_lengths, key_lengths)
            .packed(query_segments, key_segments)
        )
        has_key, has_query = reachable_in_any_head(pairs, self.chunk_size)
        if cache is not None:
            cached = cache.key, cache.value
        else:
            assert key is not None
            assert value is not None
            inputs = hide(key, has_query), hide(value, has_query)
            cached = self._keys_and_values(*inputs, *self._sizes(query.shape[-1]))
        query = hide(query, has_key)
        return self._attend(query, query_offset, cached, pairs, train, need_weights)

    def extend(
        self,
        cache: Cache,
        key: Float[Array, "*b t d"],
        value: Float[Array, "*b t _"] | None = None,
        lengths: ArrayLike | None = None,
    ) -> Cache:
        """The cache with the keys and values of `t` more tokens, `lengths` of them real.

        They may be one token, a whole prompt, or the memory that a decoder attends to. With
        `rotary` their positions start at `cache.length`. The keys and values of a token that holds
        a NaN are NaN, and it reaches no parameter: a mask may hide it later.

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
        train: bool = False,
        need_weights: bool = True,
    ) -> tuple[Attended, Cache]:
        """Causal self-attention of `t` new tokens to themselves and to the cached ones.

        The cache that is returned holds the new tokens too. `decode` token by token, or prompt
        first, gives what `__call__(..., causal=True)` gives for all at once.

        Args:
            inputs: `(..., t, d)`.
            cache: from `init_cache`, or from the step before.
            lengths: `(...)`, the number of real tokens in each batch row.
            mask, bias, window, train, need_weights: as in `__call__`. With a sliding cache, mask
                and bias are functions of positions.

        Returns:
            `Attended` and the cache. The keys of the weights `(..., heads, t, k)` are all positions
            that the cache has room for. With a sliding cache of `left + 1` slots they are the last
            `left` tokens in it, then the `t` new tokens.

        Raises:
            ValueError: a normaliser that must see all queries at once, such as the monotonic ones:
                it cannot go on from a cache; with a sliding cache no window, or a larger one.
        """
        if needs_all_queries(self.normalizer):
            raise ValueError(
                "expected a normalizer that sees one query at a time to decode with, "
                f"got {self.normalizer}"
            )
        inputs = as_input("inputs", inputs, self.dtype)
        keys, values = self._new(cache, inputs, None, lengths)
        extended = caches.append(cache, keys, values, lengths)
        read, offset = extended, cache.length
        if isinstance(cache, SlidingCache):
            caches.check_window(cache, window)
            read, offset = caches.in_order(cache, keys, values, lengths), cache.key.shape[-3] - 1
            mask = caches.from_position("mask", mask, cache.length - offset)
            bias = caches.from_position("bias", bias, cache.length - offset)
        num_keys = read.key.shape[-3]
        pairs = (
            Pairs.in_heads(*inputs.shape[:-2], self.num_heads, inputs.shape[-2], num_keys)
            .under(mask, bias)
            .limited(True, window, offset)
            .padded(lengths, read.length)
        )
        query = hide(inputs, reachable_in_any_head(pairs, self.chunk_size)[0])
        cached = read.key, read.value
        attended = self._attend(query, cache.length, cached, pairs, train, need_weights)
        return attended, extended

    @nn.nowrap
    def init_cache(
        self,
        features: int,
        leading: tuple[int, ...],
        max_length: int | None = None,
        dtype: DTypeLike | None = None,
        window: Window | None = None,
    ) -> KeyValueCache | SlidingCache:
        """An empty cache, for queries of `features` with these leading axes.

        Args:
            max_length: the number of tokens that there is room for. A sliding cache needs none.
            dtype: of keys and values; None for that of the layer, or float32.
            window: `(left, right)`, as in the calls of `decode`. The cache is then a
                `SlidingCache` of `left + 1` slots. It takes any number of tokens.

        Raises:
            ValueError: neither `max_length` nor `window`, or a window without a left bound.
        """
        dtype = dtype or self.dtype or jnp.float32
        heads, widths = self._sizes(features)
        sizes = heads, *widths, dtype
        if window is not None:
            return caches.empty_sliding_cache(leading, window, *sizes)
        if max_length is None:
            raise ValueError("expected max_length or window for a cache, got neither")
        check_size("max_length", max_length, least=0)
        return caches.empty_cache(leading, max_length, *sizes)

    def _new(
        self,
        cache: KeyValueCache | SlidingCache,
        key: Array,
        value: Array | None,
        lengths: ArrayLike | None,
    ) -> tuple[Array, Array]:
        """Keys and values of new tokens, which are NaN where a token holds one."""
        key = as_input("key", key, self.dtype)
        value = key if value is None else as_input("value", value, self.dtype)
        key, value = without_padding(key, lengths), without_padding(value, lengths)
        finite = [jnp.isfinite(array).all(axis=-1) for array in (key, value)]
        key, value = (hide(array, real) for array, real in zip((key, value), finite))
        heads, widths = cache.key.shape[-2], (cache.key.shape[-1], cache.value.shape[-1])
        new = self._keys_and_values(key, value, heads, widths, cache.length)
        keys, values = (
            jnp.where(real[..., None, None], array, jnp.nan) for array, real in zip(new, finite)
        )
        return keys, values

    def _keys_and_values(
        self,
        key: Array,
        value: Array,
        heads: int,
        widths: tuple[int, int],
        offset: ArrayLike = 0,
    ) -> tuple[Array, Array]:
        """The projections `(..., k, heads, width)` of keys and of values."""
        key_width, value_width = widths
        keys = self._turned(self._project("key", (heads, key_width), key), offset)
        return keys, self._project("value", (heads, value_width), value)

    def _attend(
        self,
        query: Array,
        offset: ArrayLike,
        cached: tuple[Array, Array],
        pairs: Pairs,
        train: bool,
        need_weights: bool,
    ) -> Attended:
        """Attends from queries, with zeros where there is nothing to attend, to keys and values."""
        width = cached[0].shape[-1]
        queries = self._project("query", (self.num_heads, width), query)
        queries = self._turned(queries, offset)
        score = resolve_score(self.score, width, width)
        pairs = with_dropout(pairs, self, self.dropout_rate, train)
        how = How(score, self.normalizer, self.chunk_size, need_weights)
        context, weights = attend_in_heads(queries, *cached, pairs, how)
        features = query.shape[-1] if self.out_features is None else self.out_features
        return Attended(self._project("out", features, context, axis=(-2, -1)), weights)

    @nn.compact
    def _project(
        self,
        name: str,
        features: int | tuple[int, ...],
        inputs: Array,
        axis: int | tuple[int, ...] = -1,
    ) -> Array:
        dtypes: dict[str, Any] = {"dtype": inputs.dtype, "param_dtype": self.param_dtype}
        outputs = nn.DenseGeneral(
            features,
            axis=axis,
            use_bias=self.use_bias,
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            precision=self.precision,
            name=name,
            **dtypes,
        )(inputs)
        if self.query_key_norm and name in ("query", "key"):
            outputs = nn.LayerNorm(use_bias=False, name=f"{name}_ln", **dtypes)(outputs)
        return outputs

    @nn.nowrap
    def _turned(self, vectors: Array, offset: ArrayLike) -> Array:
        """Queries or keys `(..., t, heads, d)` from position `offset` on, turned if `rotary`."""
        if not self.rotary:
            return vectors
        at = positions.positions_from(offset, vectors.shape[-3])[..., None, :]  # (..., 1, t)
        turned = positions.rotary(
            jnp.swapaxes(vectors, -3, -2),
            at,
            features=self.rotary_features,
            max_period=self.rotary_max_period,
        )
        return jnp.swapaxes(turned, -3, -2)

    @nn.nowrap
    def _sizes(self, features: int) -> tuple[int, tuple[int, int]]:
        """The number of key heads, and the widths of a head's keys and values."""
        heads = self.num_heads
        key_heads = heads if self.num_key_heads is None else self.num_key_heads
        key_features = features if self.key_features is None else self.key_features
        value_features = key_features if self.value_features is None else self.value_features
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise ValueError(
                "expected num_heads to be a multiple of num_key_heads, both above 0, "
                f"got {heads} and {key_heads}"
            )
        for name, size in (("key_features", key_features), ("value_features", value_features)):
            if size % heads:
                raise ValueError(f"expected {name} to be a multiple of {heads} heads, got {size}")
        return key_heads, (key_features // heads, value_features // heads)


def _check_alone(cache: object, *others: object) -> None:
    """Raises for a sliding cache, and for a cache beside what it holds."""
    if isinstance(cache, SlidingCache):
        raise TypeError("expected a KeyValueCache, got a SlidingCache, which only decode reads")
    if any(other is not None for other in others):
        raise ValueError("expected no key, value or key_lengths beside a cache, which holds them")


def _check_leading(query: Array, key: Array, value: Array) -> None:
    """Raises a ValueError for unequal batch rows, or for keys and values of unequal lengths."""
    same = query.shape[:-2] == key.shape[:-2] and key.shape[:-1] == value.shape[:-1]
    if query.ndim < 2 or not same:
        raise ValueError(
            "expected query (..., q, d), key (..., k, d'), value (..., k, e) with equal leading "
            f"axes; got {query.shape}, {key.shape}, {value.shape}"
        )
