"""Multi-head attention, for whole sequences and for decoding with a cache of keys and values."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax.typing import Initializer
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from flax_attn.attention import masks
from flax_attn.attention.cache import KeyValueCache, append, empty_cache
from flax_attn.attention.checks import as_floats
from flax_attn.attention.core import Attended
from flax_attn.attention.energies import zero_hidden
from flax_attn.attention.general import dropout_options, resolve_score
from flax_attn.attention.heads import attend_in_heads
from flax_attn.attention.normalizers import masked_softmax, needs_all_queries
from flax_attn.attention.scores import scaled_dot
from flax_attn.attention.visibility import joined, per_row, seen

Function = Callable[..., Array]


class MultiHeadAttention(nn.Module):
    """Attention in several heads, each between its own projections of queries, keys and values.

        head_i = attend(x W_q,i + b_q,i,  y W_k,i + b_k,i,  z W_v,i + b_v,i),   context = sum_i head_i W_o,i + b_o

    Source: Vaswani et al. 2017 (arXiv:1706.03762), section 3.2.2. The tree of parameters is that of
    `flax.linen.MultiHeadDotProductAttention`, so checkpoints move both ways.

    Attributes:
        num_heads: query heads.
        num_key_heads: key and value heads, which divide the query heads; None for as many.
        key_features: width of queries and keys over all query heads; None for the width of the query.
        value_features: width of values likewise; None for `key_features`.
        out_features: width of the context; None for the width of the query.
        score: function of queries and keys `(..., heads, t, d)`, or a module of `learned_scores`, shared by the heads.
        normalizer: from energies to weights.
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
        mask: ArrayLike | Function | None = None,
        bias: ArrayLike | Function | None = None,
        causal: bool = False,
        window: tuple[int | None, int | None] | None = None,
        query_offset: ArrayLike = 0,
        query_lengths: ArrayLike | None = None,
        key_lengths: ArrayLike | None = None,
        train: bool = False,
        need_weights: bool = True,
    ) -> Attended:
        """Attends from `query` to `key`, by default to itself, and gathers `value`, by default the key.

        A query that may attend to nothing, and a key that no query may attend, are zeroed before they are projected, so they leak
        nothing into the parameters. In a row with nothing to attend every head is 0, so its context is the bias of `out`.

        Args:
            cache: keys and values as `extend` made them, in place of `key`, `value` and `key_lengths`.
            key_lengths: by default the `query_lengths` where no `key` is given.

        Returns:
            `Attended` with the context `(..., q, out_features)` and weights `(..., heads, q, k)`. Other arguments and
            errors are those of `dot_product_attention`.
        """
        query = as_floats("query", query)
        num_key_heads, key_width, value_width = self._sizes(query.shape[-1])
        query = without_padding("query_lengths", query, query_lengths)
        if cache is None:
            sees_itself = key is None and isinstance(query_offset, int) and query_offset == 0 and mask is None and bias is None
            if key is None:
                key, key_lengths = query, query_lengths if key_lengths is None else key_lengths
            value = key if value is None else value
            check_leading(query, key, value)
            if not sees_itself:
                shape = (*query.shape[:-2], self.num_heads, query.shape[-2], key.shape[-2])
                terms = joined(shape, mask, bias, causal, window, query_offset, query_lengths, key_lengths, self.chunk_size)
                in_any_head = (found.any(axis=-2)[..., None] for found in seen(*terms, shape, self.chunk_size))
                query, key, value = zero_hidden(query, key, value, *in_any_head)
            key, value = (without_padding("key_lengths", array, key_lengths) for array in (key, value))
            keys = self._project("key", (num_key_heads, key_width), key)
            values = self._project("value", (num_key_heads, value_width), value)
        elif key is not None or value is not None or key_lengths is not None:
            raise ValueError("expected no key, value or key_lengths beside a cache, which holds them")
        else:
            keys, values, key_lengths = cache.key, cache.value, cache.length
        queries = self._project("query", (self.num_heads, key_width), query)
        attended = attend_in_heads(
            queries,
            keys,
            values,
            score=resolve_score(self.score, key_width, key_width),
            normalizer=self.normalizer,
            mask=mask,
            bias=bias,
            causal=causal,
            window=window,
            query_offset=query_offset,
            query_lengths=query_lengths,
            key_lengths=key_lengths,
            **dropout_options(self, self.dropout_rate, train),
            chunk_size=self.chunk_size,
            need_weights=need_weights,
        )
        features = query.shape[-1] if self.out_features is None else self.out_features
        return Attended(self._project("out", features, attended.context, axis=(-2, -1)), attended.weights)

    def extend(
        self,
        cache: KeyValueCache,
        key: Float[Array, "*b t d"],
        value: Float[Array, "*b t _"] | None = None,
        lengths: ArrayLike | None = None,
    ) -> KeyValueCache:
        """The cache with the keys and values of `t` more tokens, of which `lengths` are real; errors are those of `append`.

        One token, a whole prompt, or the memory that a decoder attends to.
        """
        value = key if value is None else value
        values = self._project("value", cache.value.shape[-2:], without_padding("lengths", value, lengths))
        keys = self._project("key", cache.key.shape[-2:], without_padding("lengths", key, lengths))
        return append(cache, keys, values, lengths)

    def decode(self, inputs: Float[Array, "*b t d"], cache: KeyValueCache, **options: Any) -> tuple[Attended, KeyValueCache]:
        """Causal self-attention of `t` new tokens to themselves and to all that are cached; the cache then holds them too.

        `decode` token by token, or prompt first, gives what `__call__(..., causal=True)` gives for all at once.

        Raises:
            ValueError: a normaliser that must see all queries at once, such as the monotonic ones: it cannot go on from a cache.
        """
        if needs_all_queries(self.normalizer):
            raise ValueError(f"expected a normalizer that sees one query at a time to decode with, got {self.normalizer}")
        lengths = options.pop("lengths", None)
        extended = self.extend(cache, inputs, lengths=lengths)
        attended = self(inputs, cache=extended, causal=True, query_offset=cache.length, query_lengths=lengths, **options)
        return attended, extended

    @nn.nowrap
    def init_cache(self, features: int, leading: tuple[int, ...], max_length: int, dtype: Any = jnp.float32) -> KeyValueCache:
        """An empty cache of `max_length` tokens, for queries of `features` with the given leading axes."""
        num_key_heads, key_width, value_width = self._sizes(features)
        return empty_cache(leading, max_length, num_key_heads, key_width, value_width, dtype)

    @nn.compact
    def _project(self, name: str, features: int | tuple[int, ...], inputs: Array, axis: int | tuple[int, ...] = -1) -> Array:
        return nn.DenseGeneral(features, axis=axis, use_bias=self.use_bias, kernel_init=self.kernel_init, dtype=inputs.dtype, name=name)(
            inputs
        )

    @nn.nowrap
    def _sizes(self, features: int) -> tuple[int, int, int]:
        """The number of key heads, and the widths of a head's keys and values."""
        heads = self.num_heads
        key_heads = heads if self.num_key_heads is None else self.num_key_heads
        key_features = features if self.key_features is None else self.key_features
        value_features = key_features if self.value_features is None else self.value_features
        if heads < 1 or key_heads < 1 or heads % key_heads:
            raise ValueError(f"expected num_heads to be a multiple of num_key_heads, both above 0, got {heads} and {key_heads}")
        for name, size in (("key_features", key_features), ("value_features", value_features)):
            if size % heads:
                raise ValueError(f"expected {name} to be a multiple of {heads} heads, got {size}")
        return key_heads, key_features // heads, value_features // heads


def check_leading(query: Array, key: Array, value: Array) -> None:
    """Raises a ValueError where rows of the batch, or keys and values, are not as many."""
    if query.ndim < 2 or query.shape[:-2] != key.shape[:-2] or key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            f"expected query (..., q, d), key (..., k, d'), value (..., k, e) with equal leading axes; got {query.shape}, {key.shape}, "
            f"{value.shape}"
        )


def without_padding(name: str, inputs: Array, lengths: ArrayLike | None) -> Array:
    """Zeroes the positions from `lengths` on, lest a NaN in padding reaches the gradients of the kernels."""
    if lengths is None:
        return inputs
    lengths = per_row(name, masks.as_lengths(name, lengths), inputs.shape[:-2])
    lengths = lengths[..., 0] if lengths.ndim else lengths  # (..., 1, 1)
    return jnp.where(masks.lengths(lengths, jnp.arange(inputs.shape[-2])[:, None]), inputs, 0)
