"""Every score, normaliser, kind of mask and bias, on every path, equals loops over scalars.

Any two values of different axes meet, but for scores and normalisers, which know nothing of each
other; for gradients each value is met once.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import flax_attn.attention as fa
from flax_attn.attention import attend, masks
from tests.attention import naive
from tests.attention.compiled import run
from tests.attention.covering import covering

B, Q, K, D, E, H = 2, 7, 5, 3, 2, 11  # distinct primes, but for the batch
RNG = np.random.default_rng(1)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


QUERY, KEY, VALUE = normal(B, Q, D), normal(B, K, D), normal(B, K, E)

SCORES = {
    "dot": {},
    "scaled_dot": {},
    "cosine": {},
    "bilinear": {"kernel": normal(D, D), "bias": np.asarray(normal())},
    "additive": {"query_kernel": normal(D, H), "key_kernel": normal(D, H), "vector": normal(H)},
    "concat": {"kernel": normal(2 * D, H), "vector": normal(H)},
    "trilinear": {"query_vector": normal(D), "key_vector": normal(D), "product_vector": normal(D)},
    "no_score": {},
}
OPTIONS = {"bilinear": {"activation": jnp.tanh}}
NORMALIZERS = {
    "masked_softmax": fa.masked_softmax,
    "sparsemax": fa.sparsemax,
    "entmax15": fa.entmax15,
    "hard": fa.hard,
    "top_k": functools.partial(fa.top_k, k=3),
    "monotonic_expectation": fa.monotonic_expectation,
    "monotonic_hard": fa.monotonic_hard,
}
RANDOM = RNG.random((B, Q, K)) < 0.6
RANDOM[0, 3] = RANDOM[1, :, 2] = False
MASKS = {
    "none": None,
    "random": RANDOM,
    "lengths": np.arange(K) < np.array([[[3]], [[0]]]),
    "query lengths": np.arange(K) < np.arange(Q)[:, None] % (K + 1),
    "causal": masks.causal,
    "window": lambda q, k: masks.window(q, k, 1, 2),
    "segments": np.array([[[0], [0], [1], [1], [2], [2], [3]]]) == np.array([0, 1, 1, 2, 2]),
    "per key": np.array([True, False, True, True, False]),
}
BIAS = normal(B, Q, K)
BIASES = {
    "none": None,
    "array": BIAS,
    "per query": BIAS[:, :, :1],
    "-inf": np.where(RANDOM, BIAS, -np.inf).astype(np.float32),
    "function": lambda q, k: -0.3 * jnp.abs(q - k).astype(jnp.float32),
}
PATHS = {"dense": None, "blocks of 2": 2, "blocks of 3": 3, "one block": 64}
MOST_MASKS = [name for name in MASKS if name not in ("per key", "query lengths", "window")]
AXES = (SCORES, NORMALIZERS, MOST_MASKS, BIASES, PATHS)


def whole(mask_or_bias):
    return mask_or_bias(*masks.grid(Q, K)) if callable(mask_or_bias) else mask_or_bias


def check(score, normalizer, mask, bias, path):
    mask, bias = MASKS[mask], BIASES[bias]

    def function(query, key, value, params):
        bound_score = functools.partial(getattr(fa, score), **params, **OPTIONS.get(score, {}))
        options = {"mask": mask, "bias": bias, "chunk_size": PATHS[path]}
        options |= {"score": bound_score, "normalizer": NORMALIZERS[normalizer]}
        return attend(query, key, value, **options)

    arguments = QUERY, KEY, VALUE, jax.tree.map(jnp.asarray, SCORES[score])
    attended = run(function, *arguments)
    options = {"params": SCORES[score], "mask": whole(mask), "bias": whole(bias)}
    expected = naive.attend(QUERY, KEY, VALUE, score=score, normalizer=normalizer, **options)
    context, weights = expected
    assert_allclose(attended.context, context, atol=1e-5)
    if path == "dense":
        assert_allclose(attended.weights, weights, atol=1e-5)
    else:
        assert attended.weights is None


@pytest.mark.parametrize("case", covering(2, *AXES, apart=(0, 1)), ids=" | ".join)
def test_equals_loops_over_scalars(case):
    check(*case)


in_program = jax.jit(attend, static_argnames="chunk_size")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_scores_of_any_size_are_normalised(shift, path):
    """Shifted all alike, and rising block by block, on which no weight of softmax depends, or only
    on the last.
    """

    def context(bias):
        return in_program(QUERY, KEY, VALUE, bias=np.float32(bias), chunk_size=PATHS[path]).context

    # 1e4 has 3 digits left
    assert_allclose(context(np.full((1, 1, K), shift)), context(np.zeros((1, 1, K))), atol=2e-3)
    rising = shift * np.arange(K).reshape(1, 1, K)
    assert_allclose(
        context(rising), np.broadcast_to(VALUE[:, [0 if shift < 0 else -1]], (B, Q, E)), atol=1e-6
    )


GRADIENT_AXES = (
    SCORES,
    [*NORMALIZERS, "sampled_hard"],
    MASKS,
    BIASES,
    ["blocks of 2", "blocks of 3", "one block"],
    ["kept", "dropout"],
)


@pytest.mark.parametrize("case", covering(1, *GRADIENT_AXES), ids=" | ".join)
def test_blocks_give_the_context_and_gradients_of_the_whole(case):
    check_gradients(*case)


def check_gradients(score, normalizer, mask, bias, path, dropout):
    """With respect to queries, keys, values, the parameters of the score and the bias, with dropout
    too.
    """
    rng = jax.random.key(5)
    sampled = {"sampled_hard": functools.partial(fa.sampled_hard, rng=rng)}
    normalizer = (NORMALIZERS | sampled)[normalizer]
    rate = 0.3 if dropout == "dropout" else 0.0

    def loss(arguments, chunk_size):
        query, key, value, params, bias_array = arguments
        bound_score = functools.partial(getattr(fa, score), **params, **OPTIONS.get(score, {}))
        options = {
            "normalizer": normalizer,
            "mask": MASKS[mask],
            "dropout_rate": rate,
            "dropout_rng": rng,
            "chunk_size": chunk_size,
        }
        options["bias"] = BIASES[bias] if callable(BIASES[bias]) else bias_array
        context = attend(query, key, value, score=bound_score, **options).context
        return jnp.sum(jnp.sin(context + jnp.arange(1.0 * E)[None, None])), context

    arguments = (QUERY, KEY, VALUE, SCORES[score], None if callable(BIASES[bias]) else BIASES[bias])
    function = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, dense), gradients = function(arguments, None)
    (_, chunked), chunked_gradients = function(arguments, PATHS[path])
    assert_allclose(chunked, dense, atol=1e-5)
    for ours, expected in zip(
        jax.tree.leaves(chunked_gradients), jax.tree.leaves(gradients), strict=True
    ):
        assert_allclose(ours, expected, atol=2e-5)
