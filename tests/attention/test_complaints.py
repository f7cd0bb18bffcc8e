"""What users of other attention libraries complain of does not happen here: a test, or a few, for
each complaint.
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.analysis import drawing, shapes
from flax_attn.attention import masks
from flax_attn.attention.forms import cudnn
from tests.attention.compiled import apply, init, normal, run

B, Q, K, D = 2, 5, 7, 6
X = normal(0, B, K, D)
NEAR = np.abs(np.arange(Q)[:, None] - np.arange(K)) <= 2


@pytest.fixture(params=["whole", "blocks", "fused"])
def path(request, monkeypatch):
    """Returns options of `dot_product_attention` for each of its forms.

    The fused form is cuDNN's, with its terms computed by XLA on every machine.
    """
    if request.param == "fused":
        in_terms = cudnn.in_terms
        by_xla = lambda *arrays, **terms: in_terms(*arrays, **(terms | {"implementation": "xla"}))
        monkeypatch.setattr(cudnn, "in_terms", by_xla)
        monkeypatch.setattr(cudnn, "why_not", cudnn._why_not_terms)
    return {"whole": {}, "blocks": {"chunk_size": 2}, "fused": {"need_weights": False}}[
        request.param
    ]


@functools.cache
def variables():
    """Parameters of `MultiHeadAttention(3)` for X, which are those of linen too."""
    return init(fa.MultiHeadAttention(3), X)


def made():
    return [normal(seed, B, length, 3, 4) for seed, length in enumerate((Q, K, K))]


def used(num_queries=Q, num_keys=K, attend=fa.dot_product_attention, **options):
    """The weights `(q, k)` that the values are summed with, where all scores are 0: the value of
    key k is the k-th unit vector.
    """
    zeros = [np.zeros((1, length, 1, num_keys), np.float32) for length in (num_queries, num_keys)]
    context = attend(*zeros, np.eye(num_keys, dtype=np.float32)[None, :, None], **options).context
    return np.asarray(context)[0, :, 0]


def shared(allowed, num_queries=Q, num_keys=K):
    """Equal weights `(q, k)` for the keys that each query may attend, and 0 for a query that may
    attend to none.
    """
    rows = [[float(allowed(q, k)) for k in range(num_keys)] for q in range(num_queries)]
    return np.array([[share / max(sum(row), 1) for share in row] for row in rows])


def outcome(arrays, **options):
    """The context, and the gradients of a loss in it."""

    def loss(*arrays):
        context = fa.dot_product_attention(*arrays, **options).context
        return jnp.sum(jnp.sin(context)), context

    gradients, context = run(jax.grad(loss, argnums=(0, 1, 2), has_aux=True), *arrays)
    return context, gradients


# 1. Rows with nothing to attend.

NOT_QUERY_2 = np.broadcast_to(np.arange(Q)[:, None] != 2, (Q, K))
EMPTY = {
    "mask": ({"mask": NOT_QUERY_2}, lambda q, k: q != 2),
    "bias": ({"bias": np.where(NOT_QUERY_2, 0.0, -np.inf)}, lambda q, k: q != 2),
    "no keys": ({"key_lengths": np.array([0])}, lambda q, k: False),
    "no queries": ({"query_lengths": np.array([3])}, lambda q, k: q < 3),
    "before the first key": ({"causal": True, "query_offset": -2}, lambda q, k: k <= q - 2),
    "window past the last key": (
        {"window": (1, 1), "query_offset": 5},
        lambda q, k: abs(q + 5 - k) <= 1,
    ),
}


@pytest.mark.parametrize("way", EMPTY)
def test_a_query_with_nothing_to_attend_gets_0_on_every_path(way, path):
    """pytorch 41508, d2l 2423, and Keras, which answers otherwise when asked for weights."""
    options, allowed = EMPTY[way]
    expected = shared(allowed)
    assert (expected.sum(axis=-1) == 0).any()
    np.testing.assert_allclose(used(**options, **path), expected, atol=1e-6)


def test_a_query_with_nothing_to_attend_has_finite_gradients_on_every_path(path):
    """pytorch 41508."""
    context, gradients = outcome(made(), mask=NOT_QUERY_2, key_lengths=np.array([0, 5]), **path)
    chex.assert_tree_all_finite((context, gradients))
    np.testing.assert_array_equal(gradients[0][0], 0)
    np.testing.assert_array_equal(gradients[0][1, 2], 0)
    assert np.abs(gradients[0][1, 1]).max() > 1e-3


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"chunk_size": 2}])
def test_a_layer_gives_an_empty_row_0_whether_or_not_its_weights_are_asked_for(options):
    """Keras: the mean of the values, or 0 with the weights; PyTorch: NaN with the weights, or 0."""
    layer = fa.MultiHeadAttention(3, chunk_size=options.get("chunk_size"))
    attended = apply(
        layer,
        variables(),
        X,
        mask=np.arange(K)[:, None] != 4,
        need_weights=options.get("need_weights", True),
    )
    heads = attended.context - np.asarray(variables()["params"]["out"]["bias"])
    np.testing.assert_array_equal(heads[:, 4], 0)
    assert (np.abs(heads).max(axis=-1) > 0).sum() == B * (K - 1)
    if attended.weights is not None:
        np.testing.assert_array_equal(attended.weights[:, :, 4], 0)


# 2. NaN in padding.

PADDED = {"lengths": {"key_lengths": np.array([5, 5])}, "mask": {"mask": NEAR & (np.arange(K) < 5)}}


@pytest.mark.parametrize("way", PADDED)
def test_a_nan_in_padding_reaches_no_value_and_no_gradient(way, path):
    """pytorch 101967."""
    query, key, value = made()
    mask = PADDED[way].get("mask", np.ones((1, K), bool))
    expected = run(
        fa.dot_product_attention, query, key[:, :5], value[:, :5], mask=mask[:, :5]
    ).context
    key[:, 5:] = value[:, 5:] = np.nan
    context, gradients = outcome((query, key, value), **PADDED[way], **path)
    np.testing.assert_allclose(context, expected, atol=1e-6)
    chex.assert_tree_all_finite(gradients)
    for gradient in gradients[1:]:
        np.testing.assert_array_equal(gradient[:, 5:], 0)


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_nan_in_padding_reaches_no_parameter(chunk_size):
    """pytorch 101967, one product earlier: 0 times NaN in the gradients of the projections."""
    layer, real = (
        fa.MultiHeadAttention(3, chunk_size=chunk_size),
        (np.arange(K) < np.array([[7], [4]]))[..., None],
    )
    context = lambda variables, x: layer.apply(variables, x, query_lengths=np.array([7, 4])).context
    gradient = jax.jit(
        jax.grad(lambda variables, x: jnp.sum(jnp.where(real, context(variables, x), 0) ** 2))
    )
    padded, expected = (
        gradient(variables(), np.where(real, X, np.float32(padding))) for padding in (np.nan, 0.0)
    )
    chex.assert_tree_all_finite(padded)
    chex.assert_trees_all_close(padded, expected, atol=1e-5)


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_nan_in_padding_stays_there_in_linen_with_our_attention(chunk_size):
    """pytorch 101967, still so with linen's own."""
    real = np.arange(K) < 4
    mask = np.broadcast_to(np.float32(real), (B, 1, K, K))
    dirty = np.where(real[:, None], X, np.float32(np.nan))
    layer = nn.MultiHeadDotProductAttention(
        3, attention_fn=fa.linen_attention_fn(chunk_size=chunk_size)
    )
    assert np.isnan(
        apply(nn.MultiHeadDotProductAttention(3), variables(), X, dirty, mask=mask)
    ).all()
    np.testing.assert_allclose(
        apply(layer, variables(), X, dirty, mask=mask),
        apply(layer, variables(), X, X[:, :4]),
        atol=1e-6,
    )


