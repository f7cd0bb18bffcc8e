"""What holds for every mechanism: empty rows, padding, weights, dtypes, permutations, causality."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import flax_attn.attention as fa
from flax_attn.attention import masks
from tests.attention.compiled import init, normal

B, T, D = 3, 5, 6
LENGTHS, FULL = np.array([5, 3, 0]), np.array([5, 5, 5])
X = normal(0, B, T, D)
RNGS = {"params": jax.random.key(1), "sample": jax.random.key(2)}


class Mechanism(NamedTuple):
    """`apply(variables, x, lengths)` lets a padded sequence `(b, t, d)` attend to itself."""

    init: Callable
    apply: Callable
    ordered: bool = False  # whether the position of a key matters
    at_most_one: bool = False  # whether rows may sum to less than 1


def both(lengths, t):
    """Padding neither attends nor is attended to."""
    real = jnp.arange(t)[None, :] < lengths[:, None]
    return real[:, :, None] & real[:, None, :]


def function(attend, **facts):
    return Mechanism(
        lambda x, lengths: {}, lambda variables, x, lengths: attend(x, lengths), **facts
    )


def module(module, call, **facts):
    return Mechanism(
        lambda x, lengths: module.init(RNGS, x, lengths, method=call),
        lambda variables, x, lengths: module.apply(variables, x, lengths, method=call, rngs=RNGS),
        **facts,
    )


def masked(normalizer, chunk_size=None):
    return lambda x, lengths: fa.attend(
        x, x, x, normalizer=normalizer, mask=both(lengths, x.shape[1]), chunk_size=chunk_size
    )


def in_heads(x, lengths, **options):
    heads = x.reshape(*x.shape[:2], 2, -1)
    attended = fa.dot_product_attention(
        heads, heads, heads, query_lengths=lengths, key_lengths=lengths, **options
    )
    return fa.Attended(attended.context.reshape(x.shape), attended.weights)


def of_itself(module, x, lengths, **options):
    return module(x, x, mask=both(lengths, x.shape[1]), **options)


def pooled(module, x, lengths):
    return module(x, mask=jnp.arange(x.shape[1])[None, :] < lengths[:, None])


class Heads(nn.Module):
    """Multi-head attention as a block of the Transformer calls it."""

    layer: nn.Module

    def __call__(self, x, lengths):
        return self.layer(x, query_lengths=lengths, key_lengths=lengths)


MECHANISMS = {
    "softmax": function(masked(fa.masked_softmax)),
    "sparsemax": function(masked(fa.sparsemax)),
    "entmax15": function(masked(fa.entmax15)),
    "hard": function(masked(fa.hard)),
    "top_k": function(masked(functools.partial(fa.top_k, k=2))),
    "monotonic": function(masked(fa.monotonic_expectation), ordered=True, at_most_one=True),
    "monotonic hard": function(masked(fa.monotonic_hard), ordered=True, at_most_one=True),
    "softmax in blocks": function(masked(fa.masked_softmax, 2)),
    "heads": function(in_heads),
    "SelfAttention, folded": module(
        fa.SelfAttention(9, D, scale=1.0),
        lambda m, x, lengths: m(x, mask=both(lengths, x.shape[1])),
    ),
    "SelfAttention, biases": module(
        fa.SelfAttention(9, D, use_bias=True),
        lambda m, x, lengths: m(x, mask=both(lengths, x.shape[1])),
    ),
    "Attention, additive": module(fa.Attention(fa.AdditiveScore(4)), of_itself),
    "HardAttention, sampled": module(
        fa.HardAttention(), functools.partial(of_itself, train=True), ordered=True
    ),
    "MultiHeadAttention": module(Heads(fa.MultiHeadAttention(2)), Heads.__call__),
    "AttentionPooling": module(fa.AttentionPooling(), pooled),
    "StructuredSelfAttention": module(fa.StructuredSelfAttention(4, 3), pooled),
    "LocalAttention": module(
        fa.LocalAttention(1),
        lambda m, x, lengths: m(x, x, query_lengths=lengths, key_lengths=lengths),
        ordered=True,
    ),
    "PredictiveLocalAttention": module(
        fa.PredictiveLocalAttention(2, 4),
        lambda m, x, lengths: m(x, x, query_lengths=lengths, key_lengths=lengths),
        ordered=True,
        at_most_one=True,
    ),
}
every = pytest.mark.parametrize("name", MECHANISMS)


def real_rows(context, lengths):
    """The context without that of padded queries, which is nobody's business."""
    if context.ndim == 2 or context.shape[1] == 3 != T:
        return context
    return jnp.where(
        jnp.arange(context.shape[1])[None, :, None] < lengths[:, None, None], context, 0
    )


