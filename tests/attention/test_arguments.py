"""Arguments that mean nothing are told in a line of our own, and none is passed over in silence."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from flax_attn import attention as fa
from flax_attn import heads
from flax_attn.attention import (
    Across,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    HardAttention,
    LocalAttention,
    MultiHeadAttention,
    attend,
    binary_digits,
    dot_product_attention,
    masked_softmax,
    masks,
    multi_head_params_from_torch,
    rotary,
    sampled_hard,
    sinusoidal,
    top_k,
    with_sink,
)
from flax_attn.attention.cache import empty_cache, empty_sliding_cache

ARRAYS = (np.ones((2, 5, 4, 8), np.float32), *[np.ones((2, 6, 2, 8), np.float32)] * 2)
INPUTS = np.ones((2, 5, 16), np.float32)
X = jnp.ones((2, 5, 8))
KEY = jax.random.key(0)
DROPPED = {"dropout_rate": 0.5, "dropout_rng": KEY}
BAD = {
    "a word for causal": ({"causal": "no"}, TypeError, "causal to be True or False, got 'no'"),
    "a mask for causal": (
        {"causal": np.tri(3, dtype=bool)},
        TypeError,
        "causal to be True or False, got an array of (3, 3)",
    ),
    "a number for causal": ({"causal": 2}, TypeError, "causal to be True or False, got 2"),
    "a word for need_weights": ({"need_weights": "no"}, TypeError, "need_weights to be True or"),
    "no number for scale": ({"scale": float("nan")}, ValueError, "scale to be finite, got nan"),
    "truth in a window": ({"window": (True, 1)}, ValueError, "left of a window to be an integer"),
    "no offset": ({"query_offset": None}, TypeError, "an array as query_offset, got None"),
    "an endless offset": ({"query_offset": 2**40}, ValueError, "query_offset of at most 1,073"),
    "words for lengths": ({"key_lengths": "ab"}, TypeError, "an array as key_lengths, got 'ab'"),
    "a word for a mask": ({"mask": "causal"}, TypeError, "an array as mask, got 'causal'"),
    "a number for a key": (DROPPED | {"dropout_rng": 0}, TypeError, "to be one key, such as"),
    "two keys": (DROPPED | {"dropout_rng": jax.random.split(KEY)}, TypeError, "got an array of"),
    "two rates": (DROPPED | {"dropout_rate": np.ones(2)}, TypeError, "dropout_rate in"),
    "a word for across": ({"across": "data"}, TypeError, "across=Across(mesh, axis), got 'data'"),
    "a word for ring": ({"across": Across(ring="no")}, TypeError, "ring to be True, False or None"),
}


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """A user's Python checks no annotations."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def says(error, said):
    return pytest.raises(error, match=f"^expected .*{said.replace('(', '.').replace(')', '.')}")


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_argument_is_told(name):
    arguments, error, said = BAD[name]
    with says(error, said):
        dot_product_attention(*ARRAYS, **arguments)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (None, "an array as query, got None"),
        ("words", "an array as query, got 'words'"),
        (np.array([[["a"]]], object), "an array of numbers as query, got array"),
        (np.ones((2, 5, 4, 8), jnp.float8_e4m3fn), "a query of floats of 16 bits or more"),
    ],
)
def test_what_is_no_query_is_told(query, said):
    with says(TypeError, said):
        dot_product_attention(query, *ARRAYS[1:])


def test_a_flag_and_a_rate_may_be_numpys_and_a_key_of_the_old_kind():
    own = dot_product_attention(*ARRAYS, causal=np.True_, need_weights=False)
    np.testing.assert_array_equal(
        own.context, dot_product_attention(*ARRAYS, causal=True, need_weights=False).context
    )
    for key in (KEY, jax.random.PRNGKey(0)):
        options = {"dropout_rate": np.float32(0.5), "dropout_rng": key}
        weights = dot_product_attention(*ARRAYS, **options).weights
        np.testing.assert_allclose(weights, 1 / 6, rtol=1e-6)  # those before dropout
    dot_product_attention(*ARRAYS, dropout_rate=0, dropout_rng="not needed")


def test_complex_scores_are_not_cut_to_half():
    score = lambda query, key: jnp.ones((5, 5), complex)
    with says(TypeError, "scores of real numbers, got complex64"):
        attend(*[INPUTS[0]] * 3, score=score)
    with says(TypeError, "scores of real numbers, got complex64"):
        masked_softmax(jnp.ones((2, 3), complex))


