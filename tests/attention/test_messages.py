"""What people bring from other libraries, or forget, is answered in one line with what to do."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn
import flax_attn.attention as fa
from tests.attention.compiled import normal

X = normal(0, 2, 5, 4)
HEADS = normal(1, 2, 5, 2, 4)
KEY = jax.random.key(0)
REAL = np.arange(5) < np.array([[5], [3]])


def shaped(layer, *arrays, **options):
    """Traces the call of a layer, and computes nothing."""
    arrays = tuple(jax.tree.map(jnp.asarray, arrays))
    return jax.eval_shape(lambda: layer.init_with_output(KEY, *arrays, **options))


def trained(layer, *arrays):
    """Traces a call in training without a random key for it."""
    arrays = tuple(map(jnp.asarray, arrays))
    variables = jax.eval_shape(lambda: layer.init(KEY, *arrays))
    call = lambda variables: layer.apply(variables, *arrays, train=True)
    return jax.eval_shape(call, variables)


def told(error, *words):
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert all(word in line for word in words), line


@pytest.mark.parametrize("name", ["mask", "bias"])
def test_a_function_of_other_arguments_than_two_positions_is_told(name):
    of_four = lambda row, head, query, key: query >= key
    with pytest.raises(TypeError) as error:
        fa.dot_product_attention(*[HEADS] * 3, **{name: of_four})
    told(error, f"a {name} function of the positions of queries", "does not take two arguments")


def test_functions_are_no_masks_to_combine():
    with pytest.raises(TypeError) as error:
        fa.masks.combine.__wrapped__(fa.masks.causal, fa.masks.causal)
    told(error, "masks as arrays in combine, got a function", "mask=lambda query, key: combine(")


@pytest.mark.parametrize("rotary", [False, True])
def test_a_cache_of_another_batch_is_told(rotary):
    layer = fa.MultiHeadAttention(2, rotary=rotary)
    said = r"the batch axes \(3,\) of the cache, got \(2, 5, 4\)"
    with pytest.raises(ValueError, match=said):
        shaped(layer, X, layer.init_cache(4, (3,), 8), method="decode")


@pytest.mark.parametrize(
    "call",
    [
        lambda: fa.attend(X, X, X, normalizer=jax.nn.softmax),
        lambda: fa.attend(X, X, X, normalizer=jax.nn.softmax, need_weights=False),
        lambda: shaped(fa.Attention(normalizer=jax.nn.softmax), X, X),
        lambda: shaped(fa.SelfAttention(3, 3, normalizer=jax.nn.softmax), X),
        lambda: shaped(fa.MultiHeadAttention(2, normalizer=jax.nn.softmax), X),
        lambda: fa.form_of(X, X, X, normalizer=jax.nn.softmax),
        lambda: fa.Lens(normalizer=jax.nn.softmax),
        lambda: fa.linen_attention_fn(normalizer=jax.nn.softmax),
    ],
)
def test_a_softmax_of_another_library_is_told_what_a_normalizer_takes(call):
    with pytest.raises(TypeError) as error:
        call()
    told(error, "takes (scores, mask=mask), got softmax", "leave normalizer out", "masked_softmax")


def test_a_normalizer_of_ones_own_may_take_any_arguments():
    weights = lambda scores, **options: fa.masked_softmax(scores, **options)
    np.testing.assert_array_equal(
        fa.attend(X, X, X, normalizer=weights).weights, fa.attend(X, X, X).weights
    )


def test_attend_takes_the_limits_of_dot_product_attention():
    segments = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    limits = {"causal": True, "window": (2, 0), "key_lengths": np.array([5, 3])}
    limits |= {"query_segments": segments, "key_segments": segments}
    in_heads, weights = fa.dot_product_attention(*[X[:, :, None]] * 3, **limits)
    attended = fa.attend(X, X, X, **limits)
    np.testing.assert_allclose(attended.context, in_heads[:, :, 0], atol=1e-6)
    np.testing.assert_allclose(attended.weights, weights[:, 0], atol=1e-6)
    lengths = {"query_offset": 1, "causal": True, "prefix_lengths": 2, "query_lengths": 4}
    in_heads, _ = fa.dot_product_attention(*[X[:, :, None]] * 3, **lengths)
    np.testing.assert_allclose(fa.attend(X, X, X, **lengths).context, in_heads[:, :, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fa.attend(X, X, X, is_causal=True), ("of attend", "is causal")),
        (lambda: fa.attend(X, X, X, lengths=5), ("of attend", "query_lengths and key_lengths")),
        (lambda: fa.attend(X, X, X, implementation="xla"), ("of attend", "form_of tells")),
        (lambda: fa.dot_product_attention(*[HEADS] * 3, is_causal=True), ("here it is causal",)),
        (lambda: fa.form_of(*[HEADS] * 3, is_causal=True), ("of form_of", "is causal")),
        (lambda: fa.dot_product_attention(*[HEADS] * 3, dropout_p=0.1), ("is dropout_rate",)),
        (lambda: fa.MultiHeadAttention(2, qkv_features=8), ("MultiHeadAttention", "key_features")),
        (lambda: fa.MultiHeadAttention(2, embed_dim=8), ("'embed_dim'", "key_features")),
        (lambda: shaped(fa.MultiHeadAttention(2), X, deterministic=True), ("train, with the opp",)),
        (lambda: shaped(fa.MultiHeadAttention(2), X, attn_mask=REAL), ("is mask, True where",)),
        (lambda: shaped(fa.MultiHeadAttention(2), X, attention_mask=REAL), ("is mask, True",)),
        (lambda: shaped(fa.MultiHeadAttention(2), X, training=True), ("here it is train",)),
        (lambda: fa.MultiHeadAttention(2, batch_first=True), ("the batch comes first",)),
        (lambda: fa.dot_product_attention(*[HEADS] * 3, enable_gqa=True), ("fewer heads",)),
        (lambda: shaped(fa.MultiHeadAttention(2), X, key_padding_mask=REAL), ("key_lengths",)),
        (lambda: shaped(fa.Attention(), X, X, deterministic=True), ("of Attention", "train")),
        (lambda: shaped(fa.LocalAttention(2), X, X, is_causal=True), ("causal",)),
        (
            lambda: shaped(
                fa.EncoderBlock(fa.MultiHeadAttention(2), fa.FeedForward(5)), X, deterministic=True
            ),
            ("of EncoderBlock", "train"),
        ),
    ],
)
def test_a_name_of_another_library_is_answered_with_the_one_here(call, words):
    with pytest.raises(TypeError) as error:
        call()
    told(error, "unknown argument", *words)


def test_another_unknown_name_is_pythons_own_error_and_signatures_stay():
    for call in (
        lambda: fa.attend(X, X, X, cause=True),
        lambda: fa.MultiHeadAttention(2, feature=3),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
    for function in (fa.attend, fa.dot_product_attention, fa.MultiHeadAttention):
        kinds = {one.kind for one in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_a_name_of_another_library_is_no_name_here():
    from flax_attn.attention.checks import ELSEWHERE
    from flax_attn.attention.visibility import Limits

    names = set(Limits.__annotations__)
    for part in (fa.attend, fa.dot_product_attention, fa.MultiHeadAttention, fa.EncoderBlock):
        names |= inspect.signature(part).parameters.keys()
    assert not names & ELSEWHERE.keys()


@pytest.mark.parametrize(
    ("layer", "arrays", "stream"),
    [
        (fa.MultiHeadAttention(2, dropout_rate=0.5), (X,), "dropout"),
        (fa.SelfAttention(3, 3, dropout_rate=0.5), (X,), "dropout"),
        (fa.FeedForward(3, dropout_rate=0.5), (X,), "dropout"),
        (
            fa.EncoderBlock(fa.MultiHeadAttention(2), fa.FeedForward(3), dropout_rate=0.5),
            (X,),
            "dropout",
        ),
        (fa.HardAttention(), (X, X), "sample"),
    ],
)
def test_training_without_a_random_key_says_where_it_goes(layer, arrays, stream):
    with pytest.raises(ValueError, match="got none") as error:
        trained(layer, *arrays)
    told(error, f'rngs={{"{stream}": key}}', "train=False")


def test_a_mask_of_two_axes_is_of_queries_and_keys_where_it_could_be_of_rows_and_keys():
    x, mask = np.random.default_rng(0).normal(size=(3, 3, 4)), np.tri(3, dtype=bool)
    weights = fa.attend(x, x, x, mask=mask).weights
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(mask, (3, 3, 3)))
    assert "one of two axes is `(q, k)`" in " ".join(fa.attend.__doc__.split())


def test_a_mask_of_keys_is_told_the_axes_it_needs():
    with pytest.raises(ValueError, match="broadcasts to the weights") as error:
        fa.attend(X, X, X, mask=REAL)
    told(error, "got (2, 5); a mask of keys is mask[:, None, :], or key_lengths=")
    with pytest.raises(ValueError, match="broadcasts to the weights") as error:
        fa.dot_product_attention(*[HEADS] * 3, mask=REAL)
    told(error, "mask[:, None, None, :], or key_lengths=")
    with pytest.raises(ValueError, match="broadcasts to the weights") as error:
        fa.attend(X, X, X, mask=np.ones((3, 5), bool))
    assert "key_lengths" not in str(error.value)
    with pytest.raises(ValueError, match=r"broadcasts to the weights \(2, 5\), got \(3, 5\)"):
        fa.masked_softmax.__wrapped__(jnp.ones((2, 5)), jnp.ones((3, 5), bool))
    with pytest.raises(ValueError, match=r"broadcasts to the weights \(2, 5\), got \(3, 5\)"):
        fa.sparsemax.__wrapped__(jnp.ones((2, 5)), jnp.ones((3, 5), bool))
    by_mask = fa.attend(X, X, X, mask=REAL[:, None, :])
    by_lengths = fa.attend(X, X, X, key_lengths=REAL.sum(axis=1))
    np.testing.assert_array_equal(by_mask.context, by_lengths.context)


def test_names_of_attention_are_pointed_to_their_package():
    for name in ("attend", "MultiHeadAttention"):
        with pytest.raises(AttributeError, match=f"'{name}'.* are in flax_attn.attention$"):
            getattr(flax_attn, name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: fa.additive.__wrapped__(
                X, X, query_kernel=X[0].T, key_kernel=X[0].T, vector=np.ones((5, 1))
            ),
            ("expected a vector (h,)",),
        ),
        (lambda: fa.masks.both.__wrapped__(REAL, None), ("combine(a, b) leaves None out",)),
        (lambda: fa.across_queries.__wrapped__(None), ("a function as normalizer",)),
        (
            lambda: shaped(
                fa.EncoderBlock(fa.MultiHeadAttention(2, out_features=2), fa.FeedForward(5)), X
            ),
            ("expected attention of a block", "leave out_features out"),
        ),
        (
            lambda: shaped(fa.InputAttentionCell(3, 1), np.ones((2, 4)), np.ones((2, 5))),
            ("a carry of shape (2, 3)", "got (2, 4)"),
        ),
        (
            lambda: fa.dot_product_attention(HEADS, *[np.ones((2, 5, 3, 4), np.float32)] * 2),
            ("(..., length, heads, features)",),
        ),
    ],
)
def test_what_does_not_fit_is_told_before_it_is_computed(call, words):
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    told(error, "expected", *words)


def test_a_result_that_is_taken_for_an_array_says_what_it_holds():
    result = fa.attend(X, X, X)
    with pytest.raises(AttributeError, match=r"'ndim'; take result\.context") as error:
        _ = result.ndim  # pyright: ignore
    told(error, "linen_attention_fn")
    assert not hasattr(result, "__array__")
    with pytest.raises(ValueError, match="got a result, Attended; pass its weights"):
        flax_attn.show(result)  # pyright: ignore
