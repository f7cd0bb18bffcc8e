"""Attention in blocks has a derivative of its own: it equals the dense form, and computes no block
that nobody can see.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention import masks
from flax_attn.attention.core import Call, compute
from flax_attn.attention.visibility import make_visibility
from tests.attention.compiled import normal, run
from tests.attention.covering import covering

B, Q, K, HEADS, D, E = 2, 17, 23, 2, 3, 2  # no block size here divides the lengths
SIZES = 4, 7, 64
QUERY, KEY, VALUE = normal(0, B, HEADS, Q, D), normal(1, B, HEADS, K, D), normal(2, B, HEADS, K, E)
H = 5
SCORES = {
    "dot": {},
    "scaled_dot": {},
    "cosine": {},
    "bilinear": {"kernel": normal(3, D, D), "bias": normal(4)},
    "additive": {
        "query_kernel": normal(5, D, H),
        "key_kernel": normal(6, D, H),
        "vector": normal(7, H),
    },
    "concat": {"kernel": normal(8, 2 * D, H), "vector": normal(9, H)},
    "trilinear": {name: normal(10, D) for name in ("query_vector", "key_vector", "product_vector")},
    "no_score": {},
}
RANDOM = np.random.default_rng(11).random((B, 1, Q, K)) < 0.5
RANDOM[0, :, 3] = RANDOM[1, :, :, 5] = False
LENGTHS = np.array([9, 0])
SEGMENTS = np.sort(np.random.default_rng(12).integers(0, 4, (B, K)))
LIMITS = {
    "nothing": {},
    "causal": {"causal": True},
    "window": {"window": (3, 2)},
    "causal window at an offset": {
        "causal": True,
        "window": (5, 0),
        "query_offset": np.array([4, -2]),
    },
    "prefix": {"causal": True, "window": (4, None), "prefix_lengths": np.array([6, 0])},
    "lengths": {"query_lengths": np.array([17, 6]), "key_lengths": LENGTHS},
    "segments": {"query_segments": SEGMENTS[:, :Q], "key_segments": SEGMENTS},
    "array": {"mask": RANDOM},
    "function": {"mask": lambda q, k: (k <= q + 3) & (k % 3 > 0)},
}
BIASES = {
    "nothing": None,
    "array": normal(13, B, 1, Q, K),
    "of heads and keys": normal(14, 1, HEADS, 1, K),
    "-inf": np.where(RANDOM, normal(15, B, 1, Q, K), -np.inf).astype(np.float32),
    "function": lambda q, k: -0.3 * jnp.abs(jnp.subtract(*masks.aligned(q, k))).astype(jnp.float32),
}
AXES = (SCORES, LIMITS, BIASES, [0.0, 0.3], SIZES)


def visibility_of(limits, bias):
    return make_visibility((B, HEADS, Q, K), (HEADS,), bias=bias, **limits)


def outcome(score, limits, bias, rate, chunk_size, dtype=np.float32):
    """Context and gradients with respect to queries, keys, values, the parameters of the score, and
    the bias.
    """

    def loss(query, key, value, params, bias):
        any_bias = BIASES["function"] if bias is None else bias
        call = Call(
            query,
            key,
            value,
            visibility_of(LIMITS[limits], None if biases == "nothing" else any_bias),
            functools.partial(getattr(fa, score), **params),
            dropout_rate=rate,
            dropout_rng=jax.random.key(3) if rate else None,
            chunk_size=chunk_size,
            need_weights=chunk_size is None,
        )
        context = compute(call).context
        return jnp.sum(
            jnp.sin(context) * jnp.arange(1.0, 1 + Q, dtype=dtype)[None, None, :, None]
        ), context

    biases = bias
    array = None if bias == "nothing" or callable(BIASES[bias]) else BIASES[bias]
    arrays = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, dtype), (QUERY, KEY, VALUE, SCORES[score], array)
    )
    gradients, context = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3, 4), has_aux=True))(*arrays)
    return jax.device_get((context, gradients))


def check(score, limits, bias, rate, chunk_size, dtype=np.float32):
    ours, dense = (outcome(score, limits, bias, rate, size, dtype) for size in (chunk_size, None))
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    for blockwise, whole in zip(jax.tree.leaves(ours), jax.tree.leaves(dense), strict=True):
        assert blockwise.dtype == dtype
        # some gradients are 0 but for rounding
        largest = max(np.abs(whole[np.isfinite(whole)]).max(), 2)
        np.testing.assert_allclose(blockwise, whole, rtol=0, atol=tolerance * largest)


def name(case):
    return " | ".join(map(str, case))


PAIRS = covering(2, *AXES)


@pytest.mark.parametrize("case", PAIRS[::16], ids=name)
def test_blocks_equal_the_whole(case):
    check(*case)


@pytest.mark.parametrize("case", PAIRS[::4], ids=name)
def test_blocks_equal_the_whole_in_double_precision(case):
    with jax.enable_x64(True):
        check(*case, np.float64)


X = jnp.asarray(normal(20, B, 24, HEADS, 4))


def context(x, chunk_size=5, **options):
    return fa.dot_product_attention(x, x, x, chunk_size=chunk_size, **options).context


def loss(x, **options):
    return jnp.sum(jnp.sin(context(x, **options)))


TRANSFORMED = {
    "jit": lambda f: jax.jit(f),
    "vmap": lambda f: lambda x: jax.vmap(f)(x[:, None]).reshape(x.shape),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, row: (c, f(row[None])[0]), 0, x)[1],
    "checkpoint": lambda f: jax.checkpoint(f),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_values_and_gradients_under_transformations(name):
    """Each row has lengths of its own, which the function closes over."""

    def attention(x, chunk_size):
        function = functools.partial(context, causal=True, chunk_size=chunk_size)
        return TRANSFORMED[name](lambda x: function(x, key_lengths=jnp.full(x.shape[0], 11)))(x)

    def total(x, chunk_size):
        return jnp.sum(jnp.sin(attention(x, chunk_size)))

    with_gradient = jax.value_and_grad(total)
    compiled = jax.jit(with_gradient, static_argnums=1)
    ours = with_gradient(X, 5) if name == "jit" else compiled(X, 5)
    dense = compiled(X, None)
    chex.assert_trees_all_close(ours, dense, atol=1e-5)


def test_lengths_and_parameters_that_are_vectorised():
    """A score's parameters and the lengths differ from row to row, and the function closes over
    both.
    """
    kernels, lengths = jnp.asarray(normal(21, 3, 4, 4)), jnp.array([24, 7, 1])
    x = X[:, :, 0]

    def total(kernels, chunk_size):
        def one(kernel, length):
            options = {"mask": lambda q, k: k < length, "chunk_size": chunk_size}
            score = functools.partial(fa.bilinear, kernel=kernel)
            return fa.attend(x, x, x, score=score, **options).context

        return jnp.sum(jnp.sin(jax.vmap(one)(kernels, lengths)))

    ours, dense = (
        jax.jit(jax.value_and_grad(total), static_argnums=1)(kernels, size) for size in (5, None)
    )
    chex.assert_trees_all_close(ours, dense, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_that_of_the_whole(dtype):
    x = X.astype(dtype)
    ours, dense = (
        run(
            jax.value_and_grad(lambda x, size=size: loss(x, chunk_size=size).astype(jnp.float32)), x
        )
        for size in (5, None)
    )
    assert ours[1].dtype == dtype
    np.testing.assert_allclose(ours[1].astype(jnp.float32), dense[1].astype(jnp.float32), atol=0.05)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_one_visible_key_passes_no_gradient_to_the_score(dtype, rate):
    x = 3 * X.astype(dtype)
    options = {"window": (0, 0), "dropout_rate": rate, "dropout_rng": jax.random.key(1)}

    def total(q, k):
        context = fa.dot_product_attention(q, k, x, chunk_size=5, **options).context
        return jnp.sum(jnp.sin(context.astype(jnp.float32)))

    for gradient in jax.jit(jax.grad(total, argnums=(0, 1)))(x, x):
        np.testing.assert_allclose(gradient.astype(jnp.float32), 0, atol=1e-4)


DERIVATIVES = {
    "forward mode": lambda f: jax.jvp(f, (X,), (X,)),
    "second derivative": lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))(X),
    "forward over reverse": lambda f: jax.jvp(jax.grad(f), (X,), (X,)),
    "reverse over forward": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (X,))[1])(X),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_other_derivatives_are_refused_in_blocks_and_right_in_the_whole(name):
    with pytest.raises(NotImplementedError if name == "reverse over forward" else TypeError):
        DERIVATIVES[name](loss)
    whole = functools.partial(loss, chunk_size=None)
    chex.assert_tree_all_finite(jax.jit(lambda: DERIVATIVES[name](whole))())


def blocks_computed(function, *arrays):
    """How many blocks of scores were computed."""
    count = 0

    def add():
        nonlocal count
        count += 1

    def score(query, key):
        jax.debug.callback(add)
        return fa.scaled_dot(query, key)

    jax.block_until_ready(function(score, *arrays))
    jax.effects_barrier()
    return count


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, 36),
        (masks.causal, 21),
        (lambda q, k: masks.window(q, k, 3, 0), 11),
        (lambda q, k: k < 4, 6),
    ],
)
def test_blocks_that_nobody_sees_are_not_computed(mask, expected):
    x = X[0, :, 0]

    def forward(score, x):
        return fa.attend(x, x, x, score=score, mask=mask, chunk_size=4).context

    compiled = lambda score, x: jax.jit(functools.partial(forward, score))(x)
    assert blocks_computed(compiled, x) == expected


def test_memory_is_linear_in_the_length_forward_and_backward():
    def needed(length, **options):
        x = jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32)
        gradient = jax.jit(jax.grad(functools.partial(loss, chunk_size=64, **options)))
        return gradient.lower(x).compile().memory_analysis().temp_size_in_bytes

    for options in ({}, {"causal": True, "window": (32, 0)}, {"mask": masks.causal}):
        assert needed(4096, **options) < 2.2 * needed(2048, **options)


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_scores_that_are_nan_or_infinite(chunk_size):
    """NaN and inf at a visible key give NaN, as softmax does; -inf masks; what is hidden does not
    count.
    """
    scores = jnp.array(
        [
            [0.0, jnp.nan, 1.0, 2.0],
            [jnp.inf, 0.0, 0.0, 0.0],
            [-jnp.inf] * 4,
            [0.0, -jnp.inf, -jnp.inf, 0.0],
            [jnp.nan] * 4,
        ]
    )
    mask = jnp.ones((5, 4), bool).at[4].set(False)
    value = jnp.eye(4)

    def attend(scores):
        return fa.attend(scores, value, value, score=_gather, mask=mask, chunk_size=chunk_size)

    def _gather(query, key):  # q k^T for one-hot keys, without multiplying inf or NaN by 0
        hot = key.argmax(axis=-1)
        return jnp.take(query, hot, axis=-1)

    result = run(attend, scores).context
    assert np.isnan(result[:2]).all()
    np.testing.assert_array_equal(result[2], 0)
    np.testing.assert_allclose(result[3], [0.5, 0, 0, 0.5], atol=1e-6)
    np.testing.assert_array_equal(result[4], 0)


def test_without_weights_long_sequences_stream_and_short_ones_do_not():
    def has_loop(length):
        x = jax.ShapeDtypeStruct((1, length, 8, 4), jnp.float32)
        function = lambda x: fa.dot_product_attention(x, x, x, need_weights=False).context
        return "while" in str(jax.make_jaxpr(function)(x))

    assert not has_loop(32)
    assert has_loop(4096) or jax.default_backend() != "cpu"


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_the_score_may_close_over_a_number_or_a_complex_array(chunk_size):
    x = X[0, :, 0]

    def total(score):
        return jnp.sum(jnp.sin(fa.attend(x, x, x, score=score, chunk_size=chunk_size).context))

    def by_scale(scale):
        return total(lambda q, k: scale * (q @ k.T))

    def by_phase(phase):
        turn = jnp.exp(1j * phase).reshape(1, -1)
        return total(lambda q, k: jnp.real((q * turn) @ (k * turn).T))

    for function, at in ((by_scale, 0.3), (by_phase, jnp.array([0.1, 0.2, 0.3, 0.4]))):
        slope = jnp.sum(jax.jit(jax.grad(function))(at))
        compiled = jax.jit(function)
        difference = (compiled(at + 1e-2) - compiled(at - 1e-2)) / 2e-2
        np.testing.assert_allclose(slope, difference, atol=0.05, rtol=0.05)
        assert abs(difference) > 0.1


@pytest.mark.parametrize("options", [{}, {"chunk_size": 2}, {"need_weights": False}], ids=str)
def test_lengths_beyond_the_keys_hide_nothing_more_and_leak_nothing(options):
    query, key = (jnp.asarray(normal(seed, 1, length, 1, 4)) for seed, length in ((24, 4), (25, 5)))
    limits = {"key_lengths": jnp.array([10]), "query_offset": 5, "window": (1, 0)}

    def total(key, query):
        return fa.dot_product_attention(query, key, key, **limits, **options).context.sum()

    gradient = jax.jit(jax.grad(total))
    of_nan = gradient(key, query.at[0, 2].set(jnp.nan))  # sees no key
    np.testing.assert_array_equal(of_nan, gradient(key, query))


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_a_visible_nan_reaches_no_hidden_key(chunk_size):
    x = X[:, :, :1]
    query = x.at[0, 0].set(jnp.nan)
    options = {"mask": jnp.arange(24) < 3, "chunk_size": chunk_size}
    attend = functools.partial(fa.dot_product_attention, query, x, **options)
    total = lambda value: attend(value).context[0, 1:].sum()
    np.testing.assert_array_equal(run(jax.grad(total), x)[0, 3:], 0)


def test_segments_and_lengths_of_one_row_decide_together():
    """Not the length of one row with the ids of another: that is a table for every two rows."""
    ids = jnp.array([[0] * 4 + [1] * 4, [1] * 4 + [0] * 4])
    limits = {"key_lengths": jnp.array([8, 4]), "query_segments": ids, "key_segments": ids}
    visible = make_visibility((2, 8, 8), **limits)
    blocks = visible.visible_blocks(*visible.all_indices().in_blocks(4, 4, 8))
    np.testing.assert_array_equal(blocks, [[True, False], [False, True]])