@pytest.mark.parametrize(
    ("attributes", "error", "said"),
    [
        ({"rotary_max_period": 500.0}, ValueError, "rotary_max_period=500.0, which would"),
        (
            {"rotary": True, "rotary_frequencies": (1.0,) * 4, "rotary_max_period": 500.0},
            ValueError,
            "without rotary_frequencies with rotary_max_period=500.0",
        ),
        ({"rotary": "no"}, TypeError, "rotary to be True or False, got 'no'"),
        ({"sinks": "no"}, TypeError, "sinks to be True or False, got 'no'"),
        ({"output_gate": 1}, TypeError, "output_gate to be True or False, got 1"),
        ({"use_bias": "no"}, TypeError, "use_bias to be True or False, got 'no'"),
        ({"query_key_norm": "rms"}, TypeError, "query_key_norm to be True, False or a class"),
        (
            {"query_key_norm": nn.LayerNorm()},
            TypeError,
            "True, False or a class of norm, got a module LayerNorm; pass the class$",
        ),
    ],
)
def test_an_attribute_that_would_change_nothing_or_is_none_is_told(attributes, error, said):
    with says(error, said):
        MultiHeadAttention(2, **attributes)


def test_a_cache_of_a_wrong_kind_or_size_is_told():
    layer = MultiHeadAttention(2)
    with says(TypeError, "features to be an integer of 1 or above, got 'x'"):
        layer.init_cache("x", (2,), 8)
    with says(TypeError, "a KeyValueCache, such as init_cache makes, got 'x'"):
        layer.init(KEY, INPUTS, cache="x")


def test_axes_of_a_cache_that_are_no_tuple_are_told():
    said = "leading to be a tuple of batch sizes, such as (2,), got 2"
    for make in (
        lambda: MultiHeadAttention(2).init_cache(8, 2, 4),
        lambda: MultiHeadAttention(2).init_cache(8, 2, window=(3, 0)),
        lambda: empty_cache(2, 4, 2, 4, 4),
        lambda: empty_sliding_cache(2, (3, 0), 2, 4, 4),
    ):
        with says(TypeError, said):
            make()
    assert empty_cache((np.int64(3), 2), 4, 2, 4, 4).length.shape == (3, 2)


HEADS, NETWORK = MultiHeadAttention(2), FeedForward(3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EncoderBlock(NETWORK, HEADS), "a layer of attention as attention, got FeedF"),
        (lambda: DecoderBlock(HEADS, NETWORK, NETWORK), "as cross_attention, got FeedForward$"),
        (lambda: EncoderBlock(HEADS, HEADS), "feed_forward, got MultiHeadAttention$"),
        (lambda: EncoderBlock(INPUTS, NETWORK), "got an array of (2, 5, 16)$"),
    ],
)
def test_parts_of_a_block_in_another_order_are_told(make, said):
    with says(TypeError, said):
        make()


