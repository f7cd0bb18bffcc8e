"""One law: what no query may see, and a query that sees nothing, reaches no parameter, even where
it is NaN.

Every way to hide a position x every layer: the gradient of a loss in the real rows is that with
zeros in place of NaN.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention.masks import both
from tests.attention.compiled import apply, init, normal

B, T, D = 2, 7, 4
X, Y = normal(0, B, T, D), normal(1, B, T, D)
NOT_2, FIRST_4 = np.arange(T) != 2, np.arange(T) < 4
PAIRS_NOT_2 = NOT_2[:, None] & NOT_2
ALL = np.ones(T, bool)

# Arguments, the real queries and the keys that are seen. Those of `own` go to layers where queries
# are the keys.
WAYS = {
    "mask": ({"mask": PAIRS_NOT_2}, NOT_2, NOT_2),
    "mask function": ({"mask": lambda q, k: both(q != 2, k != 2)}, NOT_2, NOT_2),
    "bias": ({"bias": np.where(PAIRS_NOT_2, 0.0, -np.inf).astype(np.float32)}, NOT_2, NOT_2),
    "bias function": (
        {"bias": lambda q, k: jnp.where(both(q != 2, k != 2), 0.0, -jnp.inf)},
        NOT_2,
        NOT_2,
    ),
    "causal and offset": ({"causal": True, "query_offset": -3}, ~(np.arange(T) < 3), FIRST_4),
    "causal and window": (
        {"causal": True, "window": (1, 0), "key_lengths": np.array([3, 3])},
        FIRST_4,
        np.arange(T) < 3,
    ),
    "window": ({"window": (1, 0), "key_lengths": np.array([3, 3])}, FIRST_4, np.arange(T) < 3),
    "query lengths": ({"query_lengths": np.array([4, 4])}, FIRST_4, ALL),
    "key lengths": ({"key_lengths": np.array([4, 4])}, ALL, FIRST_4),
    "no keys": ({"key_lengths": np.array([0, 0])}, ~ALL, ~ALL),
    "lengths": (
        {"query_lengths": np.array([4, 4]), "key_lengths": np.array([4, 4])},
        FIRST_4,
        FIRST_4,
    ),
    "segments": (
        {"query_segments": np.where(NOT_2, 0, 1), "key_segments": np.where(NOT_2, 0, 2)},
        NOT_2,
        NOT_2,
    ),
}
OWN = {
    "mask": WAYS["mask"],
    "mask function": WAYS["mask function"],
    "bias": WAYS["bias"],
    "bias function": WAYS["bias function"],
    "lengths": ({"lengths": np.array([4, 4])}, FIRST_4, FIRST_4),
    "lengths and window": (
        {"lengths": np.array([4, 4]), "window": (1, 1), "causal": True},
        FIRST_4,
        FIRST_4,
    ),
    "no positions": ({"lengths": np.array([0, 0])}, ~ALL, ~ALL),
    "mask and segments": (
        {"mask": PAIRS_NOT_2, "segments": (np.arange(T) > 3).astype(int)},
        NOT_2,
        NOT_2,
    ),
}
POOLED = {
    "mask": ({"mask": NOT_2}, ALL[:1], NOT_2),
    "lengths": ({"lengths": np.array([4, 4])}, ALL[:1], FIRST_4),
    "no positions": ({"lengths": np.array([0, 0])}, ALL[:1], ~ALL),
}
heads = functools.partial(fa.MultiHeadAttention, 2)
BETWEEN = {
    "Attention": fa.Attention(fa.AdditiveScore(3)),
    "Attention in blocks": fa.Attention(fa.AdditiveScore(3), chunk_size=2),
    "MultiHeadAttention": heads(),
    "MultiHeadAttention in blocks": heads(chunk_size=2),
    "MultiHeadAttention, rotary and norms": heads(rotary=True, query_key_norm=True),
    "LocalAttention": fa.LocalAttention(2),
    "LocalAttention in blocks": fa.LocalAttention(2, chunk_size=2),
    "PredictiveLocalAttention": fa.PredictiveLocalAttention(2, 3),
}
MULTI_HEAD = [name for name in BETWEEN if "MultiHeadAttention" in name]
WITHIN = {
    "SelfAttention": fa.SelfAttention(3, 5),
    "SelfAttention, folded, in blocks": fa.SelfAttention(9, 5, chunk_size=2),
    "SelfAttention, biases": fa.SelfAttention(9, 5, use_bias=True),
    "EncoderBlock": fa.EncoderBlock(heads(), fa.FeedForward(5)),
    "EncoderBlock, post-norm": fa.EncoderBlock(heads(), fa.FeedForward(5), pre_norm=False),
}
POOLING = {
    "AttentionPooling": fa.AttentionPooling(),
    "AttentionPooling, hidden": fa.AttentionPooling(3),
    "StructuredSelfAttention": fa.StructuredSelfAttention(3, 2),
}
DECODER = fa.DecoderBlock(heads(), heads(), fa.FeedForward(5))


def pairs_of(rows, columns):
    """A few pairs of names, in which each name is met."""
    pairs = [(a, b) for a in rows for b in columns if has_argument(a, b)]
    met, few = set(), set()
    for most in (2, 1):
        for pair in pairs:
            if len(new := set(enumerate(pair)) - met) >= most:
                few.add(pair)
                met |= new
    return [pair for pair in pairs if pair in few]


def has_argument(name, way):
    """Whether the layer takes the arguments: an offset only multi-head attention, a window all but
    those that have one.
    """
    arguments = WAYS[way][0] if name in BETWEEN and way in WAYS else {}
    return not ("query_offset" in arguments and name not in MULTI_HEAD) and not (
        "window" in arguments and "Local" in name
    )


def check(call, variables, arrays, real, hidden):
    """Gradients are finite, and those with zeros, where `hidden` names the positions of each array
    that hold a NaN.
    """

    def loss(variables, arrays):
        context = call(variables, *arrays)
        return jnp.sum(jnp.where(real[:, None], jnp.sin(context), 0)), context

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    filled = lambda number: [
        np.where(away[:, None], np.float32(number), array) for array, away in zip(arrays, hidden)
    ]
    (gradients, context), (expected, clean) = (
        gradient(variables, filled(np.nan)),
        gradient(variables, filled(0.0)),
    )
    chex.assert_tree_all_finite((gradients, context[..., real, :]))
    chex.assert_trees_all_close(gradients, expected, atol=1e-6)
    np.testing.assert_allclose(context[..., real, :], clean[..., real, :], atol=1e-6)


@pytest.mark.parametrize(("name", "way"), pairs_of(BETWEEN, WAYS))
def test_between_queries_and_keys(name, way):
    layer, (options, real, visible) = BETWEEN[name], WAYS[way]
    variables = init(layer, X, Y, Y)
    call = lambda variables, *arrays: layer.apply(variables, *arrays, **options).context
    if isinstance(layer, fa.LocalAttention) and way == "query lengths":
        visible = np.arange(T) < 4 + layer.reach
    check(call, variables, (X, Y, Y), real, (~real, ~visible, ~visible))


@pytest.mark.parametrize(("name", "way"), pairs_of(WITHIN, OWN))
def test_within_a_sequence(name, way):
    layer, (options, real, visible) = WITHIN[name], OWN[way]
    call = lambda variables, x: layer.apply(variables, x, **options).context
    check(call, init(layer, X), (X,), real, (~visible,))


@pytest.mark.parametrize(("name", "way"), pairs_of(POOLING, POOLED))
def test_in_pooling(name, way):
    layer, (options, real, visible) = POOLING[name], POOLED[way]
    call = lambda variables, x: jnp.reshape(
        layer.apply(variables, x, **options).context, (B, 1, -1)
    )
    check(call, init(layer, X), (X,), real, (~visible,))


MEMORIES = {
    "lengths": ({"memory_lengths": np.array([4, 4])}, FIRST_4),
    "empty": ({"memory_lengths": np.array([0, 0])}, ~ALL),
    "mask": ({"memory_mask": NOT_2}, NOT_2),
    "mask of a query": ({"memory_mask": NOT_2[:, None] & NOT_2}, NOT_2),
}


@pytest.mark.parametrize(("cached", "way"), pairs_of([False, True], MEMORIES))
@pytest.mark.parametrize("own", ["mask", "lengths"])
def test_in_a_decoder(way, cached, own):
    memory_options, visible = MEMORIES[way]
    options, real, own_visible = OWN[own]
    memory_options = dict(memory_options)
    lengths = memory_options.pop("memory_lengths", None) if cached else None

    def call(variables, x, memory):
        if cached:
            params = {"params": variables["params"]["cross_attention"]}
            memory = heads().apply(
                params, heads().init_cache(D, (B,), T), memory, lengths=lengths, method="extend"
            )
        return DECODER.apply(variables, x, memory, **options, **memory_options).context

    check(call, init(DECODER, X, Y), (X, Y), real, (~own_visible, ~visible))


CACHED = ["mask of a query", "mask of a key", "empty", "lengths", "causal and offset"]


@pytest.mark.parametrize(("name", "way"), pairs_of(MULTI_HEAD, CACHED))
def test_with_a_cached_memory(name, way):
    layer, lengths = (
        BETWEEN[name],
        {"empty": np.array([0, 0]), "lengths": np.array([4, 4])}.get(way),
    )
    options, real, visible = {
        "mask of a query": ({"mask": NOT_2[:, None]}, NOT_2, ALL),
        "mask of a key": ({"mask": NOT_2}, ALL, NOT_2),
        "empty": ({}, ~ALL, ~ALL),
        "lengths": ({}, ALL, FIRST_4),
        "causal and offset": WAYS["causal and offset"],
    }[way]

    def call(variables, x, memory):
        cache = layer.apply(
            variables, layer.init_cache(D, (B,), T), memory, lengths=lengths, method="extend"
        )
        return layer.apply(variables, x, cache=cache, **options).context

    check(call, init(layer, X, Y), (X, Y), real, (~real, ~visible))


DECODED = ["lengths", "no tokens", "mask function", "bias function"]


@pytest.mark.parametrize(("name", "way"), pairs_of(MULTI_HEAD, DECODED))
@pytest.mark.parametrize("sliding", [False, True])
def test_in_decoding(name, sliding, way):
    """A prompt whose padding or hidden token is NaN, and then a part that attends to it."""
    layer = BETWEEN[name]
    options, real, visible = OWN["no positions"] if way == "no tokens" else OWN[way]

    def call(variables, x, y):
        cache = layer.init_cache(
            D, (B,), **({"window": (3, 0)} if sliding else {"max_length": 2 * T})
        )
        window = {"window": (3, 0)} if sliding else {}
        first, cache = layer.apply(variables, x, cache, method="decode", **options, **window)
        hiding = {name: options[name] for name in ("mask", "bias") if name in options}
        second, _ = layer.apply(variables, y[:, :3], cache, method="decode", **hiding, **window)
        return jnp.concatenate([first.context, second.context], axis=1)

    check(call, init(layer, X), (X, Y), np.concatenate([real, ALL[:3]]), (~visible, ~ALL))


@pytest.mark.parametrize("name", [*BETWEEN, *WITHIN])
def test_a_nan_that_is_seen_is_not_hidden(name):
    layer = (BETWEEN | WITHIN)[name]
    x = np.where(NOT_2[:, None], X, np.float32(np.nan))
    arrays = (x,) if name in WITHIN else (x, x, x)
    context = apply(layer, init(layer, *arrays), *arrays).context
    assert np.isnan(context[:, 2]).all()
