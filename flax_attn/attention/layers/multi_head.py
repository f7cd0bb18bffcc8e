"""Multi-head attention, for whole sequences and for decoding with a cache of keys and values."""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from flax_attn.attention import cache as caches
from flax_attn.attention import looking, sliding
from flax_attn.attention.all_queries import needs_all_queries
from flax_attn.attention.arrays import hide
from flax_attn.attention.cache import AnyCache, Cache, KeyValueCache, SlidingCache
from flax_attn.attention.checks import check_leading, check_size
from flax_attn.attention.core import Attended, attend_in_heads
from flax_attn.attention.how import How
from flax_attn.attention.layers.attention import as_input, resolve_score, with_dropout
from flax_attn.attention.layers.projections import HeadProjections
from flax_attn.attention.pairs import Pairs
from flax_attn.attention.reach import reachable_in_any_head
from flax_attn.attention.types import Normalizer, PerPair, Window


class Memory(NamedTuple):
    """The keys and values that queries attend to.

    They are inputs `(..., k, _)`, or projected ones, `(..., k, key heads, _)`.
    """

    key: Array
    value: Array
    lengths: ArrayLike | None
    is_projected: bool

    @classmethod
    def of(cls, cache: AnyCache) -> "Memory":
        keys, values = (jnp.swapaxes(array, -3, -2) for array in (cache.key, cache.value))
        return cls(keys, values, cache.length, is_projected=True)

    @property
    def num_keys(self) -> int:
        return self.key.shape[-3] if self.is_projected else self.key.shape[-2]