# 3. What a mask means.


def test_true_means_that_a_key_may_be_attended(path):
    """x-transformers 164, TransformerEngine 614."""
    np.testing.assert_allclose(
        used(mask=np.array([1, 0, 1, 1, 0, 0, 1], bool), **path),
        np.tile([0.25, 0, 0.25, 0.25, 0, 0, 0.25], (Q, 1)),
    )


LAYERS = {
    "attend": lambda mask: fa.attend(X, X, X, mask=mask),
    "attend in blocks": lambda mask: fa.attend(X, X, X, mask=mask, chunk_size=2),
    "attend in blocks, a function": lambda mask: fa.attend(
        X, X, X, mask=lambda q, k: mask[q, k], chunk_size=2
    ),
    "dot_product_attention": lambda mask: fa.dot_product_attention(*made()[1:2] * 3, mask=mask),
    "dot_product_attention, causal": lambda mask: fa.dot_product_attention(
        *made()[1:2] * 3, mask=mask, causal=True, need_weights=False
    ),
    "MultiHeadAttention": lambda mask: init(fa.MultiHeadAttention(2), X, mask=mask),
    "Attention": lambda mask: init(fa.Attention(), X, X, mask=mask),
    "SelfAttention": lambda mask: init(fa.SelfAttention(3, 4), X, mask=mask),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_a_mask_of_numbers_is_refused_with_the_way_out(name, dtype):
    """linen takes an additive mask without a word, and attends to exactly the masked keys."""
    allowed = np.tri(K, dtype=bool)
    jax.eval_shape(LAYERS[name], allowed)
    with pytest.raises(
        TypeError,
        match=r"boolean mask, True where a key may be attended, got .*; "
        r"an additive mask goes in bias=",
    ):
        jax.eval_shape(LAYERS[name], np.where(allowed, 0, -10_000).astype(dtype))


@pytest.mark.parametrize("masked", [-jnp.inf, -1e30])
def test_an_additive_mask_masks_as_a_bias(masked, path):
    allowed = np.array([1, 1, 0, 0, 1, 0, 1], bool)
    np.testing.assert_allclose(
        used(bias=np.where(allowed, 0.0, masked), **path),
        shared(lambda q, k: allowed[k]),
        atol=1e-6,
    )


def test_linens_masks_of_zeros_and_ones_mean_in_linen_what_they_meant():
    layer = nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn())
    ones = nn.make_causal_mask(X[..., 0])
    assert ones.dtype == jnp.float32
    _, sown = run(
        lambda *args: layer.apply(*args, mask=ones, sow_weights=True, mutable=["intermediates"]),
        variables(),
        X,
    )
    np.testing.assert_array_equal(
        sown["intermediates"]["attention_weights"][0] > 0, np.broadcast_to(np.tri(K), (B, 3, K, K))
    )


