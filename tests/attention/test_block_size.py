"""The block size counts what a score holds."""

import jax
import jax.numpy as jnp
import pytest

import flax_attn.attention as fa
from flax_attn.attention.core import make_call
from flax_attn.attention.forms import blockwise


def test_the_block_size_counts_arrays_inside_branches_and_recomputed_parts():
    hidden = lambda query, key: jnp.tanh(query[:, None] + key[None, :]).sum(-1)
    x = jnp.ones((64, 16))
    inside = [
        hidden,
        jax.checkpoint(hidden),
        lambda query, key: jax.lax.cond(True, hidden, lambda query, key: query @ key.T, query, key),
    ]
    largest = lambda score: blockwise._largest_inside(make_call(x, x, x, score=score))
    assert [largest(score) for score in inside] == [64 * 64 * 16] * 3

    def untraced(query, key):
        raise AssertionError("a dot product is known without a trace")

    assert largest(fa.scaled_dot) == 64 * 64
    with pytest.raises(AssertionError):
        largest(untraced)
