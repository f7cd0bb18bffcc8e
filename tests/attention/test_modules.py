import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.attention as fa
from flax_attn.attention.dropout import drop
from tests.attention.compiled import apply, init, normal, run

T, D = 7, 5
X = normal(0, 2, T, D)


def test_additive_attention_averages_values_where_all_keys_are_equal():
    """Keys all equal, values 0 to 39, the first 1 and 6 of them real: the mean of the values."""
    query, key = normal(0, 2, 1, 20), np.ones((2, 10, 2), np.float32)
    value = np.tile(np.arange(40, dtype=np.float32).reshape(1, 10, 4), (2, 1, 1))
    layer = fa.Attention(fa.AdditiveScore(8), dropout_rate=0.1)
    mask = np.arange(10) < np.array([[[1]], [[6]]])
    variables = init(layer, query, key, value, mask=mask)
    attended = apply(layer, variables, query, key, value, mask=mask)
    np.testing.assert_allclose(attended.context[:, 0], [[0, 1, 2, 3], [10, 11, 12, 13]], atol=1e-5)
    kernels = jax.tree.map(jnp.shape, variables["params"]["score"])
    assert kernels == {"query_kernel": (20, 8), "key_kernel": (2, 8), "vector": (8,)}
    trained = apply(
        layer,
        variables,
        query,
        key,
        value,
        mask=mask,
        train=True,
        rngs={"dropout": jax.random.key(3)},
    )
    np.testing.assert_array_equal(trained.weights, attended.weights)


def test_softmax_of_ones_by_lengths():
    weights = run(
        lambda scores, lengths: fa.masked_softmax(scores, fa.masks.from_lengths(lengths, 4)[:, 0]),
        np.ones((3, 4)),
        np.array([3, 2, 1]),
    )
    np.testing.assert_allclose(
        weights, [[1 / 3, 1 / 3, 1 / 3, 0], [0.5, 0.5, 0, 0], [1, 0, 0, 0]], atol=1e-6
    )


def test_identity_weights_turn_self_attention_into_a_perceptron():
    """Where every position attends to itself alone, the layer is `x W_v + b_v`."""
    layer = fa.SelfAttention(D, 4, use_bias=True)
    variables = init(layer, X)
    kernel, bias = (
        np.asarray(variables["params"][name]) for name in ("value_kernel", "value_bias")
    )
    attended = apply(layer, variables, X, mask=np.eye(T, dtype=bool)[None])
    np.testing.assert_allclose(attended.context, X @ kernel + bias, atol=1e-6)
    np.testing.assert_array_equal(attended.weights, np.broadcast_to(np.eye(T), (2, T, T)))


def test_self_attention_of_49_features_with_biases_has_7350_parameters():
    variables = init(fa.SelfAttention(49, 49, use_bias=True), np.zeros((1, 16, 49)))
    # 15,200 less the tutorial's Dense 784-10
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == 7_350


@pytest.mark.parametrize("hidden", [None, 3])
def test_pooling_is_its_formula(hidden):
    layer = fa.AttentionPooling(hidden)
    variables = init(layer, X)
    p = jax.tree.map(np.asarray, variables["params"])
    h = X if hidden is None else np.tanh(X @ p["hidden"]["kernel"] + p["hidden"]["bias"])
    shares = np.exp(h @ p["energy"]["kernel"] + p["energy"]["bias"])
    weights = shares / shares.sum(axis=1, keepdims=True)
    attended = apply(layer, variables, X)
    np.testing.assert_allclose(attended.weights, weights[..., 0], atol=1e-6)
    np.testing.assert_allclose(attended.context, (weights * X).sum(axis=1), atol=1e-6)