@pytest.mark.parametrize("masked", [-jnp.inf, -1e9])
def test_an_additive_mask_given_to_linen_never_turns_into_its_opposite(masked):
    """An error with the way out; under `jit`, where numbers are not known, what it masks stays
    masked.
    """
    layer = nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn())
    additive = jnp.asarray(np.where(np.tri(K) > 0, 0.0, masked)[None, None], jnp.float32)
    sown = lambda mask: layer.apply(
        variables(), jnp.asarray(X), mask=mask, sow_weights=True, mutable=["intermediates"]
    )[1]
    with pytest.raises(
        ValueError,
        match=r"zeros and ones, 1 where a key may be attended, got .* "
        r"bias",
    ):
        jax.eval_shape(lambda: sown(additive))
    weights = run(sown, additive)["intermediates"]["attention_weights"][0]
    assert not (weights[..., np.tri(K) == 0] > 0).any()


# 4. The weights.


def test_the_fast_paths_give_the_context_that_the_weights_belong_to(path):
    """flax 4744, pytorch 119811: to look at the weights is to ask for them, and changes nothing
    else.
    """
    query, key, value = made()
    fast, (context, weights) = (
        run(fa.dot_product_attention, query, key, value, **options) for options in (path, {})
    )
    np.testing.assert_allclose(fast.context, context, atol=1e-6)
    np.testing.assert_allclose(
        np.einsum("bhqk,bkhe->bqhe", weights, value), fast.context, atol=1e-6
    )


