"""Softmax attention over blocks of queries and keys: context and gradients without the weights.

The keys stream by. With `m` the largest score so far,

    s = sum_k exp(e_k - m),   c = sum_k exp(e_k - m) v_k,   context = c / s

and both sums are scaled by `exp(m_old - m_new)` when a block brings a larger score. The result does
not depend on `m`, so it is held fixed in the gradient. The scores of a block are computed again for
its gradient (`jax.checkpoint`), so no more than one block of them exists at any time.

Source: Rabe & Staats 2021 (arXiv:2112.05682), section 3; Milakov & Gimelshein 2018
(arXiv:1805.02867) for the sums.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flax_attn.attention.arrays import hide, wide, with_rank
from flax_attn.attention.blocks import bias_blocks, indices, merge, split
from flax_attn.attention.pairs import Pairs


def attend(query: Array, key: Array, value: Array, pairs: Pairs, how: Any) -> Array:
    """The context `(..., q, e)` of softmax attention, in blocks of `how.chunk_size`."""
    num_queries, num_keys = pairs.shape[-2:]
    size, key_size = min(how.chunk_size, num_queries), min(how.chunk_size, num_keys)
    queries, keys, values = split(query, size), split(key, key_size), split(value, key_size)
    dtype, leading = wide(query.dtype, key.dtype, value.dtype), pairs.shape[:-2]

    def row(args: tuple[Array, Array, Array | None]) -> Array:
        i, query_block, bias_row = args
        rows = indices(i, size, num_queries)[:, None]

        def step(carry: tuple[Array, Array, Array], args: tuple) -> tuple[tuple, None]:
            largest, total, context = carry
            j, key, value, bias = args
            query = query_block
            block = pairs.block(rows, indices(j, key_size, num_keys)[None, :], bias)
            mask = block.mask
            if mask is not None:
                has_key, has_query = mask.any(axis=-1), mask.any(axis=-2)
                query, key, value = (
                    hide(query, has_key),
                    hide(key, has_query),
                    hide(value, has_query),
                )
            scores = how.score(query, key)
            if scores.shape != (*leading, size, key_size):
                raise ValueError(
                    f"expected a score of shape {(*leading, size, key_size)} for query "
                    f"{query.shape} and key {key.shape}, got {scores.shape}"
                )
            scores = (scores if block.bias is None else scores + block.bias).astype(dtype)
            if num_keys % key_size:
                real = with_rank(j * key_size + jnp.arange(key_size) < num_keys, scores.ndim)
                mask = real if mask is None else mask & real
            scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
            new = jnp.maximum(largest, scores.max(axis=-1, keepdims=True))
            new = jax.lax.stop_gradient(new)
            base = jnp.where(new == -jnp.inf, 0, new)  # nothing to attend so far
            shares, kept = jnp.exp(scores - base), jnp.exp(largest - base)
            total = kept * total + shares.sum(axis=-1, keepdims=True)
            shares = pairs.drop(shares, block) if pairs.dropout_rate else shares
            part = jnp.einsum(
                "...qk,...ke->...qe",
                shares.astype(value.dtype),
                value,
                preferred_element_type=dtype,
            )
            return (new, total, kept * context + part), None

        none = jnp.full((*leading, size, 1), -jnp.inf, dtype)
        zero = jnp.zeros((*leading, size, 1), dtype)
        start = none, zero, jnp.zeros((*leading, size, value.shape[-1]), dtype)
        blocks = jnp.arange(len(keys)), keys, values, bias_row
        (_, total, context), _ = jax.lax.scan(jax.checkpoint(step), start, blocks)
        return context / jnp.where(total > 0, total, 1)

    arguments = jnp.arange(len(queries)), queries, bias_blocks(pairs, size, key_size)
    return merge(jax.lax.map(jax.checkpoint(row), arguments), num_queries)
