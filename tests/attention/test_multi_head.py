from pathlib import Path

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import flax_attn.attention as fa
from flax_attn.attention.cache import append, empty_cache
from tests.attention.compiled import apply, init, normal, run

B, T, D = 2, 7, 12
X, MEMORY = normal(0, B, T, D), normal(1, B, 5, D)


def test_parameters_are_those_of_linen_and_move_both_ways():
    ours, linen = fa.MultiHeadAttention(3), nn.MultiHeadDotProductAttention(3)
    variables = init(ours, X)
    chex.assert_trees_all_equal_shapes_and_dtypes(variables, init(linen, X))
    for inputs in ((X,), (X, MEMORY)):
        np.testing.assert_allclose(
            apply(ours, variables, *inputs).context, apply(linen, variables, *inputs), atol=1e-6
        )


def test_512_features_in_8_heads_have_1050624_parameters():
    variables = jax.eval_shape(lambda: init(fa.MultiHeadAttention(8), jnp.zeros((1, 2, 512))))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == 1_050_624


def test_identity_in_every_head_is_keras_case():
    eye = np.eye(8).reshape(1, 8, 1, 8)
    weights = run(fa.dot_product_attention, eye, eye, eye).weights
    assert weights is not None
    np.testing.assert_allclose(weights[0, 0], np.where(np.eye(8), 0.1691, 0.1187), atol=1e-4)


def test_grouped_heads_share_their_keys_and_values():
    """Equal to as many key heads as query heads, each key head repeated."""
    query, key, value = normal(3, B, T, 6, 4), normal(4, B, 5, 3, 4), normal(5, B, 5, 3, 2)
    options = {
        "mask": np.random.default_rng(6).random((B, 6, T, 5)) < 0.7,
        "bias": normal(7, 6, 1, 5),
    }
    grouped = run(fa.dot_product_attention, query, key, value, **options)
    repeated = [np.repeat(array, 2, axis=2) for array in (key, value)]
    chex.assert_trees_all_close(
        grouped, run(fa.dot_product_attention, query, *repeated, **options), atol=1e-6
    )
    chunked = run(fa.dot_product_attention, query, key, value, chunk_size=3, **options)
    np.testing.assert_allclose(chunked.context, grouped.context, atol=1e-6)


