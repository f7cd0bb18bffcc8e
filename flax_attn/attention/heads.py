"""Attention in heads: `attend` with all that multi-head models ask for, in the layout of `jax.nn` and `flax.linen`."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Key

from flax_attn.attention import fused
from flax_attn.attention.checks import as_floats, as_term
from flax_attn.attention.core import Attended, attend
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.scores import scaled, scaled_dot
from flax_attn.attention.visibility import evaluated, joined

Function = Callable[..., Array]


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    mask: ArrayLike | Function | None = None,
    bias: ArrayLike | Function | None = None,
    scale: float | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    query_offset: ArrayLike = 0,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    softcap: float | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
) -> Attended:
    """Multi-head dot-product attention, `softmax(scale q k^T + bias) v` in every head.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), eq. 1; Ainslie et al. 2023 (arXiv:2305.13245) for grouped heads;
    Gemma Team 2024 (arXiv:2408.00118), section 2, for the soft-cap.

    Args:
        query, key, value: `(..., q, heads, d)`, `(..., k, key_heads, d)`, `(..., k, key_heads, e)`. The heads are a multiple
            of the key heads: so many queries in a row share one.
        mask: boolean, True where a key may be attended; broadcasts to `(..., heads, q, k)`; or a function of the places of
            queries `(q, 1)` and keys `(1, k)`, those of the queries by `query_offset`, `(..., q, 1)` where each row has its own.
            All that follows is ANDed with it.
        bias: added to the energies; broadcasts likewise, or is a function likewise; `-inf` masks.
        scale: factor on the products; None for `1 / sqrt(d)`.
        causal: no key later than the query's place.
        window: `(left, right)`, so many keys to each side of the query's place; None for no bound.
        query_offset: query `i` stands at key `query_offset + i`; an integer, or one for each leading index, `(...)`. 0 in
            training, the number of cached keys in decoding.
        query_lengths, key_lengths: `(...)`, how many queries and keys are real in each row of the batch.
        softcap: energies are held within it, `softcap tanh(e / softcap)`, before the bias; above 0.
        dropout_rate, dropout_rng, chunk_size: as in `attend`.
        need_weights: False says that nobody will look at the weights, and they are None. On an NVIDIA GPU of capability 8.0 or
            above, bfloat16 and float16 then take cuDNN's fused kernel, where it computes the same: `scale` 1 / sqrt(d), without
            bias, soft-cap, dropout and chunks, even lengths, one width that is a multiple of 8 and at most 128.

    Returns:
        `Attended` with the context `(..., q, heads, e)` and the weights `(..., heads, q, k)`, before dropout.

    Raises:
        TypeError, ValueError: as `attend`; heads that do not divide; lengths that are negative or not integers.
    """
    if jnp.shape(query)[-1:] != jnp.shape(key)[-1:]:
        raise ValueError(f"expected a query and a key of one width, got {jnp.shape(query)} and {jnp.shape(key)}")
    if softcap is not None and not 0 < softcap < float("inf"):
        raise ValueError(f"expected softcap above 0 and finite, or None, got {softcap}")
    return attend_in_heads(
        query,
        key,
        value,
        score=scaled_dot if scale is None and softcap is None else functools.partial(_scaled_dot, scale=scale, softcap=softcap),
        mask=mask,
        bias=bias,
        causal=causal,
        window=window,
        query_offset=query_offset,
        query_lengths=query_lengths,
        key_lengths=key_lengths,
        dropout_rate=dropout_rate,
        dropout_rng=dropout_rng,
        chunk_size=chunk_size,
        need_weights=need_weights,
    )


def attend_in_heads(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    score: Function = scaled_dot,
    normalizer: Function = masked_softmax,
    mask: ArrayLike | Function | None = None,
    bias: ArrayLike | Function | None = None,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    query_offset: ArrayLike = 0,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
) -> Attended:
    """`dot_product_attention` with any score, `(..., heads, q, d)` and `(..., heads, k, d)` to energies, and any normaliser."""
    query, key, value = (as_floats(name, array) for name, array in (("query", query), ("key", key), ("value", value)))
    shape, groups = _weights_shape(query, key, value)
    together, bias = joined(shape, mask, bias, causal, window, query_offset, query_lengths, key_lengths, chunk_size)
    plain = score is scaled_dot and normalizer is masked_softmax and bias is None and not dropout_rate and chunk_size is None
    if plain and not need_weights and fused.available(query, key, value):
        nothing_else = all(term is None for term in (mask, window, query_lengths, key_lengths))
        from_the_first = isinstance(query_offset, int) and query_offset == 0 and shape[-1] <= shape[-2]
        only_causal = causal and nothing_else and from_the_first
        seen = None if only_causal or together is None else evaluated("mask", together, shape)
        return Attended(fused.attend(query, key, value, seen, only_causal), None)
    place = functools.partial(_placed, shape=shape, groups=groups)
    attended = attend(
        *(_heads_first(array, key.shape[-2], groups) for array in (query, key, value)),
        score=score,
        normalizer=normalizer,
        mask=place("mask", together),
        bias=place("bias", bias),
        dropout_rate=dropout_rate,
        dropout_rng=dropout_rng,
        chunk_size=chunk_size,
        need_weights=need_weights,
    )
    context = attended.context.reshape(*shape[:-1], value.shape[-1])
    weights = None if attended.weights is None else attended.weights.reshape(shape)
    return Attended(jnp.swapaxes(context, -3, -2), weights)


def _scaled_dot(query: Array, key: Array, scale: float | None, softcap: float | None) -> Array:
    energies = scaled(query, key, query.shape[-1] ** -0.5 if scale is None else scale)
    return energies if softcap is None else softcap * jnp.tanh(energies / softcap)


def _weights_shape(query: Array, key: Array, value: Array) -> tuple[tuple[int, ...], int]:
    """The shape `(..., heads, q, k)` of the weights, and how many heads share a key head."""
    shapes = query.shape, key.shape, value.shape
    fit = query.ndim == key.ndim >= 3 and query.shape[:-3] == key.shape[:-3] and key.shape[:-1] == value.shape[:-1]
    if not fit:
        raise ValueError(
            "expected query (..., q, heads, d), key (..., k, heads, d'), value (..., k, heads, e); got {}, {}, {}".format(*shapes)
        )
    heads, key_heads = query.shape[-2], key.shape[-2]
    if not key_heads or not heads or heads % key_heads:
        raise ValueError(f"expected heads that are a multiple of the key heads, got {heads} and {key_heads} in {shapes[0]} and {shapes[1]}")
    return (*query.shape[:-3], heads, query.shape[-3], key.shape[-3]), heads // key_heads


def _heads_first(array: Array, key_heads: int, groups: int) -> Array:
    """`(..., t, heads, d)` as `(..., heads, t, d)`, or where heads share key heads as `(..., key heads, group or 1, t, d)`."""
    array = jnp.swapaxes(array, -3, -2)
    return array if groups == 1 else array.reshape(*array.shape[:-3], key_heads, -1, *array.shape[-2:])


def _placed(name: str, term: ArrayLike | Function | None, shape: tuple[int, ...], groups: int) -> Array | Function | None:
    """A mask or bias for the weights `(..., heads, q, k)`, with its head axis split as that of the queries."""

    def place(term: ArrayLike, shape: tuple[int, ...]) -> Array:
        array = as_term(name, term, shape)
        if groups == 1:
            return array
        heads = (1, 1) if array.shape[-3] == 1 else (-1, groups)
        return array.reshape(*array.shape[:-3], *heads, *array.shape[-2:])

    if callable(term):
        return lambda queries, keys: place(term(queries, keys), (*shape[:-2], queries.shape[0], keys.shape[1]))
    return None if term is None else place(term, shape)