def test_structured_self_attention_is_its_formula_and_its_penalty_is_squared():
    layer = fa.StructuredSelfAttention(3, 2)
    variables = init(layer, X)
    first, second = (
        np.asarray(variables["params"][name]["kernel"]) for name in ("hidden", "energies")
    )
    shares = np.exp(np.tanh(X @ first) @ second).swapaxes(1, 2)
    weights = shares / shares.sum(axis=-1, keepdims=True)
    attended = apply(layer, variables, X)
    np.testing.assert_allclose(attended.weights, weights, atol=1e-6)
    np.testing.assert_allclose(attended.context, weights @ X, atol=1e-5)
    expected = [np.linalg.norm(a @ a.T - np.eye(2)) ** 2 for a in weights]
    np.testing.assert_allclose(run(fa.diversity_penalty, attended.weights), expected, rtol=1e-5)
    pair = np.array([[[1.0, 0, 0], [1, 0, 0]], [[1, 0, 0], [0, 0, 1]]])
    np.testing.assert_allclose(run(fa.diversity_penalty, pair), [2, 0])


def test_input_attention_cell_is_its_equations_and_runs_over_a_sequence():
    cell, carry = fa.InputAttentionCell(3, 2, alpha=4.0), normal(5, 2, 3)
    variables = init(cell, carry, X[:, 0])
    p = jax.tree.map(np.asarray, variables["params"])
    x, h = X[:, 0], carry
    a = 1 / (
        1
        + np.exp(
            -(
                h @ p["state_gate"]["kernel"]
                + x @ p["input_gate"]["kernel"]
                + p["input_gate"]["bias"]
            )
        )
    )
    g = np.exp(4 * a) / np.exp(4 * a).sum(axis=-1, keepdims=True)
    new = np.tanh(h @ p["state"]["kernel"] + (x * g) @ p["input"]["kernel"] + p["input"]["bias"])
    state, attended = apply(cell, variables, carry, x)
    np.testing.assert_allclose(state, new, atol=1e-6)
    np.testing.assert_allclose(attended.weights, g, atol=1e-6)
    np.testing.assert_allclose(attended.context, new @ p["output"]["kernel"], atol=1e-6)
    outputs = apply(nn.RNN(cell), {"params": {"cell": variables["params"]}}, X)
    assert outputs.context.shape == (2, T, 2)
    assert outputs.weights.shape == (2, T, D)
    _, first = apply(cell, variables, np.zeros_like(carry), x)
    np.testing.assert_allclose(outputs.weights[:, 0], first.weights, atol=1e-6)


def test_a_gate_of_n_is_at_most_e_over_e_plus_n_minus_1():
    cell, carry = fa.InputAttentionCell(3, 2), np.zeros((2, 3), np.float32)
    large = np.tile(np.where(np.arange(D) == 2, 1e4, -1e4).astype(np.float32), (2, 1))
    params = init(cell, carry, large)["params"]
    gates = params["input_gate"] | {"kernel": np.eye(D, dtype=np.float32)}
    _, attended = apply(cell, {"params": params | {"input_gate": gates}}, carry, large)
    np.testing.assert_allclose(attended.weights[:, 2], np.e / (np.e + D - 1), rtol=1e-5)


def test_local_attention_sees_its_window_and_nothing_else():
    layer = fa.LocalAttention(1, fa.no_score)
    weights = apply(layer, {}, X, X, key_lengths=np.array([T, 4])).weights
    for row, length in enumerate((T, 4)):
        near = np.array(
            [[abs(q - k) <= 1 and k < length for k in range(T)] for q in range(T)], float
        )
        np.testing.assert_allclose(
            weights[row], near / np.maximum(near.sum(axis=1, keepdims=True), 1), atol=1e-6
        )


def test_predictive_local_attention_is_its_formula_and_learns_where_to_look():
    layer, lengths = fa.PredictiveLocalAttention(2, 3, fa.dot), np.array([T, 4])
    variables = init(layer, X, X)
    hidden, position = (
        np.asarray(variables["params"][name]["kernel"]) for name in ("hidden", "place")
    )
    x = X.astype(np.float64)
    center = lengths[:, None] / (1 + np.exp(-np.tanh(x @ hidden) @ position))[..., 0]
    attended = apply(layer, variables, X, X, key_lengths=lengths)
    for b in range(2):
        for q in range(T):
            keys = [k for k in range(lengths[b]) if abs(k - center[b, q]) <= 2]
            shares = np.exp([x[b, q] @ x[b, k] for k in keys])
            weights = shares / shares.sum() * np.exp([-((k - center[b, q]) ** 2) / 2 for k in keys])
            np.testing.assert_allclose(attended.weights[b, q, keys], weights, atol=1e-5)
            np.testing.assert_allclose(attended.weights[b, q].sum(), weights.sum(), atol=1e-5)
    gradient = run(jax.grad(lambda v, x: jnp.sum(layer.apply(v, x, x).context ** 2)), variables, X)[
        "params"
    ]
    assert np.abs(gradient["place"]["kernel"]).max() > 1e-3


