"""Mistakes that JAX would take in silence, or answer in words that do not help, are refused."""

import functools

import flax.errors
import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx

import flax_attn.attention as fa
from flax_attn import heads
from flax_attn.attention.nnx import MultiHeadAttention as NnxAttention
from tests.attention.compiled import normal

B, T, D = 2, 7, 12
X, KEY = jnp.asarray(normal(0, B, T, D)), jax.random.key(0)
SHORT, VECTORS = X[:, :5], jnp.ones((1, 3, 2))
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


REFUSED = {
    # arrays and their shapes
    "integers for a query": (attend(query=X.astype(int)), TypeError, "query"),
    "another width of keys": (in_heads(key=HEADS[..., :2]), ValueError, "(2, 7, 3, 2)"),
    "other batch rows": (in_heads(key=HEADS[:1]), ValueError, "(1, 7, 3, 4)"),
    "fewer values than keys": (attend(value=SHORT), ValueError, "(2, 5, 12)"),
    "heads that do not divide": (
        in_heads(key=HEADS[:, :, :2], value=HEADS[:, :, :2]),
        ValueError,
        "multiple",
    ),
    "features that heads do not divide": (
        lambda: made(fa.MultiHeadAttention(5), X),
        ValueError,
        "multiple",
    ),
    "key heads that do not divide": (
        lambda: made(fa.MultiHeadAttention(3, num_key_heads=2), X),
        ValueError,
        "num_key_heads",
    ),
    "a memory of other rows": (lambda: made(ATTENTION, X, X[:1]), ValueError, "(1, 7, 12)"),
    "a score of another shape": (attend(score=lambda q, k: q @ q.mT[..., :1]), ValueError, "score"),
    "weights of another shape": (
        attend(normalizer=lambda scores, mask: scores[..., :1], chunk_size=2),
        ValueError,
        "weights",
    ),
    "an odd number of features": (lambda: fa.rotary(X, features=5), ValueError, "even"),
    "an odd width of sines": (lambda: fa.sinusoidal(3, 5), ValueError, "even"),
    "a kernel of another shape": (
        lambda: fa.bilinear(X, X, kernel=jnp.ones((2, 2))),
        ValueError,
        "kernel",
    ),
    "an attention that is not residual": (
        lambda: made(fa.EncoderBlock(fa.MultiHeadAttention(3, out_features=3), NETWORK), X),
        ValueError,
        "attention",
    ),
    # masks and biases
    "an additive mask": (attend(mask=NUMBERS), TypeError, "bias="),
    "an additive mask in a layer": (lambda: made(ATTENTION, X, mask=NUMBERS), TypeError, "bias="),
    "a mask function of numbers": (attend(mask=lambda q, k: q - k), TypeError, "bias="),
    "a boolean bias": (attend(bias=PAIRS), TypeError, "mask="),
    "a mask of keys": (attend(mask=PAIRS[:, 0]), ValueError, "mask[:, None, :]"),
    "a mask of keys in heads": (in_heads(mask=PAIRS[:, 0]), ValueError, "mask[:, None, None, :]"),
    "a mask of rows or heads": (in_heads(mask=PAIRS), ValueError, "[:, None]"),
    "a bias of another shape": (in_heads(bias=np.ones((T, 6))), ValueError, "bias"),
    "a mask of pairs in pooling": (
        lambda: made(fa.AttentionPooling(), X, mask=PAIRS),
        ValueError,
        "mask",
    ),
    "masks in a list": (lambda: fa.masks.combine([PAIRS, PAIRS]), TypeError, "list"),
    "a mask of numbers to combine": (lambda: fa.masks.combine(NUMBERS), TypeError, "bias="),
    # lengths, windows, segments, offsets
    "lengths of floats": (in_heads(key_lengths=np.ones(B)), TypeError, "key_lengths"),
    "a length below 0": (in_heads(query_lengths=np.array([3, -1])), ValueError, "query_lengths"),
    "lengths of other rows": (in_heads(key_lengths=np.ones(3, int)), ValueError, "key_lengths"),
    "an offset of half a key": (in_heads(query_offset=0.5), TypeError, "query_offset"),
    "a window below 0": (in_heads(window=(-1, 0)), ValueError, "window"),
    "half a key in a window": (in_heads(window=(0.5, 0)), TypeError, "integer"),
    "a window beside a reach": (
        lambda: made(fa.LocalAttention(2), X, X, window=(1, 1)),
        TypeError,
        "window",
    ),
    "no reach": (lambda: fa.PredictiveLocalAttention(0, 3), ValueError, "reach"),
    "a prefix of all": (attend(prefix_lengths=2), ValueError, "causal"),
    "segments of queries alone": (
        attend(query_segments=np.ones((B, T), int)),
        ValueError,
        "key_segments",
    ),
    "segments of fewer tokens": (
        attend(query_segments=np.ones((B, T), int), key_segments=np.ones((B, 5), int)),
        ValueError,
        "key_segments",
    ),
    "lengths that JAX would cut": (
        lambda: fa.masks.from_lengths(np.array([2**32 + 1]), 3),
        ValueError,
        "32 bits",
    ),
    "positions outside of the table": (
        lambda: fa.LearnedPositions(10, 3).init(KEY, 3, 9),
        ValueError,
        "max_length",
    ),
    "no bucket": (lambda: made(fa.RelativeBias(2, 2)), ValueError, "num_buckets"),
    # numbers and functions
    "a scale for each feature": (in_heads(scale=np.ones(4)), TypeError, ""),
    "a traced scale for each feature": (
        lambda: jax.jit(lambda scale: in_heads(scale=scale)())(np.ones(4)),
        TypeError,
        "",
    ),
    "a soft-cap of 0": (in_heads(softcap=0.0), ValueError, "softcap"),
    "a temperature of 0": (lambda: fa.hard(X, temperature=0.0), ValueError, "temperature"),
    "the largest 0": (lambda: fa.top_k(X, k=0), ValueError, "k of 1"),
    "blocks of 0": (attend(chunk_size=0), ValueError, "chunk_size"),
    "a softmax of another library": (attend(normalizer=jax.nn.softmax), TypeError, "mask"),
    "complex scores": (lambda: fa.masked_softmax(X.astype(complex)), TypeError, "complex"),
    "a score without its parameters": (attend(score=fa.additive), TypeError, "query_kernel"),
    "a score of arrays": (lambda: made(Calling(), X), TypeError, ""),
    "a normalizer of all queries in blocks": (
        attend(normalizer=lambda scores, mask: fa.monotonic_hard(scores, mask), chunk_size=2),
        ValueError,
        "monotonic_hard",
    ),
    "an argument that is none": (attend(is_causal=True), TypeError, "is_causal"),
    # dropout
    "dropout without a key": (in_heads(dropout_rate=0.1), ValueError, "dropout_rng"),
    "a rate of 1": (in_heads(dropout_rate=1.0, dropout_rng=KEY), ValueError, "dropout_rate"),
    "a rate of 50": (
        lambda: made(fa.MultiHeadAttention(3, dropout_rate=50.0), X, train=True),
        ValueError,
        "dropout_rate",
    ),
    "training without a key": (
        lambda: DROPPING.apply(DROPPING.init(KEY, X), X, train=True),
        flax.errors.InvalidRngError,
        "dropout",
    ),
    # layers
    "a width of rotation without it": (
        lambda: fa.MultiHeadAttention(3, rotary_features=4),
        ValueError,
        "rotary",
    ),
    "a parallel block after norms": (
        lambda: fa.EncoderBlock(ATTENTION, NETWORK, pre_norm=False, parallel=True),
        ValueError,
        "pre_norm",
    ),
    "a memory without attention to it": (
        lambda: made(fa.DecoderBlock(ATTENTION, None, NETWORK), X, X),
        ValueError,
        "memory",
    ),
    "attention without a memory": (
        lambda: made(fa.DecoderBlock(ATTENTION, ATTENTION, NETWORK), X),
        ValueError,
        "memory",
    ),
    "parts of a block in another order": (
        lambda: made(fa.EncoderBlock(NETWORK, ATTENTION), X),
        TypeError,
        "",
    ),
    # caches
    "no room": (lambda: ATTENTION.init_cache(D, (B,)), ValueError, "max_length"),
    "a cache of other rows": (
        lambda: made(ATTENTION, X, ATTENTION.init_cache(D, (3,), 8), method="decode"),
        ValueError,
        "(3,)",
    ),
    "a normalizer of all queries that decodes": (
        lambda: made(
            fa.MultiHeadAttention(3, normalizer=fa.monotonic_hard),
            X,
            ATTENTION.init_cache(D, (B,), 8),
            method="decode",
        ),
        ValueError,
        "one query",
    ),
    "no window for a sliding cache": (sliding(), ValueError, "window"),
    "a longer window than the cache": (sliding(window=(4, 0)), ValueError, "window"),
    "a prefix of a sliding cache": (
        sliding(window=(3, 0), prefix_lengths=2),
        ValueError,
        "prefix_lengths",
    ),
    "a mask of a sliding cache": (
        sliding(window=(3, 0), mask=np.ones((2, 5), bool)),
        ValueError,
        "function",
    ),
    "a sliding cache to read": (
        lambda: made(ATTENTION, X, cache=ATTENTION.init_cache(D, (B,), window=(3, 0))),
        ValueError,
        "KeyValueCache",
    ),
    # devices
    "no mesh": (attend(across=fa.Across()), ValueError, "jax.set_mesh"),
    "a mesh without the axis": (lambda: attend(across=on_mesh("data"))(), ValueError, "data"),
    "sparsemax on a ring": (
        lambda: attend(across=on_mesh(ring=True), normalizer=fa.sparsemax)(),
        ValueError,
        "softmax",
    ),
    "all queries on several devices": (
        lambda: attend(across=on_mesh(), normalizer=fa.monotonic_hard)(),
        ValueError,
        "one query",
    ),
    # lenses and heads
    "a lens of temperature 0": (lambda: fa.Lens(temperature=0), ValueError, "temperature"),
    "a lens with a mask of numbers": (lambda: fa.Lens(mask=[0, 1]), TypeError, "boolean"),
    "a lens with a mask of another shape": (
        in_lens(attend(), mask=np.ones((3, 1), bool)),
        ValueError,
        "mask",
    ),
    "a lens that changes the shape": (
        in_lens(attend(), change_weights=lambda name, weights: weights[..., 0]),
        ValueError,
        "change_weights",
    ),
    "scores that cannot leave": (
        in_lens(jax.jit(attend()), keep_scores=True),
        ValueError,
        "Lens(keep_scores=True)",
    ),
    "a head that there is not": (
        lambda: within_cut([0, 3]),
        ValueError,
        "from 0 to 2",
    ),
    "half a head": (lambda: within_cut([0.5]), ValueError, "from 0 to 2"),
    # other libraries
    "an additive mask in linen": (
        lambda: made(
            nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn()),
            X,
            mask=jnp.asarray(NUMBERS[None, None], jnp.float32),
        ),
        ValueError,
        "bias",
    ),
    "weights of PyTorch that are missing": (
        lambda: fa.multi_head_params_from_torch({}, 1),
        KeyError,
        "proj_weight",
    ),
    "weights of PyTorch without a place": (
        lambda: fa.multi_head_params_from_torch(TORCH | {"bias_k": np.zeros((1, 1, 4))}, 2),
        ValueError,
        "bias_k",
    ),
    "heads that do not divide PyTorch's": (
        lambda: fa.multi_head_params_from_torch(TORCH, 3),
        ValueError,
        "num_heads",
    ),
    "nnx without a stream": (
        lambda: NnxAttention(3, D, rngs=nnx.Rngs(dropout=1)),
        ValueError,
        "params",
    ),
    "nnx without a key for dropout": (
        lambda: NnxAttention(3, D, dropout_rate=0.5, rngs=nnx.Rngs(params=0))(X, train=True),
        ValueError,
        "dropout",
    ),
}


class Calling(nn.Module):
    """Calls a score with arrays in place of their widths."""

    @nn.compact
    def __call__(self, x):
        return fa.AdditiveScore(5)(x, x)


def within_cut(numbers):
    with heads.cut({"": numbers}):
        made(ATTENTION, X)


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_refused_with_the_word_that_helps(name):
    call, error, word = REFUSED[name]
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
