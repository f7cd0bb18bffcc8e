"""Multi-head attention, for whole sequences and for decoding with a cache of keys and values."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention.arrays import hide, with_rank
from flax_attn.attention.cache import KeyValueCache, append, empty_cache
from flax_attn.attention.checks import as_lengths
from flax_attn.attention.core import Attended, How, attend_in_heads, scaled_dot
from flax_attn.attention.layers.attention import resolve_score, with_dropout
from flax_attn.attention.normalizers import masked_softmax, needs_all_queries
from flax_attn.attention.pairs import Pairs, PerPair, Window, as_floats

Function = Callable[..., Array]


class MultiHeadAttention(nn.Module):
    """Attention in several heads, each between its own projections of queries, keys and values.

        head_i = attend(x W_q,i + b_q,i,  y W_k,i + b_k,i,  z W_v,i + b_v,i),   context = sum_i head_i W_o,i + b_o

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2. The tree of parameters is that
    of `flax.linen.MultiHeadDotProductAttention`, so checkpoints move both ways.

    Attributes:
        num_heads: query heads.
        num_key_heads: key and value heads; they divide the query heads. None for the same number.
        key_features: width of queries and keys over all query heads; None for the width of the query.
        value_features: width of values likewise; None for `key_features`.
        out_features: width of the context; None for the width of the query.
        score: function of queries and keys `(..., heads, t, d)`, or a module that makes one, such
            as `AdditiveScore(64)`, shared by the heads.
        normalizer: from scores to weights.
        use_bias: whether the four projections have biases.
        dropout_rate: share of the weights that are dropped in training.
        chunk_size: as in `attend`.
        kernel_init: initialiser of the four kernels.
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
        """Attends from `query` to `key`, by default to itself, and gathers `value`, by default the key.

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
        query = as_floats("query", query)
        num_key_heads, key_width, value_width = self._sizes(query.shape[-1])
        if cache is not None:
            if any(array is not None for array in (key, value, key_lengths)):
                raise ValueError(
                    "expected no key, value or key_lengths beside a cache, which holds them"
                )
            key_lengths, num_keys = cache.length, cache.key.shape[-3]
        else:
            if key is None:
                key = query
                key_lengths = query_lengths if key_lengths is None else key_lengths
                key_segments = query_segments if key_segments is None else key_segments
            value = key if value is None else value
            _check_leading(query, key, value)
            num_keys = key.shape[-2]
        pairs = (
            Pairs.in_heads(*query.shape[:-2], self.num_heads, query.shape[-2], num_keys)
            .under(mask, bias)
            .limited(causal, window, query_offset)
            .padded(query_lengths, key_lengths)
            .packed(query_segments, key_segments)
        )
        has_key, has_query = pairs.reachable_in_any_head(self.chunk_size)
        queries = self._project("query", (self.num_heads, key_width), hide(query, has_key))
        if cache is not None:
            keys, values = cache.key, cache.value
        else:
            assert key is not None
            assert value is not None
            keys = self._project("key", (num_key_heads, key_width), hide(key, has_query))
            values = self._project("value", (num_key_heads, value_width), hide(value, has_query))
        score = resolve_score(self.score, key_width, key_width)
        attended = attend_in_heads(
            queries,
            keys,
            values,
            with_dropout(pairs, self, self.dropout_rate, train),
            How(score, self.normalizer, self.chunk_size, need_weights),
        )
        features = query.shape[-1] if self.out_features is None else self.out_features
        context = self._project("out", features, attended.context, axis=(-2, -1))
        return Attended(context, attended.weights)

    def extend(
        self,
        cache: KeyValueCache,
        key: Float[Array, "*b t d"],
        value: Float[Array, "*b t _"] | None = None,
        lengths: ArrayLike | None = None,
    ) -> KeyValueCache:
        """The cache with the keys and values of `t` more tokens, `lengths` of them real.

        They may be one token, a whole prompt, or the memory that a decoder attends to. Errors are
        those of `append`.
        """
        value = key if value is None else value
        key, value = without_padding(key, lengths), without_padding(value, lengths)
        values = self._project("value", cache.value.shape[-2:], value)
        keys = self._project("key", cache.key.shape[-2:], key)
        return append(cache, keys, values, lengths)

    def decode(
        self,
        inputs: Float[Array, "*b t d"],
        cache: KeyValueCache,
        *,
        lengths: ArrayLike | None = None,
        mask: PerPair | None = None,
        bias: PerPair | None = None,
        window: Window | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> tuple[Attended, KeyValueCache]:
        """Causal self-attention of `t` new tokens to themselves and to the cached ones.

        The cache that is returned holds the new tokens too. `decode` token by token, or prompt
        first, gives what `__call__(..., causal=True)` gives for all at once.

        Args:
            inputs: `(..., t, d)`.
            cache: from `init_cache`, or from the step before.
            lengths: `(...)`, the number of real tokens in each batch row.
            mask, bias, window, train, need_weights: as in `__call__`.

        Raises:
            ValueError: a normaliser that must see all queries at once, such as the monotonic ones:
                it cannot go on from a cache.
        """
        if needs_all_queries(self.normalizer):
            raise ValueError(
                "expected a normalizer that sees one query at a time to decode with, "
                f"got {self.normalizer}"
            )
        extended = self.extend(cache, inputs, lengths=lengths)
        attended = self(
            inputs,
            cache=extended,
            mask=mask,
            bias=bias,
            causal=True,
            window=window,
            query_offset=cache.length,
            query_lengths=lengths,
            train=train,
            need_weights=need_weights,
        )
        return attended, extended

    @nn.nowrap
    def init_cache(
        self, features: int, leading: tuple[int, ...], max_length: int, dtype: Any = jnp.float32
    ) -> KeyValueCache:
        """An empty cache of `max_length` tokens, for queries of `features` with these leading axes."""
        num_key_heads, key_width, value_width = self._sizes(features)
        return empty_cache(leading, max_length, num_key_heads, key_width, value_width, dtype)

    @nn.compact
    def _project(
        self,
        name: str,
        features: int | tuple[int, ...],
        inputs: Array,
        axis: int | tuple[int, ...] = -1,
    ) -> Array:
        return nn.DenseGeneral(
            features,
            axis=axis,
            use_bias=self.use_bias,
            kernel_init=self.kernel_init,
            dtype=inputs.dtype,
            name=name,
        )(inputs)

    @nn.nowrap
    def _sizes(self, features: int) -> tuple[int, int, int]:
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
        return key_heads, key_features // heads, value_features // heads


def without_padding(inputs: Array, lengths: ArrayLike | None) -> Array:
    """The inputs `(..., t, d)` with zeros from `lengths` `(...)` on."""
    if lengths is None:
        return inputs
    leading, lengths = inputs.shape[:-2], as_lengths("lengths", lengths)
    if lengths.shape not in ((), leading):
        raise ValueError(
            f"expected lengths of shape {leading}, one a row of the batch, got {lengths.shape}"
        )
    indices = with_rank(jnp.arange(inputs.shape[-2]), len(leading) + 1)
    return hide(inputs, indices < jnp.broadcast_to(lengths, leading)[..., None])


def _check_leading(query: Array, key: Array, value: Array) -> None:
    """Raises a ValueError for other batch rows in one of them, or keys and values of two lengths."""
    same = query.shape[:-2] == key.shape[:-2] and key.shape[:-1] == value.shape[:-1]
    if query.ndim < 2 or not same:
        raise ValueError(
            "expected query (..., q, d), key (..., k, d'), value (..., k, e) with equal leading "
            f"axes; got {query.shape}, {key.shape}, {value.shape}"
        )