def test_hard_attention_takes_the_likeliest_and_draws_in_training():
    layer, query, key = (
        fa.HardAttention(fa.dot),
        np.ones((1, 2000, 1)),
        np.log([[[0.2], [0.5], [0.3]]]),
    )
    assert (apply(layer, {}, query, key).weights[0, :, 1] == 1).all()
    drawn = apply(layer, {}, query, key, train=True, rngs={"sample": jax.random.key(0)}).weights
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_allclose(drawn[0].mean(axis=0), [0.2, 0.5, 0.3], atol=0.04)


def test_dropout_of_a_block_is_that_of_the_whole():
    weights, rng = np.ones((3, 2, 8, 6), np.float32), jax.random.key(0)
    rows, columns = np.arange(8)[:, None], np.arange(6)[None, :]
    whole = run(drop, weights, 0.25, rng, rows, columns)
    block = run(drop, weights[:, :, 2:5, 4:], 0.25, rng, rows[2:5], columns[:, 4:])
    np.testing.assert_array_equal(block, whole[:, :, 2:5, 4:])
    many = run(
        drop,
        np.ones((4, 100, 100), np.float32),
        0.25,
        rng,
        np.arange(100)[:, None],
        np.arange(100)[None, :],
    )
    assert abs((many > 0).mean() - 0.75) < 0.01
    kept = many > 0
    for other in (np.roll(kept, 1, axis=0), np.roll(kept, 1, axis=1), np.roll(kept, 1, axis=2)):
        # neighbours along every axis are independent
        assert abs((kept & other).mean() - 0.75**2) < 0.01


def test_masks_and_biases_may_be_functions_on_both_paths():
    causal, distance = fa.masks.causal, lambda q, k: -jnp.abs(q - k).astype(jnp.float32)
    arrays = np.tri(T, dtype=bool), np.float32(-np.abs(np.arange(T)[:, None] - np.arange(T)))
    expected = run(fa.attend, X, X, X, mask=arrays[0], bias=arrays[1])
    chex.assert_trees_all_close(
        run(fa.attend, X, X, X, mask=causal, bias=distance), expected, atol=1e-6
    )
    np.testing.assert_allclose(
        run(fa.attend, X, X, X, mask=causal, bias=distance, chunk_size=3).context,
        expected.context,
        atol=1e-6,
    )
    with pytest.raises(TypeError, match="boolean mask"):
        run(fa.attend, X, X, X, mask=distance, chunk_size=3)
    with pytest.raises(ValueError, match="broadcasts to the weights"):
        run(fa.attend, X, X, X, mask=lambda q, k: jnp.ones((3, 1, 1), bool), chunk_size=3)


def test_blocks_never_hold_what_the_whole_would():
    """Additive attention at length 1,024: the pairs of positions and hidden units, 256 MiB, do not
    exist in blocks.
    """
    x = jax.ShapeDtypeStruct((1, 1024, 8), jnp.float32)
    kernels = {
        "query_kernel": np.ones((8, 64)),
        "key_kernel": np.ones((8, 64)),
        "vector": np.ones(64),
    }

    def loss(x, kernels, chunk_size):
        score = lambda q, k: fa.additive(q, k, **kernels)
        return fa.attend(x, x, x, score=score, chunk_size=chunk_size).context.sum()

    lowered = {
        size: jax.jit(jax.grad(loss, argnums=1), static_argnums=2).lower(x, kernels, size)
        for size in (None, 128)
    }
    used = {
        size: low.compile().memory_analysis().temp_size_in_bytes / 2**20
        for size, low in lowered.items()
    }
    assert used[None] > 256
    assert used[128] < 32