def test_weights_of_chosen_queries_can_be_had_beside_the_blocks():
    """flax 4744, for a sequence whose weights are too many to hold."""
    (_, key, value), rows = made(), np.array([1, 4])
    in_blocks, whole = (
        run(fa.dot_product_attention, key, key, value, causal=True, chunk_size=size)
        for size in (2, None)
    )
    context, weights = run(
        fa.dot_product_attention, key[:, rows], key, value, mask=np.arange(K) <= rows[:, None]
    )
    np.testing.assert_allclose(context, in_blocks.context[:, rows], atol=1e-6)
    np.testing.assert_allclose(weights, whole.weights[:, :, rows], atol=1e-6)


def test_weights_that_are_not_to_be_had_are_none_or_an_error_never_something_else():
    """flax 4744: linen sows nothing with `attention_fn=jax.nn.dot_product_attention`, and says
    nothing.
    """
    assert (
        run(fa.attend, X, X, X, chunk_size=2).weights
        is run(fa.attend, X, X, X, need_weights=False).weights
        is None
    )
    layer = nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn(chunk_size=2))
    with pytest.raises(ValueError, match="expected weights to sow, but chunk_size leaves none"):
        apply(layer, variables(), X, sow_weights=True, mutable=["intermediates"])


def test_each_head_has_its_own_weights_not_their_mean():
    """pytorch 34537."""
    # q k = log 3 or 0
    query, key = (
        np.eye(2)[None, None],
        np.log(3) * np.broadcast_to(np.eye(2)[:, None], (1, 2, 2, 2)),
    )
    weights = run(fa.dot_product_attention, query, key, key, scale=1.0).weights
    np.testing.assert_allclose(weights, [[[[0.75, 0.25]], [[0.25, 0.75]]]], atol=1e-6)