OF_TWO = "query_positions and key_positions as arrays of integers, such as those of grid(5, 5), got"


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: masks.causal(5, 5), TypeError, f"{OF_TWO} 5$"),
        (lambda: masks.causal(np.arange(5), 5), TypeError, f"{OF_TWO} 5$"),
        (lambda: masks.window(5, 5, 1), TypeError, f"{OF_TWO} 5$"),
        (lambda: masks.lengths(3, 5), TypeError, "positions as arrays of integers, such as"),
        (lambda: masks.segments(5, 5), ValueError, "an id for every position, got () and ()"),
        (
            lambda: masks.combine([np.tri(2) > 0] * 2),
            TypeError,
            "masks one by one, as combine(a, b), got a list",
        ),
        (
            lambda: masks.any_of((None, np.tri(2) > 0)),
            TypeError,
            "masks one by one, as any_of(a, b), got a tuple",
        ),
        (lambda: masks.from_lengths(3, 5.0), TypeError, "num_keys to be an integer of 0 or above"),
        (lambda: masks.from_query_lengths([3], 5.0), TypeError, "0 or above, got 5.0"),
        (lambda: masks.from_lengths(3, -1), ValueError, "num_keys to be an integer of 0 or above"),
        (
            lambda: sinusoidal(INPUTS, 8),
            TypeError,
            "length to be an integer of 0 or above, got an array of (2, 5, 16)$",
        ),
        (lambda: binary_digits(INPUTS), TypeError, "length to be .*, got an array of (2, 5, 16)$"),
        (
            lambda: jax.jit(lambda length: sinusoidal(length, 8))(3),
            TypeError,
            "got a traced array of ()",
        ),
        (
            lambda: rotary(jnp.ones((2, 5, 8)), np.arange(4)),
            ValueError,
            "positions that broadcast to (2, 5), got (4,)$",
        ),
        (
            lambda: rotary(jnp.ones((5, 8)), jnp.ones((2, 5), int)),
            ValueError,
            "positions that broadcast to (5,), got (2, 5)$",
        ),
        (lambda: rotary(X.astype(int)), TypeError, "a query or key of floats, got int32"),
        (lambda: rotary(X, features=2.0), TypeError, "features to be an integer .*, got 2.0"),
        (
            lambda: rotary(X, frequencies=[1.0, "two", 2.0, 3.0]),
            TypeError,
            "an array as frequencies, got .1.0, 'two', 2.0, 3.0.",
        ),
        (lambda: sinusoidal(5, 8.0), TypeError, "features to be an integer .*, got 8.0"),
        (lambda: fa.scaled_frequencies(8, 2.0, max_period=0), ValueError, "above 0 and finite"),
        (lambda: fa.scaled_frequencies(8, 2.0, trained_length=-5), ValueError, "1 or above, got -"),
        (
            lambda: fa.scaled_frequencies(8, 2.0, trained_length=9, slow=4.0),
            ValueError,
            "slow below fast, got 4.0 and 4.0",
        ),
        (lambda: fa.scaled_frequencies("8", 2.0), TypeError, "features to be an integer"),
        (lambda: fa.scaled_frequencies(8, "2"), TypeError, "factor .* above 0, got '2'"),
        (lambda: binary_digits(9, -1), ValueError, "num_digits to be an integer of 0 or above"),
        (lambda: binary_digits(9, 2.5), TypeError, "num_digits to be an integer .*, got 2.5"),
        (lambda: masks.grid(-1, 3), ValueError, "num_queries to be an integer of 0 or above"),
        (lambda: masks.grid(3, 3.0), TypeError, "num_keys to be an integer .*, got 3.0"),
        (lambda: fa.alibi(2.5), TypeError, "num_heads to be an integer of 1 or above, got 2.5"),
        (lambda: fa.alibi(jnp.array(4)), TypeError, "num_heads to be an .*, got an array of ()"),
        (lambda: masks.causal(np.arange(3), np.arange(4)), ValueError, "got (3,) and (4,)"),
        (
            lambda: masks.window(np.arange(3), np.arange(4), 1),
            ValueError,
            "query_positions (..., q, 1) and key_positions (..., 1, k), .*, got (3,) and (4,)",
        ),
        (
            lambda: masks.segments(np.ones((2, 5), int), np.ones((3, 5), int)),
            ValueError,
            "batch axes that broadcast, got (2, 5) and (3, 5)",
        ),
        (
            lambda: masks.combine(np.ones((2, 3), bool), np.ones((4, 5), bool)),
            ValueError,
            "masks whose shapes broadcast, got (2, 3) and (4, 5)",
        ),
    ],
)
def test_what_is_no_position_length_or_mask_is_told(make, error, said):
    with says(error, said):
        make()


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: fa.location(X, kernel=jnp.ones((7, 5))), ValueError, "of 8 rows .*, got (7, 5)"),
        (
            lambda: fa.bilinear(X, X, kernel=jnp.ones((8, 8)), bias=jnp.ones(8)),
            ValueError,
            "a bias of shape () .*, got (8,)",
        ),
        (lambda: fa.dot(X, X[0, 0]), ValueError, "query (..., q, d) and key (..., k, d), got"),
        (lambda: fa.dot("word", X), TypeError, "an array as query, got 'word'"),
        (lambda: fa.scaled_dot("word", X), TypeError, "an array as query, got 'word'"),
        (lambda: fa.cosine(X, "word"), TypeError, "an array as key, got 'word'"),
        (lambda: fa.monotonic_hard(X[0, 0]), ValueError, "scores (..., q, k), got (8,)"),
        (lambda: fa.monotonic_expectation(X[0, 0]), ValueError, "scores (..., q, k), got (8,)"),
        (lambda: masked_softmax(3.0), ValueError, "scores (..., k), got one number"),
        (lambda: masked_softmax("abc"), TypeError, "an array as scores, got 'abc'"),
        (lambda: with_sink("word")(X), TypeError, "an array as sink, got 'word'"),
        (lambda: with_sink(jnp.ones(3))(X), ValueError, "a sink that .* (2, 5, 1), got (3,)"),
        (
            lambda: jax.jit(top_k)(X, k=2),
            TypeError,
            "k to be an integer of 1 or above, got a traced array of ()",
        ),
        (lambda: fa.diversity_penalty(jnp.ones(5)), ValueError, "(..., hops, t), got (5,)"),
        (lambda: made(fa.AttentionPooling(), X[0, 0]), ValueError, "(..., t, d), got (8,)"),
        (
            lambda: made(fa.StructuredSelfAttention(3, 2), X[0, 0]),
            ValueError,
            "(..., t, d), got (8,)",
        ),
        (lambda: made(fa.SelfAttention(3, 2), X[0, 0]), ValueError, "(..., t, d), got (8,)"),
        (lambda: FeedForward(8, "gelu"), TypeError, "activation, such as nn.gelu, got 'gelu'"),
        (lambda: MultiHeadAttention(2, kernel_init="xavier"), TypeError, "got 'xavier'"),
        (lambda: fa.AdditiveScore(8, kernel_init="xavier"), TypeError, "got 'xavier'"),
        (lambda: fa.RelativeBias(2, embedding_init="normal"), TypeError, "as embedding_init, such"),
        (
            lambda: made(MultiHeadAttention(2, dtype="float3"), X),
            TypeError,
            "dtype to be one of floats, .* or None, got 'float3'",
        ),
        (lambda: made(FeedForward(8, dtype=int), X), TypeError, "dtype to be one of floats"),
        (lambda: EncoderBlock(HEADS, NETWORK, norm="rms"), TypeError, "norm .*, got 'rms'"),
        (
            lambda: EncoderBlock(HEADS, NETWORK, epsilon="x"),
            TypeError,
            "epsilon to be a number, got 'x'",
        ),
        (
            lambda: EncoderBlock(fa.SelfAttention(4, 8), NETWORK),
            TypeError,
            "takes query_lengths as attention, such as MultiHeadAttention(8), got SelfAttention",
        ),
        (
            lambda: EncoderBlock(HEADS, nn.Dense(8)),
            TypeError,
            "takes train as feed_forward, such as FeedForward(256), got Dense",
        ),
        (
            lambda: attend(X, X, X, across=Across("mesh")),
            TypeError,
            "mesh of Across to be a jax.sharding.Mesh or None, got 'mesh'",
        ),
        (
            lambda: multi_head_params_from_torch({}, 2.0),
            TypeError,
            "num_heads to be an integer of 1 or above, got 2.0",
        ),
        (lambda: fa.Lens(keep_scores="yes"), TypeError, "keep_scores to be True or False"),
        (
            lambda: fa.Lens(change_weights=lambda weights: weights),
            TypeError,
            "change_weights function (name, array) -> array, got one that does not take two",
        ),
        (
            lambda: attend(np.array([["a", "b"]]), X, X),
            TypeError,
            "an array of numbers as query, got array",
        ),
        (
            lambda: jax.jit(lambda left: attend(X, X, X, window=(left, 0)))(3),
            ValueError,
            "got a traced array of (); pass a mask function",
        ),
        (
            lambda: attend(X, X, X, bias=np.ones((5, 5), bool)),
            TypeError,
            "a bias of floats, got bool; a boolean mask goes in mask=",
        ),
        (
            lambda: attend(X, X, X, score=fa.additive),
            TypeError,
            "got additive, which needs query_kernel and key_kernel and vector; give them",
        ),
        (
            lambda: fa.form_of((2, 5, 2, 4), X, X),
            TypeError,
            "an array as query, got (2, 5, 2, 4); of a shape pass jax.ShapeDtypeStruct",
        ),
    ],
)
def test_what_is_no_score_weight_or_part_is_told(make, error, said):
    with says(error, said):
        make()