OPTIONS = {
    "causal": ({"causal": True}, lambda q, k: k <= q),
    "window": ({"window": (1, 2)}, lambda q, k: q - 1 <= k <= q + 2),
    "window to the left": ({"window": (2, None)}, lambda q, k: q - 2 <= k),
    "causal, offset": ({"causal": True, "query_offset": 2}, lambda q, k: k <= q + 2),
    "window, offset": ({"window": (1, 0), "query_offset": -1}, lambda q, k: q - 2 <= k <= q - 1),
    "lengths": (
        {"query_lengths": np.array([6, 6]), "key_lengths": np.array([4, 4])},
        lambda q, k: q < 6 and k < 4,
    ),
    "all": (
        {"causal": True, "window": (3, None), "key_lengths": np.array([4, 4])},
        lambda q, k: q - 3 <= k <= q and k < 4,
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_each_constraint_is_its_mask(name, chunk_size):
    query, key, value = (normal(seed, B, t, 3, 4) for seed, t in ((3, T), (4, 5), (5, 5)))
    options, allowed = OPTIONS[name]
    mask = np.array([[allowed(q, k) for k in range(5)] for q in range(T)])
    extra = np.random.default_rng(6).random((B, 1, T, 5)) < 0.7
    expected = fa.dot_product_attention(query, key, value, mask=mask & extra)
    found = fa.dot_product_attention(
        query, key, value, mask=extra, chunk_size=chunk_size, **options
    )
    np.testing.assert_allclose(found.context, expected.context, atol=1e-6)
    if chunk_size is None:
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-6)


@pytest.mark.parametrize("window", [(1, 0), (1, 1)])
def test_windows_on_zero_scores(window):
    zeros = np.zeros((1, 5, 1, 2))
    weights = run(fa.dot_product_attention, zeros, zeros, zeros, window=window).weights[0, 0]
    expected = [[abs(q - k) <= 1 and (k <= q or window[1]) for k in range(5)] for q in range(5)]
    np.testing.assert_allclose(
        weights, np.array(expected) / np.sum(expected, axis=1, keepdims=True), atol=1e-6
    )


def test_offsets_and_lengths_of_each_row():
    query, key = normal(3, B, T, 3, 4), normal(4, B, 9, 3, 4)
    attend = lambda query, key, offset, lengths: fa.dot_product_attention(
        query, key, key, causal=True, query_offset=offset, key_lengths=lengths
    )
    together = run(attend, query, key, np.array([0, 2]), np.array([9, 4]))
    for row, (offset, length) in enumerate(((0, 9), (2, 4))):
        alone = run(attend, query[[row]], key[[row]], offset, np.array([length]))
        np.testing.assert_allclose(together.context[row], alone.context[0], atol=1e-6)


@pytest.mark.parametrize("scale", [None, 2.0])
def test_scale_softcap_and_bias_in_their_order(scale):
    query, key, bias = normal(3, 1, 3, 1, 4), normal(4, 1, 5, 1, 4), normal(5, 3, 5)
    weights = run(
        fa.dot_product_attention, query, key, key, scale=scale, softcap=1.5, bias=bias
    ).weights
    scores = 1.5 * np.tanh((scale or 0.5) * query[0, :, 0] @ key[0, :, 0].T / 1.5) + bias
    expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(weights[0, 0], expected, atol=1e-6)


def test_weights_before_dropout_and_dropout_only_in_training():
    layer = fa.MultiHeadAttention(3, dropout_rate=0.5)
    variables, rngs = init(layer, X), {"dropout": jax.random.key(0)}
    plain, dropped = apply(layer, variables, X), apply(layer, variables, X, train=True, rngs=rngs)
    np.testing.assert_array_equal(plain.weights, dropped.weights)
    assert np.abs(plain.context - dropped.context).max() > 0.1
    chunked = apply(
        fa.MultiHeadAttention(3, dropout_rate=0.5, chunk_size=2),
        variables,
        X,
        train=True,
        rngs=rngs,
    )
    np.testing.assert_allclose(chunked.context, dropped.context, atol=1e-5)


@pytest.mark.parametrize("groups", [1, pytest.param(None, marks=pytest.mark.full)])
def test_decoding_equals_the_causal_pass_at_every_step(groups):
    layer = fa.MultiHeadAttention(2, num_key_heads=groups, value_features=8)
    variables = init(layer, X)
    full = apply(layer, variables, X, causal=True)
    decode = jax.jit(lambda x, cache: layer.apply(variables, x, cache, method="decode"))
    cache = layer.init_cache(D, (B,), 9)
    steps = [(0, 3), (3, 4), (4, 6), (6, 7)]  # a prompt of three, then one, two, one
    for first, last in steps:
        attended, cache = decode(X[:, first:last], cache)
        np.testing.assert_allclose(attended.context, full.context[:, first:last], atol=1e-6)
        np.testing.assert_allclose(
            np.asarray(attended.weights)[..., :T], full.weights[:, :, first:last], atol=1e-6
        )
    np.testing.assert_array_equal(cache.length, T)


def test_prompts_of_different_lengths_decode_as_they_would_alone():
    layer, lengths = fa.MultiHeadAttention(3), np.array([4, 2])
    variables = init(layer, X)
    _, cache = apply(
        layer, variables, X[:, :4], layer.init_cache(D, (B,), 8), lengths=lengths, method="decode"
    )
    attended, cache = apply(layer, variables, X[:, 4:5], cache, method="decode")
    np.testing.assert_array_equal(cache.length, [5, 3])
    for row, length in enumerate((4, 2)):
        alone = X[[row]][:, [*range(length), 4]]
        np.testing.assert_allclose(
            attended.context[row, 0],
            apply(layer, variables, alone, causal=True).context[0, -1],
            atol=1e-6,
        )


def test_a_cached_memory_is_the_memory():
    layer, lengths = fa.MultiHeadAttention(3), np.array([5, 3])
    variables = init(layer, X, MEMORY)
    cache = apply(
        layer, variables, layer.init_cache(D, (B,), 6), MEMORY, lengths=lengths, method="extend"
    )
    expected = apply(layer, variables, X, MEMORY, key_lengths=lengths)
    np.testing.assert_allclose(
        apply(layer, variables, X, cache=cache).context, expected.context, atol=1e-6
    )


def test_a_cache_that_would_overflow_is_an_error_or_nan_never_wrong():
    cache, new = empty_cache((B,), 4, 1, 2, 2), jnp.asarray(np.ones((B, 3, 1, 2), np.float32))
    cache = append(cache, new, new)
    with pytest.raises(ValueError, match="at most the 4 tokens that the cache has room for, got 6"):
        append(cache, new, new)
    with pytest.raises(ValueError, match=r"key of shape \(2, 'n', 1, 2\) .* got \(2, 3, 1, 3\)"):
        append(cache, jnp.ones((B, 3, 1, 3)), new)
    ragged = run(append, cache, new, new, np.array([1, 2]))
    assert np.isfinite(ragged.key[0]).all()
    assert np.isnan(ragged.key[1]).all()


@pytest.mark.parametrize("pre_norm", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_decoder_block_decodes_what_it_computes_at_once(pre_norm):
    block = fa.DecoderBlock(
        fa.MultiHeadAttention(3), fa.MultiHeadAttention(3), fa.FeedForward(17), pre_norm=pre_norm
    )
    lengths = np.array([5, 3])
    variables = init(block, X, MEMORY)
    full = apply(block, variables, X, MEMORY, memory_lengths=lengths)
    cache = fa.MultiHeadAttention(3).init_cache(D, (B,), T)
    step = jax.jit(
        lambda x, cache: block.apply(
            variables, x, jnp.asarray(MEMORY), memory_lengths=lengths, cache=cache
        )
    )
    outputs = []
    for t in range(T):
        decoded = step(X[:, t : t + 1], cache)
        cache = decoded.cache
        outputs.append(decoded.context)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full.context, atol=1e-5)
    assert full.cross_weights.shape == (B, 3, T, 5)
    np.testing.assert_array_equal(full.cross_weights[1, :, :, 3:], 0)


@pytest.mark.parametrize("pre_norm", [True, pytest.param(False, marks=pytest.mark.full)])
def test_an_encoder_block_is_two_residual_parts(pre_norm):
    block = fa.EncoderBlock(fa.MultiHeadAttention(3), fa.FeedForward(17), pre_norm=pre_norm)
    variables = init(block, X)

    def norm(name):
        scale, bias = (np.asarray(variables["params"][name][part]) for part in ("scale", "bias"))
        return lambda x: (
            (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale
            + bias
        )

    part = lambda name, layer: lambda x: apply(layer, {"params": variables["params"][name]}, x)
    attend, feed = (
        part("attention", fa.MultiHeadAttention(3)),
        part("feed_forward", fa.FeedForward(17)),
    )
    first, second = norm("attention_norm"), norm("feed_forward_norm")
    x = X + attend(first(X)).context if pre_norm else first(X + attend(X).context)
    x = x + feed(second(x)) if pre_norm else second(x + feed(x))
    np.testing.assert_allclose(apply(block, variables, X).context, x, atol=1e-5)


TORCH = np.load(Path(__file__).parent / "data" / "torch_multi_head.npz")


@pytest.mark.parametrize("name", ["same", "own_widths", "no_bias"])
def test_weights_of_pytorch_give_its_outputs(name):
    state = {
        key.split("/state/")[1]: TORCH[key] for key in TORCH if key.startswith(f"{name}/state/")
    }
    query, key, value, padding = (
        TORCH[f"{name}/{part}"] for part in ("query", "key", "value", "padding")
    )
    layer = fa.MultiHeadAttention(3, use_bias=name != "no_bias")
    variables = {"params": fa.multi_head_params_from_torch(state, 3)}
    attended = apply(layer, variables, query, key, value, mask=~padding[:, None, None, :])
    np.testing.assert_allclose(attended.context, TORCH[f"{name}/context"], atol=1e-5)
    np.testing.assert_allclose(attended.weights, TORCH[f"{name}/weights"], atol=1e-6)
    chex.assert_trees_all_equal_shapes(variables, init(layer, query, key, value))


def test_weights_that_are_not_pytorchs_are_refused():
    with pytest.raises(ValueError, match="expected 'q_proj_weight' among the weights"):
        fa.multi_head_params_from_torch({"kernel": np.zeros((3, 3))}, 1)
    state = {"in_proj_weight": np.zeros((12, 4)), "out_proj.weight": np.zeros((4, 4))}
    with pytest.raises(ValueError, match="expected no bias_k"):
        fa.multi_head_params_from_torch(state | {"bias_k": np.zeros((1, 1, 4))}, 2)
    with pytest.raises(ValueError, match="num_heads to divide the width 4, got 3"):
        fa.multi_head_params_from_torch(state, 3)


def test_linen_takes_our_attention_with_its_own_masks_weights_and_dropout():
    linen = nn.MultiHeadDotProductAttention(3)
    ours = nn.MultiHeadDotProductAttention(3, attention_fn=fa.linen_attention_fn())
    variables = init(linen, X)
    real = np.arange(T) < np.array([[7], [4]])
    mask = nn.combine_masks(
        nn.make_causal_mask(X[..., 0]), nn.make_attention_mask(np.ones((B, T)), real)
    )
    assert mask.dtype == jnp.float32
    masked = {"mask": mask, "sow_weights": True, "mutable": ["intermediates"]}
    expected, sown = apply(linen, variables, X, **masked)
    found, own = apply(ours, variables, X, **masked)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    chex.assert_trees_all_close(own, sown, atol=1e-6)
    dropping = nn.MultiHeadDotProductAttention(
        3, attention_fn=fa.linen_attention_fn(), dropout_rate=0.5
    )
    rngs = {"dropout": jax.random.key(0)}
    plain = apply(ours, variables, X)
    assert np.abs(apply(dropping, variables, X, deterministic=False, rngs=rngs) - plain).max() > 0.1
    np.testing.assert_allclose(apply(dropping, variables, X, deterministic=True), plain, atol=1e-6)


def test_linen_gets_zeros_for_an_empty_row_and_what_else_we_can():
    ours = nn.MultiHeadDotProductAttention(
        3, attention_fn=fa.linen_attention_fn(window=(1, 0), chunk_size=2)
    )
    variables = init(ours, X)
    bias = variables["params"]["out"]["bias"]
    nothing = apply(ours, variables, X, mask=np.zeros((B, 1, T, T), np.float32))
    np.testing.assert_array_equal(nothing, np.broadcast_to(bias, X.shape))
    near = np.eye(T, dtype=bool) | np.eye(T, k=-1, dtype=bool)
    expected = apply(nn.MultiHeadDotProductAttention(3), variables, X, mask=near[None, None])
    np.testing.assert_allclose(apply(ours, variables, X), expected, atol=1e-6)


def test_a_module_of_ours_in_an_nnx_model():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.bridge.ToNNX(fa.MultiHeadAttention(3), rngs=rngs).lazy_init(x)
            self.head = nnx.Linear(D, 1, rngs=rngs)

        def __call__(self, x):
            return self.head(self.attention(x).context)

    x = jnp.asarray(X)
    model = Model(nnx.Rngs(0))
    assert nnx.eval_shape(lambda model: model(x), model).shape == (B, T, 1)
    gradients = nnx.jit(nnx.grad(lambda model: jnp.sum(model(x) ** 2)))(model)
    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(gradients)))
    assert len(leaves) == 10
    # the bias of the keys moves every score alike
    assert sum(np.abs(leaf).max() > 1e-3 for leaf in leaves) == 9


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"mask": np.ones((1, 1, T, T))}, TypeError, "bias="),
        (
            {"mask": np.ones((B, 2, T, T), bool)},
            ValueError,
            r"mask that broadcasts to the weights "
            r"\(2, 3, 7, 7\), got \(2, 2, 7, 7\)",
        ),
        (
            {"bias": np.ones((T, 6))},
            ValueError,
            r"bias that broadcasts to the weights \(2, 3, 7, "
            r"7\), got \(7, 6\)",
        ),
        ({"key_lengths": np.array([1.0, 2.0])}, TypeError, "integers in key_lengths"),
        ({"key_lengths": np.array([3, -1])}, ValueError, "key_lengths, got -1"),
        (
            {"query_lengths": np.array([3, 3, 3])},
            ValueError,
            r"query_lengths of shape \(2,\), .* got \(3,\)",
        ),
        ({"query_offset": 0.5}, TypeError, "integers in query_offset"),
        ({"window": (-1, 0)}, ValueError, "left of a window"),
        (
            {"key": np.ones((B, T, 2, 4)), "value": np.ones((B, T, 2, 4))},
            ValueError,
            "multiple of the key heads, got 3 and 2",
        ),
        (
            {"key": np.ones((B, T, 3, 5))},
            ValueError,
            r"one width, got \(2, 7, 3, 4\) and \(2, 7, 3, 5\)",
        ),
        (
            {"key": np.ones((3, T, 3, 4))},
            ValueError,
            r"got \(2, 7, 3, 4\), \(3, 7, 3, 4\), \(2, "
            r"7, 3, 4\)",
        ),
        (
            {"value": np.ones((B, 6, 3, 4))},
            ValueError,
            r"got \(2, 7, 3, 4\), \(2, 7, 3, 4\), \(2, "
            r"6, 3, 4\)",
        ),
        ({"chunk_size": 0}, ValueError, "chunk_size of 1 or above"),
    ],
)
def test_bad_arguments_name_themselves_and_both_shapes(change, error, said):
    arguments = {name: np.ones((B, T, 3, 4)) for name in ("query", "key", "value")} | change
    with pytest.raises(error, match=said):
        fa.dot_product_attention(**arguments)


def test_heads_that_do_not_divide_are_told():
    with pytest.raises(ValueError, match="key_features to be a multiple of 5 heads, got 12"):
        init(fa.MultiHeadAttention(5), X)
    with pytest.raises(
        ValueError, match="num_heads to be a multiple of num_key_heads, both above 0, got 3 and 2"
    ):
        init(fa.MultiHeadAttention(3, num_key_heads=2), X)