def test_the_weights_have_no_dropout_in_them():
    """pytorch 42929."""
    train = apply(
        fa.MultiHeadAttention(3, dropout_rate=0.5),
        variables(),
        X,
        train=True,
        rngs={"dropout": jax.random.key(3)},
    )
    np.testing.assert_allclose(train.weights.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_array_equal(
        train.weights, apply(fa.MultiHeadAttention(3), variables(), X).weights
    )


# 5. Dropout.

DROPPING = {
    "multi-head": lambda rate: fa.MultiHeadAttention(3, dropout_rate=rate),
    "multi-head in blocks": lambda rate: fa.MultiHeadAttention(3, dropout_rate=rate, chunk_size=2),
    "self-attention": lambda rate: fa.SelfAttention(5, 4, dropout_rate=rate),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_is_off_at_evaluation_and_on_in_training(name):
    """pytorch 124464."""
    layer, plain, rngs = DROPPING[name](0.5), DROPPING[name](0.0), {"dropout": jax.random.key(4)}
    parameters = init(layer, X)
    expected = apply(plain, parameters, X)
    chex.assert_trees_all_equal(apply(layer, parameters, X), expected)
    chex.assert_trees_all_equal(apply(layer, parameters, X, rngs=rngs), expected)
    assert (
        np.abs(apply(layer, parameters, X, train=True, rngs=rngs).context - expected.context).max()
        > 0.1
    )


def test_dropout_is_never_silently_off(path):
    """`attention_fn=jax.nn.dot_product_attention` in linen."""
    weights = used(
        40,
        50,
        functools.partial(run, fa.dot_product_attention),
        dropout_rate=0.5,
        dropout_rng=jax.random.key(5),
        **path,
    )
    np.testing.assert_allclose(np.unique(np.round(weights, 5)), [0, 2 / 50])
    assert abs((weights == 0).mean() - 0.5) < 0.05
    with pytest.raises(ValueError, match="expected dropout_rng"):
        used(dropout_rate=0.5, **path)


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_dropout_of_linen_is_on_in_training_alone_with_our_attention(chunk_size):
    """`attention_fn=jax.nn.dot_product_attention` in linen, where it is off."""
    layer, plain = (
        nn.MultiHeadDotProductAttention(
            3, dropout_rate=rate, attention_fn=fa.linen_attention_fn(chunk_size=chunk_size)
        )
        for rate in (0.5, 0.0)
    )
    rngs = {"dropout": jax.random.key(6)}
    expected = apply(plain, variables(), X)
    chex.assert_trees_all_equal(
        apply(layer, variables(), X, deterministic=True, rngs=rngs), expected
    )
    assert (
        np.abs(apply(layer, variables(), X, deterministic=False, rngs=rngs) - expected).max() > 0.1
    )


# 6. Causality, lengths and windows.

CONSTRAINTS = {
    "causal": ({"causal": True}, lambda q, k: k <= q),
    "lengths of keys alone": ({"key_lengths": np.array([4])}, lambda q, k: k < 4),
    "lengths of queries alone": ({"query_lengths": np.array([3])}, lambda q, k: q < 3),
    "window alone": ({"window": (1, 2)}, lambda q, k: q - 1 <= k <= q + 2),
    "window and mask": (
        {"window": (1, 1), "mask": np.arange(K) % 2 == 0},
        lambda q, k: abs(q - k) <= 1 and k % 2 == 0,
    ),
    "window and causal": ({"window": (2, None), "causal": True}, lambda q, k: q - 2 <= k <= q),
    "lengths and causal": (
        {"key_lengths": np.array([2]), "causal": True},
        lambda q, k: k <= q and k < 2,
    ),
    "lengths and mask": (
        {"key_lengths": np.array([5]), "mask": np.arange(K) > 1},
        lambda q, k: 1 < k < 5,
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_causality_lengths_and_windows_hold_on_every_path(name, path):
    """keras 23038; jax 23349, of lengths of keys alone; jax 32300, of a window without a mask."""
    options, allowed = CONSTRAINTS[name]
    np.testing.assert_allclose(used(**options, **path), shared(allowed), atol=1e-6)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_causality_lengths_and_windows_are_in_the_weights_that_are_returned(name):
    """keras 23038."""
    options, allowed = CONSTRAINTS[name]
    zeros = [np.zeros((1, length, 1, K), np.float32) for length in (Q, K, K)]
    np.testing.assert_allclose(
        fa.dot_product_attention(*zeros, **options).weights, shared(allowed)[None, None], atol=1e-6
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_layer_asked_for_its_weights_stays_causal(need_weights):
    """keras 23038."""
    layer = fa.MultiHeadAttention(3)
    attended, changed = (
        apply(layer, variables(), x, causal=True, need_weights=need_weights)
        for x in (X, X + (np.arange(K) > 3)[:, None])
    )
    np.testing.assert_allclose(changed.context[:, :4], attended.context[:, :4], atol=1e-6)
    assert np.abs(changed.context - attended.context)[:, 4:].max(axis=-1).min() > 1e-3
    if need_weights:
        np.testing.assert_array_equal(
            attended.weights > 0, np.broadcast_to(np.tri(K), (B, 3, K, K))
        )


# 7. Attention over a recurrent network.


class Reader(nn.Module):
    """Sums up the states of a bidirectional network in every way: by pooling, and for a decoder, as
    Bahdanau and as Luong.
    """

    @nn.compact
    def __call__(self, inputs, lengths):
        states = nn.Bidirectional(nn.RNN(nn.SimpleCell(3)), nn.RNN(nn.SimpleCell(3)))(
            inputs, seq_lengths=lengths
        )
        mask, decoder = masks.from_lengths(lengths, inputs.shape[1]), jnp.ones((len(inputs), 1, 4))
        pooled = {
            name: fa.AttentionPooling(hidden)(states, mask=mask[:, 0])
            for name, hidden in (("pooling", None), ("hidden", 5))
        }
        scores = {"additive": fa.AdditiveScore(5), "bilinear": fa.BilinearScore()}
        return pooled | {
            name: fa.Attention(score)(decoder, states, mask=mask) for name, score in scores.items()
        }


@functools.cache
def read(padding):
    """What a sequence of 4 is read as, alone and with padding."""
    layer, lengths, padded = Reader(), np.array([7, 4]), X.copy()
    padded[1, 4:] = padding
    parameters = init(layer, X, lengths)
    return apply(layer, parameters, X[1:, :4], np.array([4])), apply(
        layer, parameters, padded, lengths
    )


@pytest.mark.parametrize("padding", [100.0, jnp.nan])
@pytest.mark.parametrize("name", ["pooling", "hidden", "additive", "bilinear"])
def test_attention_over_an_rnn_never_attends_to_padding(name, padding):
    """tensorflow 512, pytorch/tutorials 593: a padded sequence is read as it would be alone,
    whatever the padding holds.
    """
    alone, padded = (attended[name] for attended in read(padding))
    np.testing.assert_array_equal(padded.weights[1, ..., 4:], 0)
    np.testing.assert_allclose(padded.weights[1, ..., :4], alone.weights[0], atol=1e-6)
    np.testing.assert_allclose(padded.context[1], alone.context[0], atol=1e-6)


# 8. Decoding.


@jax.jit
def decode(parameters, inputs, cache, lengths=None):
    return fa.MultiHeadAttention(3).apply(
        parameters, inputs, cache, lengths=lengths, method="decode"
    )


@pytest.mark.parametrize("cuts", [(1, 1, 1, 1, 1, 1, 1), (7,), (4, 1, 2)])
def test_a_prompt_is_decoded_in_any_number_of_steps(cuts):
    """flax 1317: one token at a time only."""
    cache, contexts, start = fa.MultiHeadAttention(3).init_cache(D, (B,), 9), [], 0
    for size in cuts:
        (context, weights), cache = decode(variables(), X[:, start : start + size], cache)
        np.testing.assert_array_equal(
            np.asarray(weights) > 0, np.broadcast_to(np.tri(size, 9, start), weights.shape)
        )
        contexts, start = [*contexts, context], start + size
    expected = apply(fa.MultiHeadAttention(3), variables(), X, causal=True).context
    np.testing.assert_allclose(np.concatenate(contexts, axis=1), expected, atol=1e-6)


def test_a_cache_that_is_full_never_overflows_silently():
    """An error where lengths are known, NaN under `jit`, and only in the row that overflows."""
    empty = fa.MultiHeadAttention(3).init_cache(D, (B,), 5)
    _, cache = decode(variables(), X[:, :4], empty, np.array([4, 2]))
    for inputs, start, said in ((X[:, 4:6], cache, "got 6"), (X, empty, "got 7")):
        with pytest.raises(
            ValueError, match=f"at most the 5 tokens that the cache has room for, {said}"
        ):
            fa.MultiHeadAttention(3).apply(variables(), jnp.asarray(inputs), start, method="decode")
    attended, _ = decode(variables(), X[:, 4:6], cache)
    assert np.isnan(np.asarray(attended.context)[0]).all()
    assert np.isfinite(np.asarray(attended.context)[1]).all()


@pytest.mark.parametrize("cached", [0, 3, 6])
def test_a_causal_query_of_one_token_sees_all_that_is_cached(cached, path):
    """flax 5591: `is_causal` sees key 0 alone."""
    np.testing.assert_allclose(
        used(1, causal=True, query_offset=cached, **path),
        [[1 / (cached + 1)] * (cached + 1) + [0] * (K - 1 - cached)],
    )


# 9. Memory.

LONG = {
    "dot_product_attention": lambda size: (
        lambda x: fa.dot_product_attention(*[x[..., None, :]] * 3, chunk_size=size).context
    ),
    "linen": lambda size: (
        lambda x: nn.MultiHeadDotProductAttention(
            1, attention_fn=fa.linen_attention_fn(chunk_size=size)
        ).init_with_output(jax.random.key(0), x)[0]
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_memory_grows_with_the_length_not_its_square_on_any_machine(name):
    """flax 2858, 4009: the weights of length 2,048, 16 MiB, do not exist in blocks, forward or
    backward.
    """
    x = jax.ShapeDtypeStruct((1, 2048, 8), jnp.float32)
    needed = lambda size: (
        jax.jit(jax.grad(lambda x: LONG[name](size)(x).sum()))
        .lower(x)
        .compile()
        .memory_analysis()
        .temp_size_in_bytes
        / 2**20
    )
    assert needed(None) >= 16
    assert needed(128) < 3


# 10. Normalisers, and the layers of Bahdanau and Luong.


def one_more(scores, mask):
    """A user's own: softmax with one more score, of 0, whose weight goes nowhere."""
    shares = jnp.exp(scores) if mask is None else jnp.where(mask, jnp.exp(scores), 0)
    return shares / (1 + shares.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_any_function_is_a_normalizer(chunk_size):
    """flax 1291."""
    options, zeros, ones = (
        {"normalizer": one_more, "chunk_size": chunk_size},
        np.zeros((1, K, 1)),
        np.ones((1, K, 1)),
    )
    np.testing.assert_allclose(
        run(fa.attend, zeros, zeros, ones, **options).context, K / (K + 1), rtol=1e-6
    )
    # all scores are 0, and all values 1
    parts = {"query": 0.0, "key": 0.0, "value": 1.0, "out": 1.0}
    params = {name: {"kernel": np.full((1, 1, 1), number)} for name, number in parts.items()}
    layer = fa.MultiHeadAttention(1, use_bias=False, **options)
    np.testing.assert_allclose(
        apply(layer, {"params": params}, ones, mask=np.arange(K) < 4).context, 4 / 5, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [
        (fa.sparsemax, [0.75, 0.25, 0]),
        (functools.partial(fa.top_k, k=2), [0.622459, 0.377541, 0]),
        (fa.hard, [1, 0, 0]),
    ],
)
def test_sparse_weights_instead_of_softmax(normalizer, expected):
    """flax 1291, for scores of 1.5, 1 and -1."""
    scores = np.array([[[1.5], [1.0], [-1.0]]])
    weights = run(fa.attend, np.ones((1, 1, 1)), scores, scores, normalizer=normalizer).weights
    np.testing.assert_allclose(weights, [[expected]], atol=1e-6)


LEARNED = {
    "Bahdanau": (
        fa.AdditiveScore(5),
        lambda q, k, p: p["vector"] @ np.tanh(q @ p["query_kernel"] + k @ p["key_kernel"]),
    ),
    "Luong": (fa.BilinearScore(), lambda q, k, p: q @ p["kernel"] @ k),
}


@pytest.mark.parametrize("name", LEARNED)
def test_the_layers_of_bahdanau_and_luong_are_at_home_here(name):
    """tensorflow/addons 2807."""
    score, naive_score = LEARNED[name]
    query, key = normal(7, B, Q, 4), X
    layer = fa.Attention(score)
    parameters = init(layer, query, key)
    context, weights = apply(
        layer, parameters, query, key, mask=np.arange(K) < np.array([[[7]], [[4]]])
    )
    (params,) = jax.tree.map(np.asarray, parameters["params"]).values()
    for b, length in enumerate((7, 4)):
        for q in range(Q):
            shares = np.array(
                [np.exp(naive_score(query[b, q], key[b, k], params)) for k in range(length)]
            )
            np.testing.assert_allclose(
                weights[b, q], [*shares / shares.sum(), *[0] * (K - length)], atol=1e-6
            )
            np.testing.assert_allclose(
                context[b, q], shares / shares.sum() @ key[b, :length], atol=1e-5
            )


# 11. Pictures.


def test_a_picture_of_attention_is_a_file_with_the_weights_in_it(tmp_path):
    """bertviz 13."""
    weights = run(fa.attend, X, X, X, mask=masks.causal).weights[0]
    path = drawing.save(
        shapes.attention_map(np.arange(float(K)), weights, {}, "title"),
        tmp_path / "pictures" / "map.png",
    )
    assert list((tmp_path / "pictures").iterdir()) == [path]
    picture, colour = plt.imread(path)[..., :3], plt.get_cmap(drawing.HEAT["cmap"])
    for weight in weights[2, :4]:
        near = (
            np.abs(picture - np.array(colour(drawing.HEAT["norm"](weight))[:3])).max(axis=-1) < 0.02
        )
        assert near.sum() > 5000


def test_a_picture_of_attention_may_be_a_drawing(tmp_path):
    """bertviz 13."""
    path = drawing.save(
        shapes.attention_map(np.arange(3.0), np.eye(3), {}, "title"), tmp_path / "map.svg"
    )
    assert path.read_bytes().startswith(b"<?xml")


# 12. The penalty of structured self-attention, and windows.


def test_the_penalty_is_the_squared_norm_of_each_row_of_the_batch():
    """kaushalshetty 12: the root of it, here 1.41, 2.45, 1 and 0."""
    same, thirds, even, apart = (
        [[1, 0], [1, 0]],
        [[1, 0], [0, 1]],
        [[0.5, 0.5], [0.5, 0.5]],
        [[0, 1], [1, 0]],
    )
    np.testing.assert_allclose(
        run(fa.diversity_penalty, np.array([same, even, thirds, apart], np.float32)),
        [2, 1, 0, 0],
        atol=1e-6,
    )
    np.testing.assert_allclose(run(fa.diversity_penalty, np.array([[1.0, 0], [1, 0], [1, 0]])), 6)


def test_the_penalty_of_a_layer_is_that_of_its_hops():
    """kaushalshetty 12."""
    layer = fa.StructuredSelfAttention(5, num_hops=3)
    weights = apply(layer, init(layer, X), X, mask=np.arange(K) < np.array([[7], [4]])).weights
    expected = [
        sum((row[i] @ row[j] - (i == j)) ** 2 for i in range(3) for j in range(3))
        for row in weights
    ]
    np.testing.assert_allclose(run(fa.diversity_penalty, weights), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "keys"),
    [(0, 0, [3]), (1, 0, [2, 3]), (2, 0, [1, 2, 3]), (0, 1, [3, 4]), (2, 2, [1, 2, 3, 4, 5])],
)
def test_a_window_has_so_many_keys_to_each_side_and_the_query_itself(left, right, keys, path):
    """local-attention 3: off by one."""
    expected = [1 / len(keys) if k in keys else 0 for k in range(K)]
    np.testing.assert_allclose(used(window=(left, right), **path)[3], expected, atol=1e-6)


@pytest.mark.parametrize("reach", [0, 1, 2])
def test_local_attention_reaches_so_many_keys_to_each_side(reach):
    """local-attention 3: off by one."""
    weights = apply(fa.LocalAttention(reach, score=fa.no_score), {}, X, X).weights
    np.testing.assert_allclose(weights[0], shared(lambda q, k: abs(q - k) <= reach, K), atol=1e-6)