def made(layer, inputs):
    return layer.init(KEY, inputs)


def test_a_length_may_be_the_number_that_an_array_holds():
    lengths = jnp.array([1, 3])
    for length in (lengths.max(), np.array(3), np.int64(3)):
        assert masks.from_lengths(lengths, length).shape == (2, 1, 3)
        assert sinusoidal(length, 8).shape == (3, 8)
        assert binary_digits(length).shape == (3, 2)
    own = rotary(jnp.ones((2, 5, 8)), [[1], [2]])
    expected = rotary(jnp.ones((2, 5, 8)), jnp.array([[1] * 5, [2] * 5]))
    np.testing.assert_array_equal(own, expected)


def needs_two(scores, temperature, mask=None):
    return masked_softmax(scores / temperature, mask)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"score": INPUTS}, "such as those of flax_attn.attention, got an array of (2, 5, 16)$"),
        (
            {"normalizer": top_k},
            "a normalizer of scores and mask alone, got top_k, which needs k; "
            "give them by functools.partial$",
        ),
        (
            {"normalizer": needs_two},
            "got needs_two, which needs temperature; give them by functools.partial$",
        ),
    ],
)
def test_what_is_no_score_or_normalizer_is_told_in_a_line(options, said):
    with says(TypeError, said):
        attend(INPUTS, INPUTS, INPUTS, **options)