class MultiHeadAttention(HeadProjections):
    """Attention in several heads. Each head has its own projections of queries, keys and values.

        head_i = attend(x W_q,i + b_q,i,  y W_k,i + b_k,i,  z W_v,i + b_v,i)
        context = sum_i head_i W_o,i + b_o

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2; Su et al. 2021 (arXiv:2104.09864)
    for `rotary`; Dehghani et al. 2023 (arXiv:2302.05442), section 2, for `query_key_norm`. The tree
    of parameters is that of `flax.linen.MultiHeadDotProductAttention`, so checkpoints move both
    ways.

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
        use_bias: whether the four projections have biases.
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
        query_key_norm: whether a layer norm with scales and without biases follows the projection
            of queries and keys, over the features of each head.
        dtype: dtype of the computation and of the result; None for that of the inputs.
        param_dtype: dtype of the parameters.
        precision: precision of the four projections, as in `jax.lax.Precision`.
    """

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
        query = as_input("query", query, self.dtype)
        if key is None and cache is None:  # self-attention
            key_lengths = query_lengths if key_lengths is None else key_lengths
            key_segments = query_segments if key_segments is None else key_segments
        memory = self._memory(query, key, value, cache, key_lengths)
        pairs = self._pairs(query, memory).under(mask, bias).limited(causal, window, query_offset)
        pairs = pairs.padded(query_lengths, memory.lengths).packed(query_segments, key_segments)
        return self._attend(query, query_offset, memory, pairs, train, need_weights)

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
        train: bool = False,
        need_weights: bool = True,
    ) -> tuple[Attended, Cache]:
        """Causal self-attention of `t` new tokens to themselves and to the cached ones.

        The cache that is returned holds the new tokens, too. Decoding token by token, or a prompt
        first, gives the same result as `__call__(..., causal=True)` on all tokens at once.

        Args:
            inputs: `(..., t, d)`.
            cache: from `init_cache`, or from the step before.
            lengths: `(...)`, the number of real tokens in each batch row.
            mask, bias, window, train, need_weights: as in `__call__`. With a sliding cache, mask
                and bias are functions of positions.

        Returns:
            `Attended` and the cache. In the weights `(..., heads, t, k)`, the keys are all
            positions that the cache has room for. With a sliding cache of `left + 1` slots, they
            are the last `left` tokens in it, and then the `t` new tokens.

        Raises:
            ValueError: a normaliser that needs all queries at once, such as the monotonic ones.
            ValueError: a sliding cache without a window, or with a larger one than its own.
        """
        _check_decodes(looking.replaced(self.normalizer))
        inputs = as_input("inputs", inputs, self.dtype)
        keys, values = self._new(cache, inputs, None, lengths)
        extended = caches.append(cache, keys, values, lengths)
        read, offset = extended, cache.length
        if isinstance(cache, SlidingCache):
            sliding.check_window(cache, window)
            looking.check_no_mask("a sliding cache, whose keys are at no fixed positions")
            read, offset = sliding.in_order(cache, keys, values, lengths), cache.key.shape[-2] - 1
            mask = sliding.from_position("mask", mask, cache.length - offset)
            bias = sliding.from_position("bias", bias, cache.length - offset)
        memory = Memory.of(read)
        pairs = self._pairs(inputs, memory).under(mask, bias).limited(True, window, offset)
        pairs = pairs.padded(lengths, memory.lengths)
        attended = self._attend(inputs, cache.length, memory, pairs, train, need_weights)
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
            return caches.empty_sliding_cache(leading, window, *sizes, dtype=own_dtype)
        if max_length is None:
            raise ValueError("expected max_length or window for a cache, got neither")
        check_size("max_length", max_length, least=0)
        return caches.empty_cache(leading, max_length, *sizes, dtype=own_dtype)

    def _memory(
        self,
        query: Array,
        key: ArrayLike | None,
        value: ArrayLike | None,
        cache: KeyValueCache | None,
        lengths: ArrayLike | None,
    ) -> Memory:
        """The inputs of keys and values, by default the query, or the cache."""
        if cache is not None:
            _check_alone(cache, key, value, lengths)
            return Memory.of(cache)
        key = query if key is None else as_input("key", key, self.dtype)
        value = key if value is None else as_input("value", value, self.dtype)
        check_leading(query, key, value)
        return Memory(key, value, lengths, is_projected=False)

    @nn.nowrap
    def _pairs(self, query: Array, memory: Memory) -> Pairs:
        """The pairs of the queries `(..., q, d)` and of the keys, with nothing hidden."""
        *rows, num_queries, _ = query.shape
        return Pairs.in_heads(*rows, self.num_heads, num_queries, memory.num_keys)

    def _attend(
        self,
        query: Array,
        offset: ArrayLike,
        memory: Memory,
        pairs: Pairs,
        train: bool,
        need_weights: bool,
    ) -> Attended:
        """Projects the inputs, with zeros where hidden, attends, and projects the context."""
        has_key, has_query = reachable_in_any_head(pairs, self.chunk_size)
        keys, values = memory.key, memory.value
        if not memory.is_projected:
            inputs = hide(keys, has_query), hide(values, has_query)
            keys, values = self._keys_and_values(*inputs, self._sizes(query.shape[-1]))
        width = keys.shape[-1]
        queries = self._project("query", (self.num_heads, width), hide(query, has_key))
        queries = self._turned(queries, offset)  # (..., q, heads, width)
        pairs = with_dropout(pairs, self, self.dropout_rate, train)
        score = resolve_score(self.score, width, width)
        is_cached = memory.is_projected
        across = None if is_cached else self.across
        how = How(score, self.normalizer, self.chunk_size, need_weights, across, is_cached)
        context, weights = attend_in_heads(queries, keys, values, pairs, how)
        features = query.shape[-1] if self.out_features is None else self.out_features
        return Attended(self._project("out", features, context, axis=(-2, -1)), weights)


def _check_alone(cache: object, *others: object) -> None:
    """Raises for a sliding cache, and for a cache together with keys, values or lengths."""
    if isinstance(cache, SlidingCache):
        raise TypeError("expected a KeyValueCache, got a SlidingCache, which only decode reads")
    if any(other is not None for other in others):
        raise ValueError("expected no key, value or key_lengths beside a cache, which holds them")


def _check_decodes(normalizer: Normalizer) -> None:
    """Raises a ValueError for a normaliser that must see all queries at once."""
    if needs_all_queries(normalizer):
        raise ValueError(
            f"expected a normalizer that sees one query at a time to decode with, got {normalizer}"
        )
