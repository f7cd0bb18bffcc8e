"""Mistakes that JAX would take in silence, or answer in words that do not help, are refused."""

import functools

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import flax_attn.attention as fa
from tests.attention.compiled import normal

B, T, D = 2, 7, 12
X, KEY = jnp.asarray(normal(0, B, T, D)), jax.random.key(0)
SHORT = X[:, :5]
HEADS = X.reshape(B, T, 3, 4)
NUMBERS = np.where(np.tri(T), 0, -10_000)
PAIRS = np.ones((B, T, T), bool)
TORCH = {"in_proj_weight": np.zeros((12, 4)), "out_proj.weight": np.zeros((4, 4))}
ATTENTION, NETWORK = fa.MultiHeadAttention(3), fa.FeedForward(5)
DROPPING = fa.MultiHeadAttention(3, dropout_rate=0.5)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """A user's Python checks no annotations."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def made(layer, *arrays, **options):
    return jax.eval_shape(lambda: layer.init_with_output(KEY, *arrays, **options))


def making(layer, *arrays, **options):
    return lambda: made(layer, *arrays, **options)


def in_heads(**change):
    arrays = dict.fromkeys(("query", "key", "value"), HEADS)
    return lambda: fa.dot_product_attention(**(arrays | change))


def attend(**change):
    arrays = dict.fromkeys(("query", "key", "value"), X)
    return lambda: fa.attend(**(arrays | change))


def sliding(**options):
    def call():
        cache = ATTENTION.init_cache(D, (B,), window=(3, 0))
        return made(ATTENTION, X[:, :2], cache, method="decode", **options)

    return call


def in_lens(call, **settings):
    def within():
        with fa.Lens(**settings):
            call()

    return within


def on_mesh(axis="sequence", **options):
    mesh = jax.make_mesh((1,), (axis,), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:1])
    return fa.Across(mesh, **options)


class Calling(nn.Module):
    """Calls a score with arrays in place of their widths."""

    @nn.compact
    def __call__(self, x):
        return fa.AdditiveScore(5)(x, x)


REFUSED = {
    TypeError: {
        "integers for a query": (attend(query=X.astype(int)), "query"),
        "an additive mask": (attend(mask=NUMBERS), "bias="),
        "an additive mask in a layer": (making(ATTENTION, X, mask=NUMBERS), "bias="),
        "lengths of keys of self-attention": (
            making(fa.SelfAttention(4, 4), X, key_lengths=jnp.ones(B, int)),
            "key_lengths",
        ),
        "lengths of queries in a block": (
            making(
                fa.EncoderBlock(ATTENTION, fa.FeedForward(4)), X, query_lengths=jnp.ones(B, int)
            ),
            "query_lengths",
        ),
        "a mask function of numbers": (attend(mask=lambda q, k: q - k), "bias="),
        "a boolean bias": (attend(bias=PAIRS), "mask="),
        "masks in a list": (lambda: fa.masks.combine([PAIRS, PAIRS]), "list"),
        "a mask of numbers to combine": (lambda: fa.masks.combine(NUMBERS), "bias="),
        "lengths of floats": (in_heads(key_lengths=np.ones(B)), "key_lengths"),
        "an offset of half a key": (in_heads(query_offset=0.5), "query_offset"),
        "half a key in a window": (in_heads(window=(0.5, 0)), "integer"),
        "a window beside a reach": (making(fa.LocalAttention(2), X, X, window=(1, 1)), "window"),
        "a scale for each feature": (in_heads(scale=np.ones(4)), ""),
        "a traced scale for each feature": (
            lambda: jax.jit(lambda scale: in_heads(scale=scale)())(np.ones(4)),
            "",
        ),
        "a softmax of another library": (attend(normalizer=jax.nn.softmax), "mask"),
        "complex scores": (lambda: fa.masked_softmax(X.astype(complex)), "complex"),
        "a score without its parameters": (attend(score=fa.additive), "query_kernel"),
        "a score of arrays": (making(Calling(), X), ""),
        "an argument that is none": (attend(is_causal=True), "is_causal"),
        "parts of a block in another order": (
            lambda: made(fa.EncoderBlock(NETWORK, ATTENTION), X),
            "",
        ),
        "a lens with a mask of numbers": (lambda: fa.Lens(mask=[0, 1]), "boolean"),
    },
    ValueError: {
        "another width of keys": (in_heads(key=HEADS[..., :2]), "(2, 7, 3, 2)"),
        "other batch rows": (in_heads(key=HEADS[:1]), "(1, 7, 3, 4)"),
        "fewer values than keys": (attend(value=SHORT), "(2, 5, 12)"),
        "heads that do not divide": (
            in_heads(key=HEADS[:, :, :2], value=HEADS[:, :, :2]),
            "multiple",
        ),
        "features that heads do not divide": (making(fa.MultiHeadAttention(5), X), "multiple"),
        "key heads that do not divide": (
            making(fa.MultiHeadAttention(3, num_key_heads=2), X),
            "num_key_heads",
        ),
        "a memory of other rows": (making(ATTENTION, X, X[:1]), "(1, 7, 12)"),
        "a score of another shape": (attend(score=lambda q, k: q @ q.mT[..., :1]), "score"),
        "weights of another shape": (
            attend(normalizer=lambda scores, mask: scores[..., :1], chunk_size=2),
            "weights",
        ),
        "an odd number of features": (lambda: fa.rotary(X, features=5), "even"),
        "an odd width of sines": (lambda: fa.sinusoidal(3, 5), "even"),
        "a kernel of another shape": (lambda: fa.bilinear(X, X, kernel=jnp.ones((2, 2))), "kernel"),
        "an attention that is not residual": (
            making(fa.EncoderBlock(fa.MultiHeadAttention(3, out_features=3), NETWORK), X),
            "attention",
        ),
        "a mask of keys": (attend(mask=PAIRS[:, 0]), "mask[:, None, :]"),
        "a mask of keys in heads": (in_heads(mask=PAIRS[:, 0]), "mask[:, None, None, :]"),
        "a mask of rows or heads": (in_heads(mask=PAIRS), "[:, None]"),
        "a bias of another shape": (in_heads(bias=np.ones((T, 6))), "bias"),
        "a mask of pairs in pooling": (making(fa.AttentionPooling(), X, mask=PAIRS), "mask"),
        "a length below 0": (in_heads(query_lengths=np.array([3, -1])), "query_lengths"),
        "lengths of other rows": (in_heads(key_lengths=np.ones(3, int)), "key_lengths"),
        "a window below 0": (in_heads(window=(-1, 0)), "window"),
        "no reach": (making(fa.PredictiveLocalAttention(0, 3), X, X), "reach"),
        "a prefix of all": (attend(prefix_lengths=2), "causal"),
        "segments of queries alone": (attend(query_segments=np.ones((B, T), int)), "key_segments"),
        "segments of fewer tokens": (
            attend(query_segments=np.ones((B, T), int), key_segments=np.ones((B, 5), int)),
            "key_segments",
        ),
        "lengths that JAX would cut": (
            lambda: fa.masks.from_lengths(np.array([2**32 + 1]), 3),
            "32 bits",
        ),
        "positions outside of the table": (
            lambda: fa.LearnedPositions(10, 3).init(KEY, 3, 9),
            "max_length",
        ),
        "no bucket": (making(fa.RelativeBias(2, 2)), "num_buckets"),
        "a soft-cap of 0": (in_heads(softcap=0.0), "softcap"),
        "a temperature of 0": (lambda: fa.hard(X, temperature=0.0), "temperature"),
        "the largest 0": (lambda: fa.top_k(X, k=0), "k of 1"),
        "blocks of 0": (attend(chunk_size=0), "chunk_size"),
        "dropout without a key": (in_heads(dropout_rate=0.1), "dropout_rng"),
        "a rate of 1": (in_heads(dropout_rate=1.0, dropout_rng=KEY), "dropout_rate"),
        "a rate of 50": (
            making(fa.MultiHeadAttention(3, dropout_rate=50.0), X, train=True),
            "dropout_rate",
        ),
        "a width of rotation without it": (
            lambda: fa.MultiHeadAttention(3, rotary_features=4),
            "rotary",
        ),
        "a parallel block after norms": (
            lambda: fa.EncoderBlock(ATTENTION, NETWORK, pre_norm=False, parallel=True),
            "pre_norm",
        ),
        "a memory without attention to it": (
            making(fa.DecoderBlock(ATTENTION, None, NETWORK), X, X),
            "memory",
        ),
        "attention without a memory": (
            making(fa.DecoderBlock(ATTENTION, ATTENTION, NETWORK), X),
            "memory",
        ),
        "no room": (lambda: ATTENTION.init_cache(D, (B,)), "max_length"),
        "a cache of other rows": (
            making(ATTENTION, X, ATTENTION.init_cache(D, (3,), 8), method="decode"),
            "(3,)",
        ),
        "a normalizer of all queries that decodes": (
            making(
                fa.MultiHeadAttention(3, normalizer=fa.monotonic_hard),
                X,
                ATTENTION.init_cache(D, (B,), 8),
                method="decode",
            ),
            "one query",
        ),
        "no window for a sliding cache": (sliding(), "window"),
        "a longer window than the cache": (sliding(window=(4, 0)), "window"),
        "a prefix of a sliding cache": (sliding(window=(3, 0), prefix_lengths=2), "prefix_lengths"),
        "a mask of a sliding cache": (
            sliding(window=(3, 0), mask=np.ones((2, 5), bool)),
            "function",
        ),
        "a sliding cache to read": (
            making(ATTENTION, X, cache=ATTENTION.init_cache(D, (B,), window=(3, 0))),
            "KeyValueCache",
        ),
        "no mesh": (attend(across=fa.Across()), "jax.set_mesh"),
        "a mesh without the axis": (lambda: attend(across=on_mesh("data"))(), "data"),
        "sparsemax on a ring": (
            lambda: attend(across=on_mesh(ring=True), normalizer=fa.sparsemax)(),
            "softmax",
        ),
        "all queries on several devices": (
            lambda: attend(across=on_mesh(), normalizer=fa.monotonic_hard)(),
            "one query",
        ),
        "a lens of temperature 0": (lambda: fa.Lens(temperature=0), "temperature"),
        "a lens with a mask of another shape": (
            in_lens(attend(), mask=np.ones((3, 1), bool)),
            "mask",
        ),
        "a lens that changes the shape": (
            in_lens(attend(), change={"weights": lambda site, weights: weights[..., 0]}),
            "weights",
        ),
        "scores that cannot leave": (
            in_lens(jax.jit(attend()), keep_scores=True),
            "Lens(keep_scores=True)",
        ),
        "an additive mask in linen": (
            making(
                nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn()),
                X,
                mask=jnp.asarray(NUMBERS[None, None], jnp.float32),
            ),
            "bias",
        ),
        "weights of PyTorch without a place": (
            lambda: fa.multi_head_params_from_torch(TORCH | {"bias_k": np.zeros((1, 1, 4))}, 2),
            "bias_k",
        ),
        "heads that do not divide PyTorch's": (
            lambda: fa.multi_head_params_from_torch(TORCH, 3),
            "num_heads",
        ),
    },
    flax.errors.InvalidRngError: {
        "training without a key": (
            lambda: DROPPING.apply(DROPPING.init(KEY, X), X, train=True),
            "dropout",
        )
    },
    KeyError: {
        "weights of PyTorch that are missing": (
            lambda: fa.multi_head_params_from_torch({}, 1),
            "proj_weight",
        )
    },
}


ROWS = {name: (error, *row) for error, rows in REFUSED.items() for name, row in rows.items()}


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_refused_with_the_word_that_helps(name):
    error, call, word = ROWS[name]
    with pytest.raises(error) as caught:
        call()
    assert word in str(caught.value)


def test_what_is_near_a_mistake_is_taken():
    own = in_heads(causal=np.True_, need_weights=False)().context
    np.testing.assert_array_equal(own, in_heads(causal=True, need_weights=False)().context)
    for key in (KEY, jax.random.PRNGKey(0)):
        in_heads(dropout_rate=np.float32(0.5), dropout_rng=key)()
    in_heads(dropout_rate=0, dropout_rng=None)()
    attend(normalizer=functools.partial(fa.sampled_hard, rng=KEY))()
    attend(normalizer=lambda scores, **options: fa.masked_softmax(scores, **options))()