@functools.wraps(top_k)
def all_five(scores, mask=None):
    return top_k(scores, mask, k=5)


@pytest.mark.parametrize(
    "normalizer",
    [
        functools.partial(top_k, k=5),
        lambda scores, mask: masked_softmax(scores, mask),
        all_five,
    ],
)
def test_a_normalizer_with_all_it_needs_is_one(normalizer):
    weights = attend(INPUTS, INPUTS, INPUTS, normalizer=normalizer).weights
    np.testing.assert_allclose(weights, 1 / 5, rtol=1e-6)


def test_a_sink_takes_only_a_normalizer():
    with says(TypeError, "a function as normalizer, such as .* got 'softmax'"):
        with_sink(0.0, "softmax")


def test_a_layer_for_its_arrays_is_told():
    with says(TypeError, "arrays by name as state, such as layer.state_dict(), got a Dense$"):
        multi_head_params_from_torch(nn.Dense(3), 2)


def test_factors_of_another_number_than_heads_are_told():
    factors, others = {"": jnp.ones(3)}, {"": jnp.ones((2, 5, 2, 8))}
    for lens in (heads.scaled(factors), heads.patched(others, factors)):
        with lens, says(ValueError, "2 numbers for '', one a head, got (3,)"):
            MultiHeadAttention(2).init(KEY, INPUTS)
    with heads.scaled({"": [1.0, 0.0]}):  # a list of numbers is as good
        MultiHeadAttention(2).init(KEY, INPUTS)


@pytest.mark.parametrize("period", [0.0, -1.0, float("nan"), float("inf")])
def test_a_period_is_above_0_and_finite(period):
    with says(ValueError, "max_period above 0 and finite"):
        rotary(jnp.ones((3, 4)), max_period=period)


def test_a_window_beside_a_reach_and_a_number_for_a_key_are_told():
    with says(TypeError, "no window in LocalAttention, whose reach is its window"):
        LocalAttention(2).init(KEY, INPUTS, INPUTS, window=(1, 1))
    with says(TypeError, "rng to be one key, such as jax.random.key.0., got 0"):
        sampled_hard(jnp.ones((2, 3)), rng=0)


@pytest.mark.parametrize("layer", [MultiHeadAttention(2), HardAttention()])
def test_a_word_for_training_is_told(layer):
    with says(TypeError, "train to be True or False, got 'no'"):
        layer.init(KEY, INPUTS, INPUTS, train="no")


def test_a_half_is_no_head_and_a_list_no_weights_by_block():
    with heads.cut({"": [0.5]}), says(ValueError, "heads of  from 0 to 1, got 0.5"):
        MultiHeadAttention(2).init(KEY, INPUTS)
    said = "heads by the paths of their layers, such as {'blocks_1/attention': ...}, got a list$"
    for make in (
        lambda: heads.cut([0]),
        lambda: heads.scaled([1.0]),
        lambda: heads.patched({}, [1.0]),
        lambda: heads.patched([INPUTS], {}),
    ):
        with says(TypeError, said):
            make()
    with says(TypeError, "weights by block, got a list"):
        heads.rollout([np.ones((1, 2, 2))])
