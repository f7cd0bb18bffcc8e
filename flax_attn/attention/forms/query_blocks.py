"""Attention in blocks of queries, each with all keys, for any normaliser of rows.

A block is computed again for its gradient (`jax.checkpoint`), so no more than one block of scores
exists at any time. A normaliser that needs all queries gets all scores at once; what a score
computes on the way, such as the hidden layer of an additive one, then comes in blocks.
"""

from typing import TYPE_CHECKING

import jax
from jaxtyping import Array

from flax_attn.attention.arrays import merge, split
from flax_attn.attention.checks import Score
from flax_attn.attention.forms.blockwise import bias_blocks
from flax_attn.attention.normalizers import in_blocks_of_queries, needs_all_queries

if TYPE_CHECKING:
    from flax_attn.attention.core import Call


def why_not(call: "Call") -> str:
    """Tells why the form does not fit a call; nothing where it does."""
    return "no chunk_size is given" if call.chunk_size is None else ""


def attend(call: "Call") -> Array:
    """Computes the context `(..., q, e)`, one block of queries after another."""
    assert call.chunk_size is not None
    if needs_all_queries(call.normalizer):
        return call._replace(score=score_in_blocks(call.score, call.chunk_size)).dense()[0]
    num_queries = call.query.shape[-2]
    size = min(call.chunk_size, num_queries)
    indices = call.visible.all_indices() if call.indices is None else call.indices

    def of_block(args: tuple[Array, Array, Array | None]) -> Array:
        queries, query, bias = args
        block = indices._replace(queries=queries, bias=bias)
        with in_blocks_of_queries():
            return call._replace(query=query, indices=block).dense()[0]

    blocks = split(indices.queries, size, -1), split(call.query, size), bias_blocks(indices, size)
    return merge(jax.lax.map(jax.checkpoint(of_block), blocks), num_queries)


def score_in_blocks(score: Score, size: int) -> Score:
    """Makes the same score, computed for one block of queries after another."""

    def in_turn(query: Array, key: Array) -> Array:
        length = min(size, query.shape[-2])
        rows = jax.lax.map(jax.checkpoint(lambda query: score(query, key)), split(query, length))
        return merge(rows, query.shape[-2])

    return in_turn