@functools.cache
def variables_of(name):
    """Variables of the mechanism, normal at random but for the biases, without running its
    initialisers.
    """
    rng = np.random.default_rng(0)
    draw = lambda path, leaf: rng.normal(
        0, 0 if "bias" in str(path[-1]) else 0.4, leaf.shape
    ).astype(leaf.dtype)
    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(MECHANISMS[name].init, X, LENGTHS))


@functools.cache
def compiled(name):
    """The gradients of a loss in the first `seen` rows of the context, with respect to variables
    and sequence; and what is attended.
    """

    def loss(variables, x, lengths, num_real):
        attended = MECHANISMS[name].apply(variables, x, lengths)
        return jnp.sum(jnp.sin(real_rows(attended.context, num_real).astype(jnp.float32))), attended

    function = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    return lambda *args: jax.device_get(function(*args))


@functools.cache
def results(name):
    """Attended and gradients on clean data, on data with NaN, inf and a large number in padding,
    and longer padding.
    """
    padding = ~(np.arange(T)[None, :, None] < LENGTHS[:, None, None])
    data = {
        label: np.where(padding, np.float32(bad), X)
        for label, bad in (("nan", np.nan), ("inf", np.inf), ("large", 1e30))
    }
    data |= {"clean": X, "longer": np.pad(X, ((0, 0), (0, 4), (0, 0)), constant_values=7.0)}
    return {
        label: compiled(name)(variables_of(name), x, LENGTHS, LENGTHS)[::-1]
        for label, x in data.items()
    }


@every
def test_an_empty_row_has_weights_and_context_0(name):
    attended, _ = results(name)["clean"]
    assert_array_equal(attended.context[2], 0)
    if attended.weights is not None:
        assert_array_equal(attended.weights[2], 0)


@every
@pytest.mark.parametrize("bad", ["nan", "inf", "large"])
def test_what_padding_holds_changes_no_value_and_no_gradient(name, bad):
    (clean, clean_grads), (dirty, dirty_grads) = results(name)["clean"], results(name)[bad]
    assert_allclose(real_rows(dirty.context, LENGTHS), real_rows(clean.context, LENGTHS), atol=1e-6)
    chex.assert_trees_all_close(dirty_grads, clean_grads, atol=1e-5)
    chex.assert_tree_all_finite(clean_grads)


@every
def test_longer_padding_changes_nothing(name):
    (clean, (clean_grads, clean_x)), (longer, (grads, x)) = (
        results(name)["clean"],
        results(name)["longer"],
    )
    same = slice(None, clean.context.shape[1])
    assert_allclose(
        real_rows(longer.context[:, same], LENGTHS), real_rows(clean.context, LENGTHS), atol=1e-6
    )
    chex.assert_trees_all_close(grads, clean_grads, atol=1e-5)
    assert_allclose(x[:, :T], clean_x, atol=1e-5)
    assert_array_equal(x[:, T:], 0)


