"""The block size counts what a score holds."""

import jax
import jax.numpy as jnp

from flax_attn.attention import block_size


def test_the_block_size_counts_arrays_inside_branches_and_recomputed_parts():
    hidden = lambda query, key: jnp.tanh(query[:, None] + key[None, :]).sum(-1)
    x = jnp.ones((64, 16))
    inside = [
        hidden,
        jax.checkpoint(hidden),
        lambda query, key: jax.lax.cond(True, hidden, lambda query, key: query @ key.T, query, key),
    ]
    assert [block_size._largest_inside(jax.make_jaxpr(score)(x, x).jaxpr) for score in inside] == [
        64 * 64 * 16
    ] * 3
