"""Attention itself: scores, weights, context.

    scores  = score(query, key) + bias       (..., q, k)
    weights = normalizer(scores, mask=mask)  (..., q, k), rows sum to 1; to 0 if all is masked
    context = weights value                  (..., q, e)

Letters: `q` queries, `k` keys, `d` features of a query or key, `e` features of a value.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from flax_attn.attention import (
    blocks,
    checks,
    few_queries,
    fused,
    looking,
    sequence_parallel,
    streaming,
)
from flax_attn.attention.all_queries import needs_all_queries
from flax_attn.attention.arrays import add, hide, product, wide
from flax_attn.attention.block_size import best_chunk_size
from flax_attn.attention.dot_products import DotProduct, scaled_dot
from flax_attn.attention.how import Across, How
from flax_attn.attention.normalizers import masked_softmax
from flax_attn.attention.pairs import Block, Pairs, arrays_and_pairs
from flax_attn.attention.parts import Part, whole
from flax_attn.attention.reach import reachable
from flax_attn.attention.types import (
    HeadVectors,
    Normalizer,
    PerPair,
    Score,
    Vectors,
    Window,
)


class Attended(NamedTuple):
    """The result of attention: context `(..., q, e)`, and weights `(..., q, k)` before dropout."""

    context: Float[Array, "..."]
    weights: Float[Array, "..."] | None


def attend(
    query: Vectors,
    key: Vectors,
    value: Vectors,
    *,
    score: Score = scaled_dot,
    normalizer: Normalizer = masked_softmax,
    mask: PerPair | None = None,
    bias: PerPair | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
    across: Across | None = None,
) -> Attended:
    """Attends: `context = normalizer(score(query, key) + bias, mask=mask) value`.

    Source: Bahdanau et al. 2015 (arXiv:1409.0473) section 3.1 for the form, Vaswani et al. 2017
    (arXiv:1706.03762) section 3.2 for the names of its parts.

    Args:
        query, key, value: `(..., q, d)`, `(..., k, d')`, `(..., k, e)`; leading axes are equal, or
            1 on one side.
        score: `(query, key) -> (..., q, k)`. It gets vectors, not positions. Bind parameters by a
            closure or `functools.partial`. Make them before the call: JAX may trace a score twice.
            Padding becomes zero vectors, so the gradient of the score must be finite there.
        normalizer: `(scores, mask=mask) -> weights` over the last axis.
        mask: boolean, True where a query may attend to a key; broadcasts to the weights. So a mask
            of the keys of each batch row is `(b, 1, k)`: one of two axes is `(q, k)`. Or a function
            of the positions of queries `(q, 1)` and keys `(1, k)` that returns such an array, such
            as `masks.causal`. A query that may attend to no key gets context 0 and weights 0.
            Neither it nor a key that no query may attend to changes any other result or gradient,
            even if it holds NaN.
        bias: is added to the scores; an array or a function, like the mask; `-inf` masks.
        dropout_rate: share of the weights that are dropped. The others are scaled by
            `1 / (1 - rate)`. It needs `dropout_rng`.
        chunk_size: None computes all scores at once. With a number, queries and keys are processed
            in blocks of that size. Context and gradients are the same, memory is linear in the
            lengths, and the weights are None. A block is skipped if none of its queries may attend
            to any of its keys. Normalisers other than softmax get blocks of queries with all keys.
            Those marked by `across_queries` get all scores at once.
        need_weights: with False the weights are None. A fixed rule then chooses a block size if
            blocks are faster.
        across: cuts queries and keys over the devices of a mesh, as `Across` describes.

    Softmax in blocks has no forward-mode derivative and no second derivative: JAX raises a
    TypeError. Without `chunk_size` and with `need_weights=True`, there are both.

    Returns:
        `Attended(context, weights)` in the query's dtype; the weights are those before dropout.

    Raises:
        TypeError: a query, key, value or bias that is not of floats, a mask that is not boolean (an
            additive one belongs in `bias`), or a score or normalizer that is no function.
        ValueError: shapes that do not fit, a mask or bias that does not broadcast to the weights, a
            rate outside [0, 1), dropout without a random key, a chunk size below 1, or in blocks a
            normaliser without the mark of `across_queries` that calls one with it. With `across`:
            no mesh, one without the axis, or a normaliser that needs all queries.
    """
    query, key, value, pairs = arrays_and_pairs(query, key, value)
    pairs = pairs.under(mask, bias).dropping(dropout_rate, dropout_rng)
    how = How(score, normalizer, chunk_size, need_weights, across)
    return attend_pairs(query, key, value, pairs, how)


def dot_product_attention(
    query: HeadVectors,
    key: HeadVectors,
    value: HeadVectors,
    *,
    mask: PerPair | None = None,
    bias: PerPair | None = None,
    scale: ArrayLike | None = None,
    causal: bool = False,
    window: Window | None = None,
    query_offset: ArrayLike = 0,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    query_segments: ArrayLike | None = None,
    key_segments: ArrayLike | None = None,
    softcap: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    dropout_rng: Key[Array, ""] | None = None,
    chunk_size: int | None = None,
    need_weights: bool = True,
    across: Across | None = None,
) -> Attended:
    """Multi-head dot-product attention, `softmax(scale q k^T + bias) v` in every head.

    Source: Vaswani et al. 2017 (arXiv:1706.03762), eq. 1; Ainslie et al. 2023 (arXiv:2305.13245)
    for grouped heads; Gemma Team 2024 (arXiv:2408.00118), section 2, for the soft-cap.

    Args:
        query, key, value: `(..., q, heads, d)`, `(..., k, key_heads, d)`, `(..., k, key_heads, e)`.
            The number of heads is a multiple of the number of key heads; consecutive heads share a
            key head.
        mask: boolean, True where a query may attend to a key; broadcasts to `(..., heads, q, k)`.
            Beside batch rows an array of three axes must be `(1, q, k)`: write `mask[:, None]` for
            one a batch row, `mask[None]` for one a head. Or a function of the positions of queries
            `(q, 1)` and keys `(1, k)`. Query positions start at `query_offset`; they are
            `(..., q, 1)` if each batch row has its own. A key is visible only if the mask and the
            arguments from `causal` to `key_segments` all allow it.
        bias: is added to the scores; an array or a function, like the mask; `-inf` masks.
        scale: factor of the dot products, a number, which may be traced; None for `1 / sqrt(d)`.
        causal: a query attends to no key after its own position.
        window: `(left, right)`, the number of keys before and after the query's position that it
            attends to; None for no bound.
        query_offset: query `i` is at the position of key `query_offset + i`; an integer, or one for
            each leading index, `(...)`. 0 in training, the number of cached keys in decoding.
        query_lengths, key_lengths: `(...)`, the number of real queries and keys in each batch row.
        query_segments, key_segments: `(..., q)` and `(..., k)`, the ids of the sequences that are
            packed into each batch row. A query attends to the keys with its id. Ids are integers of
            32 bits, or of 64 with `jax_enable_x64`.
        softcap: a number above 0. A score `e` becomes `softcap tanh(e / softcap)`, before the bias,
            so it lies between `-softcap` and `softcap`. None for no limit.
        dropout_rate, dropout_rng, chunk_size: as in `attend`.
        need_weights: with False the weights are None. A fixed rule then chooses the fastest form:
            blocks for long sequences (`attend` says which derivatives they have), and another form
            for few queries on a CPU. Neither has forward-mode derivatives. An NVIDIA GPU of
            capability 8.0 or above uses cuDNN's fused kernel in bfloat16 and float16, if there is
            no scale, bias, soft-cap, dropout or `chunk_size`, the lengths are even, and queries,
            keys and values have one width that is a multiple of 8 and at most 128.
        across: as in `attend`.

    Returns:
        `Attended` with the context `(..., q, heads, e)` and the weights `(..., heads, q, k)`,
        before dropout.

    Raises:
        TypeError, ValueError: as `attend`; heads that do not divide; lengths that are negative or
            not integers; a scale or soft-cap that is no number, such as an array of several.
    """
    query, key, value, pairs = arrays_and_pairs(query, key, value, in_heads=True)
    pairs = (
        pairs.under(mask, bias)
        .limited(causal, window, query_offset)
        .padded(query_lengths, key_lengths)
        .packed(query_segments, key_segments)
        .dropping(dropout_rate, dropout_rng)
    )
    checks.check_same_width(query, key)
    score = DotProduct(checks.as_scale(scale), checks.as_softcap(softcap))
    how = How(score, masked_softmax, chunk_size, need_weights, across)
    return attend_in_heads(query, key, value, pairs, how)


def attend_in_heads(query: Array, key: Array, value: Array, pairs: Pairs, how: How) -> Attended:
    """`attend_pairs` for arrays `(..., length, heads, d)`, whose heads may share key heads."""
    return _in_heads(query, key, value, *looking.through(pairs, how))


def _in_heads(query: Array, key: Array, value: Array, pairs: Pairs, how: How) -> Attended:
    score = DotProduct() if how.score is scaled_dot else how.score
    may_choose = how.chunk_size is None and not how.need_weights and how.across is None
    if may_choose and how.normalizer is masked_softmax and isinstance(score, DotProduct):
        plain = score == DotProduct() and pairs.bias is None and not pairs.dropout_rate
        if plain and fused.available(query, key, value):
            return Attended(fused.attend(query, key, value, *fused.limits(pairs)), None)
        if few_queries.applies(query, key, pairs, how.is_cached):
            whole = how._replace(need_weights=True)
            exact = lambda q, k, v: _in_heads(q, k, v, pairs, whole).context
            forms = score.of_products, exact, how.is_cached
            return Attended(few_queries.attend(query, key, value, pairs, *forms), None)
    heads, key_heads = query.shape[-2], key.shape[-2]

    def heads_first(array: Array) -> Array:
        array = jnp.swapaxes(array, -3, -2)
        if heads == key_heads:
            return array
        groups = key_heads, array.shape[-3] // key_heads
        return array.reshape(*array.shape[:-3], *groups, *array.shape[-2:])

    grouped = pairs if heads == key_heads else pairs.in_groups(heads // key_heads)
    arrays = heads_first(query), heads_first(key), heads_first(value)
    context, weights = _on_devices(*arrays, grouped, how)
    context = context.reshape(*pairs.shape[:-1], value.shape[-1])
    weights = None if weights is None else weights.reshape(pairs.shape)
    return Attended(jnp.swapaxes(context, -3, -2), weights)


def attend_pairs(query: Array, key: Array, value: Array, pairs: Pairs, how: How) -> Attended:
    """`attend` for arrays and pairs that have been checked, through the lens where there is one."""
    return _on_devices(query, key, value, *looking.through(pairs, how))


def _on_devices(query: Array, key: Array, value: Array, pairs: Pairs, how: How) -> Attended:
    checks.check_function("score", how.score)
    checks.check_function("normalizer", how.normalizer)
    checks.check_chunk_size(how.chunk_size)
    if 0 in pairs.shape:
        context = jnp.zeros((*pairs.shape[:-1], value.shape[-1]), query.dtype)
        on_ring = how.across is not None and how.across.ring
        has_weights = how.need_weights and how.chunk_size is None and not on_ring
        return Attended(context, jnp.zeros(pairs.shape, query.dtype) if has_weights else None)
    if how.across is not None:
        context, weights = sequence_parallel.attend(attend_part, query, key, value, pairs, how)
        return Attended(context.astype(query.dtype), weights)
    return attend_part(query, key, value, pairs, how)


def attend_part(
    query: Array, key: Array, value: Array, pairs: Pairs, how: How, part: Part | None = None
) -> Attended:
    """Attends on one device, from all queries or from those of a part."""
    is_softmax = how.normalizer is masked_softmax
    if is_softmax and how.chunk_size is None and not how.need_weights:
        how = how._replace(chunk_size=best_chunk_size(query, key, pairs, how.score))
    if how.chunk_size is None:
        block = None if part is None else part.block(pairs)
        context, weights = dense(query, key, value, pairs, how, block)
        weights = weights.astype(query.dtype) if how.need_weights else None
        return Attended(context.astype(query.dtype), weights)
    if is_softmax:
        context, _ = streaming.attend(query, key, value, pairs, how, part)
    elif needs_all_queries(how.normalizer):
        in_turn = how._replace(score=blocks.score_over_queries(how.score, how.chunk_size))
        context, _ = dense(query, key, value, pairs, in_turn)
    else:
        part = whole(pairs) if part is None else part
        context = blocks.over_queries(dense, query, key, value, pairs, how, part)
    return Attended(context.astype(query.dtype), None)


def dense(
    query: Array, key: Array, value: Array, pairs: Pairs, how: How, block: Block | None = None
) -> tuple[Array, Array]:
    """Context and weights, all at once, of all pairs or of the block that the arrays are."""
    is_whole = block is None
    block = pairs.whole() if is_whole and not pairs.all_visible else block
    mask, bias = (None, None) if block is None else (block.mask, block.bias)
    if mask is not None:  # a hidden NaN must not reach values or gradients
        in_block = mask.any(axis=-1), mask.any(axis=-2)
        has_key, has_query = reachable(pairs) if is_whole else in_block
        query, key, value = hide(query, has_key), hide(key, has_query), hide(value, has_query)
    scores = how.score(query, key)
    shape = (*pairs.shape[:-2], query.shape[-2], key.shape[-2])
    checks.check_result("a score", scores, shape, query, key)
    scores = scores if bias is None else add(scores, bias)
    weights = how.normalizer(scores, mask=mask)
    checks.check_result("weights", weights, scores.shape, scores)
    kept = weights if not pairs.dropout_rate else pairs.drop(weights, block or pairs.whole())
    return weighted_sum(kept, value), weights


def weighted_sum(weights: Array, value: Array) -> Array:
    """The context `(..., q, e)`, added up in float32 or better."""
    return product("...qk,...ke->...qe", weights, value, wide(value.dtype))
