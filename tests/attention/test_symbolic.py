"""Attention can be exported for any batch size and length."""

import jax
import numpy as np
import pytest

from flax_attn.attention import attend, dot_product_attention
from tests.attention.compiled import run

pytestmark = pytest.mark.usefixtures("symbolic_sizes")

RNG = np.random.default_rng(0)
IN_HEADS = {  # arguments of `dot_product_attention` beside query, key and value
    "dense": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "without weights": {"need_weights": False},
    "causal without weights": {"causal": True, "need_weights": False},
}


def exported(function, *shapes):
    scope, number = jax.export.SymbolicScope(), (np.float32, np.int32)
    arguments = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), number[shape == "b"])
        for shape in shapes
    ]
    return jax.export.export(jax.jit(function), platforms=("cpu", "cuda", "tpu"))(*arguments)


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", IN_HEADS)
def test_attention_in_heads_is_the_same_at_every_size(name):
    contexts = lambda x, lengths: (
        dot_product_attention(x, x, x, **IN_HEADS[name]).context,
        dot_product_attention(x, x, x, key_lengths=lengths, **IN_HEADS[name]).context,
    )
    program = exported(contexts, "b, t, 2, 5", "b")
    for batch, length in ((1, 1), (2, 7), (3, 11)):
        x, lengths = draw(batch, length, 2, 5), np.arange(batch, dtype=np.int32)
        for got, expected in zip(program.call(x, lengths), run(contexts, x, lengths)):
            np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
def test_attend_is_the_same_at_every_size(need_weights):
    context = lambda q, k: attend(q, k, k, need_weights=need_weights).context
    program = exported(context, "b, q, 5", "b, k, 5")
    for batch, num_queries, num_keys in ((1, 1, 1), (2, 3, 7)):
        query, key = draw(batch, num_queries, 5), draw(batch, num_keys, 5)
        np.testing.assert_allclose(program.call(query, key), run(context, query, key), atol=1e-6)


def test_a_chunk_size_needs_a_known_length():
    blocks = lambda x: dot_product_attention(x, x, x, chunk_size=4).context
    with pytest.raises(ValueError, match="chunk_size"):
        exported(blocks, "b, t, 2, 4")
    program = exported(blocks, "b, 6, 2, 4")
    x = draw(3, 6, 2, 4)
    np.testing.assert_allclose(program.call(x), run(blocks, x), atol=1e-6)