@every
def test_rows_of_weights_sum_to_1_or_0(name):
    attended, _ = results(name)["clean"]
    if attended.weights is None:
        assert "blocks" in name
        return
    sums = np.asarray(attended.weights, np.float64).sum(axis=-1)
    assert (np.asarray(attended.weights) >= 0).all()
    if MECHANISMS[name].at_most_one:
        assert (sums <= 1 + 1e-6).all()
        assert sums.max() > 0.1
    else:
        assert_allclose(sums * (1 - sums), 0, atol=1e-6)
        assert sums[0].min() > 0.5


@every
def test_permuting_the_sequence_permutes_the_weights_where_order_plays_no_part(name):
    mechanism, order = MECHANISMS[name], np.array([3, 0, 4, 1, 2])
    if mechanism.ordered:
        return
    (_, plain), (_, permuted) = (
        compiled(name)(variables_of(name), x, FULL, FULL) for x in (X, X[:, order])
    )
    # queries move with the keys
    own_places = plain.context.shape[1] == T and plain.context.ndim == 3
    assert_allclose(
        permuted.context, plain.context[:, order] if own_places else plain.context, atol=1e-5
    )
    if plain.weights is not None:
        expected = plain.weights[..., order]
        assert_allclose(
            permuted.weights, expected[..., order, :] if own_places else expected, atol=1e-5
        )


@every
def test_half_precision_keeps_its_dtype_and_finite_gradients(name):
    dtype = jnp.bfloat16
    variables, x = jax.tree.map(lambda leaf: leaf.astype(dtype), (variables_of(name), X))
    grads, attended = compiled(name)(variables, x, LENGTHS, FULL)
    assert attended.context.dtype == dtype
    assert attended.weights is None or attended.weights.dtype == dtype
    assert_array_equal(attended.context[2].astype(np.float32), 0)
    chex.assert_tree_all_finite(grads)


def decoded(x, layer, **options):
    cache = layer.init_cache(D, (B,), dtype=x.dtype, **options)
    window = options.get("window")
    variables = init(layer, x)
    attend = functools.partial(layer.apply, variables, window=window, method="decode")
    prompt, cache = attend(x[:, :3], cache, lengths=np.array([3, 2, 1]))
    return jnp.concatenate([prompt.context, attend(x[:, 3:4], cache)[0].context], axis=1)


def of_cell(cell, *inputs):
    return cell.apply(init(cell, *inputs), *inputs)[1].context


def of_parameters(x, score, chunk_size=None, **shapes):
    """Attention by a score whose parameters are in single precision, with limits and dropout."""
    score = functools.partial(score, **{name: jnp.ones(shape) for name, shape in shapes.items()})
    limits = {"mask": masks.causal, "dropout_rate": np.float64(0.2), "dropout_rng": RNGS["sample"]}
    return fa.attend(x, x, x, score=score, chunk_size=chunk_size, **limits).context


def through_a_lens(x, chunk_size=None):
    with fa.Lens(temperature=0.5):
        return fa.attend(x, x, x, bias=jnp.ones((T, T), x.dtype), chunk_size=chunk_size).context


