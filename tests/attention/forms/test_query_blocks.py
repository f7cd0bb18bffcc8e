"""Attention in blocks never holds what the whole would."""

import jax
import jax.numpy as jnp
import numpy as np

import flax_attn.attention as fa


def test_blocks_never_hold_what_the_whole_would():
    """Additive attention at length 1,024: the pairs of positions and hidden units, 256 MiB, do not
    exist in blocks.
    """
    x = jax.ShapeDtypeStruct((1, 1024, 8), jnp.float32)
    kernels = {
        "query_kernel": np.ones((8, 64)),
        "key_kernel": np.ones((8, 64)),
        "vector": np.ones(64),
    }

    def loss(x, kernels, chunk_size):
        score = lambda q, k: fa.additive(q, k, **kernels)
        return fa.attend(x, x, x, score=score, chunk_size=chunk_size).context.sum()

    lowered = {
        size: jax.jit(jax.grad(loss, argnums=1), static_argnums=2).lower(x, kernels, size)
        for size in (None, 128)
    }
    used = {
        size: low.compile().memory_analysis().temp_size_in_bytes / 2**20
        for size, low in lowered.items()
    }
    assert used[None] > 256
    assert used[128] < 32
