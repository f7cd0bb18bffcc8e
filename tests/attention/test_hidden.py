"""What no query sees, or sees nothing, reaches no parameter, whichever way it is hidden; and other
ways to be silently wrong.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import flax_attn.attention as fa
from flax_attn.attention import masks
from tests.attention.compiled import apply, init, normal

B, T, D = 2, 5, 8
X = jnp.asarray(normal(0, B, T, D))
BAD = X.at[:, 3:].set(jnp.nan)
REAL = np.arange(T) < 3


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_bias_of_heads_and_keys_is_one_whether_rows_have_offsets_or_not(chunk_size):
    """As many heads as rows, which could pass for each other."""
    x = jnp.asarray(normal(1, 2, T, 2, 4))
    for bias in (
        lambda q, k: jnp.array([0.0, 5.0])[:, None, None] * k[None],
        lambda q, k: 0.1 * jnp.subtract(*masks.aligned(q, k)),
    ):
        attend = lambda offset, bias=bias: (
            fa.dot_product_attention(
                x, x, x, bias=bias, query_offset=offset, chunk_size=chunk_size
            ).context
        )
        assert_allclose(jax.jit(attend)(jnp.zeros(2, int)), jax.jit(attend)(0), atol=1e-6)


def test_layers_in_one_model_have_a_score_each():
    class Two(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = fa.LocalAttention(1, name="first")(x, x).context
            return fa.PredictiveLocalAttention(2, 3, name="second")(x, x[..., :6]).context

    params = jax.eval_shape(Two().init, jax.random.key(0), X)["params"]
    assert params["first"]["score"]["kernel"].shape == (D, D)
    assert params["second"]["score"]["kernel"].shape == (D, 6)


def test_linen_that_decodes_is_not_given_places_it_does_not_know():
    decoding = lambda **limits: nn.MultiHeadDotProductAttention(
        2, attention_fn=fa.linen_attention_fn(**limits), decode=True
    )
    free = decoding()
    variables = init(nn.MultiHeadDotProductAttention(2), X)
    empty = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(free.init, jax.random.key(0), X)["cache"],
    )
    variables = {**variables, "cache": empty}
    said = "expected query_offset with causal or window"
    for limits in ({"causal": True}, {"window": (2, 0)}):
        with pytest.raises(ValueError, match=said):
            decoding(**limits).apply(variables, X[:, :1], mutable=["cache"])
    causal = nn.make_causal_mask(X[..., 0])
    own = {"params": variables["params"]}
    full = apply(nn.MultiHeadDotProductAttention(2), own, X, mask=causal)
    step = jax.jit(lambda v, x: free.apply(v, x, mutable=["cache"]))
    for t in range(T):
        context, state = step(variables, X[:, t : t + 1])
        variables = {**variables, **state}
        assert_allclose(context[:, 0], full[:, t], atol=1e-5)


def test_a_decoder_masks_its_memory_and_refuses_lengths_beside_a_cached_one():
    block = fa.DecoderBlock(fa.MultiHeadAttention(2), fa.MultiHeadAttention(2), fa.FeedForward(5))
    variables = init(block, X, X)
    masked, cut = (
        apply(block, variables, X, *memory, **options)
        for memory, options in (([BAD], {"memory_mask": REAL}), ([X[:, :3]], {}))
    )
    assert_allclose(masked.context, cut.context, atol=1e-5)
    unseen = apply(block, variables, X, X, need_weights=False)
    assert unseen.weights is None
    assert unseen.cross_weights is None
    with pytest.raises(ValueError, match="key_lengths"):
        block.apply(
            variables,
            X,
            fa.MultiHeadAttention(2).init_cache(D, (B,), T),
            memory_lengths=jnp.array([2, 2]),
        )