VECTOR = dict.fromkeys(["query_vector", "key_vector", "product_vector"], (D,))
HIDDEN = {"query_kernel": (D, D), "vector": (D,)}
STRICT = {
    "heads": lambda x: in_heads(x, LENGTHS, causal=True, bias=fa.alibi(2)).context,
    "few queries": lambda x: (
        fa.dot_product_attention(
            *[jnp.ones((1, n, 1, D), x.dtype) * x[0, 0, 0] for n in (1, 300, 300)],
            need_weights=False,
        ).context
    ),
    "log_sum_exp": lambda x: fa.log_sum_exp(x, x, bias=jnp.ones((T, T), x.dtype)),
    "lens": through_a_lens,
    "lens in blocks": functools.partial(through_a_lens, chunk_size=2),
    "bilinear": lambda x: of_parameters(x, fa.bilinear, kernel=(D, D), bias=()),
    "bilinear in blocks": lambda x: of_parameters(x, fa.bilinear, 2, kernel=(D, D), bias=()),
    "additive": lambda x: of_parameters(
        x, functools.partial(fa.additive, key_kernel=None), **HIDDEN
    ),
    "trilinear": lambda x: of_parameters(x, fa.trilinear, **VECTOR),
    "location": lambda x: (
        fa.attend(x, x, x, score=fa.no_score, bias=fa.location(x, kernel=jnp.ones((D, T)))).context
    ),
    "rotary": lambda x: fa.rotary(x, features=4, max_period=np.float64(100)),
    "sinusoidal": lambda x: x + fa.sinusoidal(T, D, offset=2).astype(x.dtype)[None],
    "encoder": lambda x: in_layer(
        fa.EncoderBlock(fa.MultiHeadAttention(3, rotary=True), fa.FeedForward(7)), lengths=LENGTHS
    )(x),
    "decoder": lambda x: in_layer(
        fa.DecoderBlock(
            fa.MultiHeadAttention(2, query_key_norm=True),
            fa.MultiHeadAttention(2, chunk_size=2),
            fa.FeedForward(7),
            pre_norm=False,
        ),
        x,
    )(x),
    "decoding": lambda x: decoded(x, fa.MultiHeadAttention(3, rotary=True), max_length=T),
    "sliding": lambda x: decoded(x, fa.MultiHeadAttention(3, rotary=True), window=(2, 0)),
    "cell": lambda x: of_cell(fa.InputAttentionCell(D, 2, np.float64(3)), x[:, 0], x[:, 1]),
}


@pytest.mark.parametrize("name", [*MECHANISMS, *STRICT])
def test_strict_promotion_is_obeyed_with_parameters_in_single_precision(name):
    dtype = jnp.bfloat16

    def loss(x):
        if name in STRICT:
            return STRICT[name](x).astype(jnp.float32).sum()
        variables = jax.tree.map(jnp.asarray, variables_of(name))
        attended = MECHANISMS[name].apply(variables, x, LENGTHS)
        return attended.context.astype(jnp.float32).sum()

    with jax.numpy_dtype_promotion("strict"):
        gradient = jax.eval_shape(jax.grad(loss), jnp.asarray(X, dtype))
    assert (gradient.shape, gradient.dtype) == (X.shape, dtype)


def in_layer(layer, *memory, **options):
    return lambda x: layer.apply(init(layer, x, *memory, **options), x, *memory, **options).context


CAUSAL = {
    "mask": lambda x: fa.attend(x, x, x, mask=masks.causal).context,
    "mask in blocks": lambda x: fa.attend(x, x, x, mask=masks.causal, chunk_size=2).context,
    "sparsemax": lambda x: fa.attend(x, x, x, mask=masks.causal, normalizer=fa.sparsemax).context,
    "heads": lambda x: in_heads(x, None, causal=True).context,
    "heads in blocks": lambda x: in_heads(x, None, causal=True, chunk_size=3).context,
    "MultiHeadAttention": in_layer(fa.MultiHeadAttention(2), causal=True),
    "EncoderBlock": in_layer(
        fa.EncoderBlock(fa.MultiHeadAttention(2), fa.FeedForward(7)), causal=True
    ),
    "DecoderBlock": in_layer(
        fa.DecoderBlock(fa.MultiHeadAttention(2), fa.MultiHeadAttention(2), fa.FeedForward(7)),
        jnp.asarray(X),
    ),
}


@pytest.mark.parametrize("name", CAUSAL)
def test_causality_is_seen_by_gradient(name):
    """The gradient of what is at `q` with respect to what is at `k` is 0 for later `k`, and for no
    other.
    """
    near = 0.2 * X  # so that no weight of sparsemax is 0
    jacobian = jax.jit(jax.jacrev(lambda x: CAUSAL[name](x).sum(axis=(0, 2))))(near)  # (q, b, k, d)
    reach = np.abs(np.asarray(jacobian)).max(axis=(1, 3)) > 1e-9
    assert_array_equal(reach, np.tril(np.ones((T, T), bool)))
