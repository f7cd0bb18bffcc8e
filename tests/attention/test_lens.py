"""The lens: `weights = normalizer(scores / temperature, mask=mask & lens mask)` in every way to
attend, in every layer and under every transformation; and nothing where there is none.
"""

import functools
import gc
import threading
import weakref

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import flax_attn.attention as fa
from flax_attn.attention import Lens, masks
from flax_attn.attention import lens as lenses
from tests.attention.compiled import apply, init, normal, run

B, Q, K, D, E = 2, 5, 7, 4, 3
draw = lambda *arguments: jnp.asarray(normal(*arguments))
QUERY, KEY, VALUE = draw(0, B, Q, D), draw(1, B, K, D), draw(2, B, K, E)
X = draw(3, B, K, D)
BIAS = np.where(np.arange(K) == 5, -np.inf, normal(4, Q, K)).astype(np.float32)
MASK = jnp.asarray(np.random.default_rng(5).random((B, Q, K)) < 0.7)
NOT_0 = jnp.arange(K) != 0
NEAR = lambda queries, keys: masks.window(queries, keys, 2, 2)
top_2 = functools.partial(fa.top_k, k=2)
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)


def at(array):
    return lambda queries, keys: jnp.asarray(array)[..., queries, keys]


# --- the formula ---

SETTINGS = {
    "temperature": {"temperature": 2.5},
    "normalizer": {"normalizer": fa.sparsemax},
    "mask": {"mask": NOT_0},
    "mask function": {"mask": NEAR},
    "all": {"temperature": 0.4, "normalizer": fa.entmax15, "mask": NEAR},
    "top 2": {"temperature": 3.0, "normalizer": top_2, "mask": NOT_0},
    "monotonic": {"temperature": 0.5, "normalizer": fa.monotonic_expectation, "mask": NEAR},
}
WAYS = {
    "plain": {},
    "bias and mask": {"bias": BIAS, "mask": MASK},
    "functions": {"bias": at(BIAS), "mask": masks.causal},
    "cosine": {"score": fa.cosine},
    "sparsemax": {"normalizer": fa.sparsemax, "mask": MASK},
    "monotonic": {"normalizer": fa.monotonic_expectation, "bias": BIAS},
    "dropout": {"dropout_rate": 0.3, "dropout_rng": jax.random.key(3)},
}


def by_hand(options, temperature=None, normalizer=None, mask=None):
    """The arguments of `attend` that say without a lens what the lens says."""
    own = options.get("normalizer", fa.masked_softmax)
    chosen, options = own if normalizer is None else normalizer, dict(options)
    scaled = lambda scores, mask: chosen(scores / (temperature or 1.0), mask=mask)
    grid = masks.grid(Q, K)
    both = [m(*grid) if callable(m) else m for m in (options.get("mask"), mask) if m is not None]
    options["mask"] = masks.combine(*both)
    return options | {"normalizer": scaled}


def with_gradients(options, lens=None):
    def loss(query, key, value):
        context, weights = fa.attend(query, key, value, **options)
        return jnp.sum(jnp.sin(context)), (context, weights)

    def look(*arrays):
        with lens or Lens():
            return jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(*arrays)

    (_, (context, weights)), gradients = run(look, QUERY, KEY, VALUE)
    return context, weights, gradients


def ways_and_settings(*ways):
    """Pairs in which each name comes once at least."""
    most = max(len(ways), len(SETTINGS))
    both = [list(names) * most for names in (ways, SETTINGS)]
    return list(zip(*both))[:most]


@pytest.mark.parametrize(("way", "setting"), ways_and_settings(*WAYS))
def test_it_is_the_formula(way, setting):
    lens = Lens(**SETTINGS[setting])
    expected = with_gradients(by_hand(WAYS[way], **SETTINGS[setting]))
    got = with_gradients(WAYS[way], lens)
    chex.assert_trees_all_close(got, expected, rtol=1e-5, atol=1e-6)
    changed = np.abs(got[1] - with_gradients(WAYS[way])[1]).max()
    hard = setting == "normalizer" and way == "sparsemax"  # it is its own
    assert (changed > 1e-3) != hard


@pytest.mark.parametrize(
    ("way", "setting"), ways_and_settings("plain", "bias and mask", "functions", "sparsemax")
)
def test_blocks_are_the_whole(way, setting):
    lens = Lens(**SETTINGS[setting])
    context, _, gradients = with_gradients(WAYS[way], lens)
    for options in ({"chunk_size": 2}, {"need_weights": False}):
        in_blocks, weights, their = with_gradients(WAYS[way] | options, lens)
        assert weights is None
        chex.assert_trees_all_close((in_blocks, their), (context, gradients), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("setting", ["mask", "all"])
@pytest.mark.parametrize("num_queries", [1, 5])
def test_heads_that_share_keys_and_few_queries(setting, num_queries):
    """With 300 keys and one query, the form for few queries is the fastest."""
    normalizer, mask = (SETTINGS[setting].get(name) for name in ("normalizer", "mask"))
    temperature = SETTINGS[setting].get("temperature")
    mask = jnp.arange(300) != 0 if mask is NOT_0 else mask
    query, key = draw(0, B, num_queries, 4, D), draw(1, B, 300, 2, D)
    lens = Lens(temperature=temperature, normalizer=normalizer, mask=mask)
    visible = mask(*masks.grid(num_queries, 300)) if callable(mask) else mask
    normalizer = normalizer or fa.masked_softmax

    def compute(query, key):
        repeated = jnp.repeat(key, 2, axis=2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, repeated) / D**0.5
        weights = normalizer(scores / (temperature or 1), mask=visible)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, repeated), weights

    def look(query, key, need_weights):
        with lens:
            return fa.dot_product_attention(query, key, key, need_weights=need_weights)

    context, weights = run(compute, query, key)
    with_weights = run(look, query, key, True)
    close(with_weights.weights, weights)
    close(with_weights.context, context)
    close(run(look, query, key, False).context, context)


def test_a_mask_with_heads_is_that_of_heads():
    query, key, visible = draw(0, B, Q, 6, D), draw(1, B, K, 2, D), draw(2, 6, Q, K) > -0.5
    expected = run(fa.dot_product_attention, query, key, key, mask=visible[None])
    with Lens(mask=visible[None]):
        chex.assert_trees_all_close(run(fa.dot_product_attention, query, key, key), expected)
    with Lens(mask=visible), pytest.raises(ValueError, match="mask with all axes"):
        fa.dot_product_attention(query, key, key)


def test_positions_start_at_the_offset():
    query, key = draw(0, B, 2, 1, D), draw(1, B, K, 1, D)
    with Lens(mask=masks.causal):
        weights = run(fa.dot_product_attention, query, key, key, query_offset=3).weights
    np.testing.assert_array_equal(np.asarray(weights[0, 0] > 0), np.arange(K) <= [[3], [4]])


@pytest.mark.parametrize(("platform", "kernel"), [("cuda", "cudnn"), ("tpu", "splash")])
def test_a_kernel_is_left_where_it_cannot_follow(platform, kernel):
    x = jax.ShapeDtypeStruct((1, 65_536, 2, 64), jnp.bfloat16)
    name = lambda: fa.form_of(x, x, x, causal=True, need_weights=False, platform=platform).name
    assert name() == kernel
    for lens in (Lens(mask=masks.causal), Lens(temperature=2.0)):
        with lens:
            assert name() == "blockwise"
    with Lens(normalizer=fa.sparsemax):
        assert name() == "dense"


def test_half_precision_is_divided_in_single_precision():
    half = lambda *arrays: [jnp.asarray(array, jnp.bfloat16) for array in arrays]
    score = lambda query, key: fa.dot(query, key).astype(jnp.bfloat16)
    query, key, value = half(QUERY, KEY, VALUE)
    scores = score(query, key).astype(jnp.float32)
    with Lens(temperature=3.0):
        weights = fa.attend(query, key, value, score=score).weights
    assert weights.dtype == jnp.bfloat16
    np.testing.assert_array_equal(weights, fa.masked_softmax(scores / 3.0).astype(jnp.bfloat16))


def test_log_sum_exp_is_that_of_the_weights():
    with Lens(temperature=2.0, mask=NOT_0):
        _, weights = run(fa.attend, QUERY, KEY, VALUE, bias=BIAS)
        scores = run(fa.scaled_dot, QUERY, KEY) + BIAS[None]
        for options in ({}, {"chunk_size": 2}):
            logs = run(fa.log_sum_exp, QUERY, KEY, bias=BIAS, **options)
            close(weights, np.where(NOT_0, np.exp(scores / 2 - logs[..., None]), 0))


# --- hidden keys and emptied rows ---


@pytest.mark.parametrize(
    ("normalizer", "bias"),
    [
        (None, None),
        (None, BIAS),
        (fa.sparsemax, BIAS),
        (fa.hard, None),
        (fa.monotonic_expectation, BIAS),
    ],
)
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_hidden_key_has_weight_0_and_an_emptied_row_has_finite_gradients(
    normalizer, bias, chunk_size
):
    visible = NOT_0[None] & (jnp.arange(Q) != 2)[:, None]
    options = {"normalizer": normalizer, "mask": visible}
    value = np.where(NOT_0[:, None], VALUE, np.nan).astype(np.float32)

    def loss(query, key, value, temperature):
        with Lens(temperature=temperature, **options):
            attended = fa.attend(query, key, value, bias=bias, chunk_size=chunk_size)
        return jnp.sum(jnp.sin(attended.context)), attended

    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2, 3), has_aux=True)
    (_, (context, weights)), gradients = run(gradient, QUERY, KEY, value, 2.0)
    chex.assert_tree_all_finite((context, gradients))
    assert not context[:, 2].any()
    assert not gradients[0][:, 2].any()
    assert context[:, 3].any()
    if weights is not None:
        assert not weights[..., 0].any()
        assert not weights[:, 2].any()


def test_a_temperature_that_turns_out_wrong_gives_nan():
    def look(temperature):
        with Lens(temperature=temperature):
            return fa.attend(QUERY, KEY, VALUE).weights

    assert np.isfinite(run(look, jnp.float32(2))).all()
    for wrong in (0.0, -1.0, np.nan):
        assert np.isnan(run(look, jnp.float32(wrong))).all()


# --- every layer ---

LAYERS = {
    "Attention": (fa.Attention(fa.AdditiveScore(3)), (QUERY, KEY, KEY)),
    "Attention in blocks": (fa.Attention(fa.AdditiveScore(3), chunk_size=2), (QUERY, KEY, KEY)),
    "Attention, monotonic": (fa.Attention(normalizer=fa.monotonic_expectation), (QUERY, KEY, KEY)),
    "HardAttention": (fa.HardAttention(), (QUERY, KEY, KEY)),
    "LocalAttention": (fa.LocalAttention(2), (X, X)),
    "PredictiveLocalAttention": (fa.PredictiveLocalAttention(2, 3), (QUERY, KEY)),
    "MultiHeadAttention": (fa.MultiHeadAttention(2, rotary=True), (X,)),
    "MultiHeadAttention, shared keys": (
        fa.MultiHeadAttention(4, num_key_heads=2, key_features=8, score=fa.cosine),
        (X,),
    ),
    "SelfAttention": (fa.SelfAttention(3, 5), (X,)),
    "SelfAttention, folded": (fa.SelfAttention(9, 5), (X,)),
    "AttentionPooling": (fa.AttentionPooling(3), (X,)),
    "StructuredSelfAttention": (fa.StructuredSelfAttention(3, 2), (X,)),
    "EncoderBlock": (fa.EncoderBlock(fa.MultiHeadAttention(2), fa.FeedForward(5)), (X,)),
    "DecoderBlock": (
        fa.DecoderBlock(fa.MultiHeadAttention(2), fa.MultiHeadAttention(2), fa.FeedForward(5)),
        (X, KEY),
    ),
    "linen": (nn.MultiHeadDotProductAttention(2, attention_fn=fa.linen_attention_fn()), (X,)),
}
OWN_MASK = {
    "LocalAttention": jnp.abs(jnp.arange(K)[None] - jnp.arange(K)[:, None]) <= 2,
    "DecoderBlock": jnp.tril(jnp.ones((K, K), bool)),
}


def weights_of(name, result):
    if name == "linen":
        return []
    all_weights = [result.weights]
    all_weights += [result.cross_weights] if name == "DecoderBlock" else []
    return [] if all_weights[0] is None else all_weights


OWN_NORMALIZER = {"HardAttention": fa.hard, "Attention, monotonic": fa.monotonic_expectation}
TWICE = (*OWN_NORMALIZER, "MultiHeadAttention")  # the others take another in the same way
LAYERS_AND_NORMALIZERS = [(name, None) for name in LAYERS] + [(name, fa.entmax15) for name in TWICE]


@pytest.mark.parametrize(("name", "normalizer"), LAYERS_AND_NORMALIZERS)
def test_every_layer_follows(name, normalizer):
    """Its weights are those of its own scores, which are kept; the numbers are the same whether
    they are kept or not.
    """
    layer, arrays = LAYERS[name]
    variables = init(layer, *arrays)
    settings = {"temperature": 0.5, "mask": NOT_0, "normalizer": normalizer}

    def look(variables, arrays, keep):
        with Lens(**settings, keep_scores=keep) as lens:
            result = layer.apply(variables, *arrays)
        return result, lens.scores if keep else []

    result, scores = run(functools.partial(look, keep=True), variables, arrays)
    quick, _ = run(functools.partial(look, keep=False), variables, arrays)
    chex.assert_trees_all_close(result, quick, rtol=1e-4, atol=1e-5)
    own = OWN_NORMALIZER.get(name, fa.masked_softmax)
    chosen = own if normalizer is None else normalizer
    all_weights = weights_of(name, result)
    assert len(scores) == (2 if name == "DecoderBlock" else 1)
    for i, (weights, kept) in enumerate(zip(all_weights, map(jnp.asarray, scores))):
        visible = NOT_0 if i else masks.combine(NOT_0, OWN_MASK.get(name))
        expected = run(chosen, kept / 0.5, mask=jnp.broadcast_to(visible, kept.shape))
        if name == "AttentionPooling":
            expected = expected[..., 0, :]
        assert not weights[..., 0].any()
        if name == "PredictiveLocalAttention":  # the test below has its Gaussian
            assert (weights.sum(axis=-1) > 0.1).any()
        else:
            close(weights, expected)


@pytest.mark.parametrize("normalizer", [fa.masked_softmax, fa.sparsemax])
def test_the_gaussian_of_local_attention_stays(normalizer):
    """With a reach beyond all keys, its weights are those of the scores times the Gaussian."""
    layer = fa.PredictiveLocalAttention(50, 3)
    variables = init(layer, QUERY, KEY)

    def look(query, key, normalizer, keep_scores=False, temperature=None):
        settings = {"normalizer": normalizer, "temperature": temperature}
        with Lens(**settings, keep_scores=keep_scores) as lens:
            weights = layer.apply(variables, query, key).weights
        return weights, lens.scores[0] if keep_scores else None

    plain, scores = run(look, QUERY, KEY, None, keep_scores=True)
    gaussian = plain / run(fa.masked_softmax, scores)
    weights, _ = run(look, QUERY, KEY, normalizer, temperature=np.float32(3))
    close(weights, run(normalizer, scores / 3) * gaussian)


def test_input_attention_has_one_query():
    cell, x, carry = fa.InputAttentionCell(4, 2, alpha=3.0), draw(0, B, K), draw(1, B, 4)
    variables = init(cell, carry, x)

    def look(**settings):
        def attend(carry, x):
            with Lens(**settings) as lens:
                weights = cell.apply(variables, carry, x)[1].weights
            return weights, lens.scores if lens.keep_scores else None

        return run(attend, carry, x)

    plain, (scores,) = look(keep_scores=True)
    assert scores.shape == (B, 1, K)
    close(plain, run(fa.masked_softmax, scores[:, 0]))
    for mask in (NOT_0, lambda query, key: (key - query) > 0):
        weights, _ = look(temperature=0.2, normalizer=fa.sparsemax, mask=mask)
        close(weights, run(fa.sparsemax, scores[:, 0] / np.float32(0.2), mask=NOT_0))
    close(look(temperature=0.2)[0], run(fa.masked_softmax, scores[:, 0] / np.float32(0.2)))
    with pytest.raises(ValueError, match="one query at a time"):
        look(normalizer=fa.monotonic_hard)


def test_decoding_with_a_cache_is_the_whole():
    layer = fa.MultiHeadAttention(2, rotary=True)
    variables = init(layer, X)
    lens = Lens(**SETTINGS["all"])
    decode = jax.jit(lambda x, cache: layer.apply(variables, x, cache, method="decode"))
    plain = decode(X[:, :1], layer.init_cache(D, (B,), K))[0].weights
    with lens:
        whole = apply(layer, variables, X, causal=True)
        cache, contexts = layer.init_cache(D, (B,), K), []
        for first, last in ((0, 3), (3, 4), (4, 5), (5, 7)):
            attended, cache = decode(X[:, first:last], cache)
            close(attended.weights, whole.weights[:, :, first:last])
            contexts.append(attended.context)
    np.testing.assert_allclose(np.concatenate(contexts, 1), whole.context, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(decode(X[:, :1], layer.init_cache(D, (B,), K))[0].weights, plain)


def test_a_sliding_cache_follows_temperature_and_refuses_a_mask():
    layer, window = fa.MultiHeadAttention(2), (3, 0)
    variables = init(layer, X)

    def decode():
        cache = layer.init_cache(D, (B,), window=window)
        step = jax.jit(
            lambda x, cache: layer.apply(variables, x, cache, window=window, method="decode")
        )
        (first, _), cache = step(X[:, :4], cache)
        return np.concatenate([first, step(X[:, 4:], cache)[0].context], axis=1)

    with Lens(temperature=0.3):
        whole = run(lambda x: layer.apply(variables, x, causal=True, window=window).context, X)
        np.testing.assert_allclose(decode(), whole, rtol=1e-4, atol=1e-5)
    with Lens(mask=masks.causal), pytest.raises(ValueError, match="sliding cache"):
        decode()


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("setting", ["temperature", "mask", "mask function", "all"])
def test_across_a_mesh_of_one_device(ring, setting):
    lens = Lens(**SETTINGS[setting])
    mesh = jax.make_mesh((1,), ("sequence",), (AxisType.Auto,))
    across = fa.Across(mesh, ring=ring)
    options = {"bias": BIAS, "need_weights": not ring}
    if ring and "normalizer" in SETTINGS[setting]:
        with pytest.raises(ValueError, match="softmax on a ring"):
            with_gradients(options | {"across": across}, lens)
        return
    context, _, gradients = with_gradients(WAYS["plain"] | {"bias": BIAS}, lens)
    got, _, their = with_gradients(options | {"across": across}, lens)
    chex.assert_trees_all_close((got, their), (context, gradients), rtol=1e-4, atol=1e-5)


# --- nothing set, and no lens ---


def lowered(function, *args):
    return jax.jit(lambda *args: function(*args)).lower(*args).as_text()


def programs(names):
    """The programs of layers, with their gradients, and of some ways to attend."""
    sums = lambda tree: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))
    texts = {}
    for name in names:
        layer, arrays = LAYERS[name]
        variables = jax.eval_shape(layer.init, jax.random.key(0), *arrays)
        loss = lambda variables, arrays, layer=layer: sums(layer.apply(variables, *arrays))
        texts[name] = lowered(jax.grad(loss, argnums=(0, 1)), variables, arrays)
    cell, arrays = fa.InputAttentionCell(4, 2), (draw(1, B, 4), draw(0, B, K))
    variables = jax.eval_shape(cell.init, jax.random.key(0), *arrays)
    texts["cell"] = lowered(cell.apply, variables, *arrays)
    heads = lambda n: draw(0, B, n, 2, D)
    few = lambda q, k: fa.dot_product_attention(q, k, k, need_weights=False).context
    texts["few"] = lowered(few, heads(1), heads(300))
    texts["blocks"] = lowered(lambda x: fa.attend(x, x, x, chunk_size=2).context, X)
    texts["logs"] = lowered(lambda x: fa.log_sum_exp(x, x), X)
    return texts


SOME = (
    "LocalAttention",
    "Attention in blocks",
    "Attention, monotonic",
    "MultiHeadAttention",
    "AttentionPooling",
)


def test_without_a_lens_programs_are_those_without_its_code(monkeypatch):
    texts = programs(SOME)
    with Lens():
        assert programs(SOME) == texts
    with Lens(temperature=2.0):
        assert [name for name, text in programs(SOME).items() if text == texts[name]] == []
    monkeypatch.setattr(lenses, "look_through", lambda call: call)
    monkeypatch.setattr(lenses, "normalized", lambda normalizer, scores, name: normalizer(scores))
    monkeypatch.setattr(lenses, "look_through_at_softmax", lambda call: call)
    monkeypatch.setattr(lenses, "around", lambda make, inner: make(inner))
    assert programs(SOME) == texts


# --- compiled functions ---


def test_a_function_compiled_before_gives_the_lens_numbers_within_and_the_old_ones_after():
    weights = jax.jit(lambda x: fa.attend(x, x, x).weights)
    scores = run(fa.scaled_dot, X, X)
    before = weights(X)
    for temperature in (2.0, 3.0, 2.0):
        with Lens(temperature=temperature):
            close(weights(X), run(fa.masked_softmax, scores / np.float32(temperature)))
        np.testing.assert_array_equal(weights(X), before)
    for normalizer in (fa.sparsemax, fa.hard):
        with Lens(normalizer=normalizer):
            close(weights(X), run(normalizer, scores))
    for mask in (NOT_0, ~NOT_0, jnp.asarray(NOT_0), NEAR):
        visible = mask(*masks.grid(K, K)) if callable(mask) else mask
        with Lens(mask=mask):
            close(weights(X), run(fa.masked_softmax, scores, mask=visible))
    np.testing.assert_array_equal(weights(X), before)
    assert weights._cache_size() == 1 + 2 + 2 + 3  # equal settings share a program


def test_masks_of_the_same_numbers_and_other_shapes_do_not_share_a_program():
    """One hides a key from every query, the other a query from every key."""
    weights = jax.jit(lambda x: fa.attend(x, x, x).weights)
    for mask in (NOT_0, NOT_0[:, None]):
        with Lens(mask=mask):
            visible = np.broadcast_to(mask, (B, K, K))
            np.testing.assert_array_equal(weights(X) > 0, visible)


def test_a_mask_that_is_changed_later_changes_no_lens():
    mask, weights = np.ones(K, bool), jax.jit(lambda x: fa.attend(x, x, x).weights)
    with Lens(mask=mask) as lens:
        mask[3] = False
        assert weights(X)[..., 3].all()
    with lens:
        assert weights(X)[..., 3].all()


def test_it_is_left_by_an_error_and_is_of_one_thread():
    plain, numbers = fa.attend(X, X, X).weights, []
    with pytest.raises(KeyError), Lens(temperature=9.0):
        raise KeyError
    np.testing.assert_array_equal(fa.attend(X, X, X).weights, plain)
    with Lens(temperature=9.0):
        thread = threading.Thread(target=lambda: numbers.append(fa.attend(X, X, X).weights))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(numbers[0], plain)


# --- traced settings ---

weights_of_x = jax.jit(lambda x: fa.attend(x, x, x).weights)


def looked(temperature, mask, x, chunk_size=None):
    with Lens(temperature=temperature, mask=mask):
        if chunk_size is None:
            return weights_of_x(x)
        return fa.attend(x, x, x, chunk_size=chunk_size).context


def expected_weights(temperature, mask, x):
    scores = fa.scaled_dot(jnp.asarray(x), jnp.asarray(x))
    return fa.masked_softmax(scores / temperature, mask=mask)


def test_traced_settings_share_one_program():
    chex.clear_trace_counter()
    look = jax.jit(chex.assert_max_traces(looked, n=1))
    for temperature in (0.5, 2.0):
        for mask in (NOT_0, ~NOT_0):
            close(look(temperature, mask, X), expected_weights(temperature, mask, X))
    close(weights_of_x(X), expected_weights(1, None, X))


def test_traced_settings_under_every_transformation():
    temperatures, all_masks = jnp.array([0.5, 2.0, 4.0]), jnp.stack([NOT_0, ~NOT_0, NOT_0])
    expected = jnp.stack([expected_weights(*pair, X) for pair in zip(temperatures, all_masks)])
    close(jax.vmap(looked, (0, 0, None))(temperatures, all_masks, X), expected)
    close(jax.jit(jax.vmap(looked, (0, 0, None)))(temperatures, all_masks, X), expected)
    step = lambda carry, pair: (carry, looked(*pair, X))
    close(jax.lax.scan(step, 0, (temperatures, all_masks))[1], expected)
    nested = jax.jit(lambda t, m, x: jax.jit(looked)(t, m, x) + looked(2 * t, m, x))
    close(nested(0.5, NOT_0, X), expected_weights(0.5, NOT_0, X) + expected_weights(1.0, NOT_0, X))
    within = lambda t, x: jax.lax.map(lambda x: jax.checkpoint(looked)(t, NOT_0, x), x)
    close(jax.jit(within)(2.0, X), expected_weights(2.0, NOT_0, X))


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_the_gradient_of_the_temperature(chunk_size):
    look = lambda t: jnp.sum(jnp.sin(looked(t, NOT_0, X, chunk_size)))

    def naive(t):
        weights = expected_weights(t, NOT_0, X)
        return jnp.sum(jnp.sin(weights if chunk_size is None else weights @ X))

    expected = jax.jit(jax.grad(naive))(2.0)
    for gradient in (jax.grad(look), jax.jit(jax.grad(look)), jax.grad(jax.jit(look))):
        close(gradient(2.0), expected)


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_derivative_is_that_of_the_lens_also_when_it_is_taken_after_it(chunk_size):
    loss = lambda x: jnp.sum(jnp.sin(fa.attend(x, x, x, chunk_size=chunk_size).context))
    with Lens(temperature=0.3, mask=NOT_0):
        expected = jax.jit(jax.grad(loss))(X)
        _, pull = jax.vjp(loss, X)
    close(pull(1.0)[0], expected)


def test_nothing_leaks():
    """A function that is compiled inside, and lives on, would keep a value of JAX's own cache."""
    gc.freeze()  # to look for leaks is to look through all that was made since

    def looked(temperature, mask, x, chunk_size=None):
        with Lens(temperature=temperature, mask=mask):
            inner = jax.jit(lambda x: fa.attend(x, x, x, chunk_size=chunk_size).context)
            return inner(x)

    with jax.checking_leaks():
        jax.jit(looked)(3.0, NOT_0, X)
        jax.jit(jax.grad(lambda t, x: jnp.sum(jnp.sin(looked(t, NOT_0, x, 2)))))(3.0, X)

        @jax.jit
        def scores(x, last):
            with Lens(mask=lambda query, key: key + 0 * query <= last, keep_scores=True) as lens:
                fa.attend(x, x, x)
            return lens.scores

        scores(X, 3)


def test_programs_do_not_keep_a_lens_alive():
    lens = Lens(mask=lambda query, key: key + 0 * query < 4, normalizer=top_2)
    with lens:
        jax.jit(lambda x: fa.attend(x, x, x).weights)(X)
    reference = weakref.ref(lens)
    del lens
    gc.collect()
    assert reference() is None


# --- scores ---


def test_scores_are_those_after_the_bias_in_the_order_of_calls():
    with Lens(keep_scores=True, temperature=7.0, mask=NOT_0) as lens:
        assert lens.scores == []
        weights = [fa.attend(QUERY, KEY, VALUE, bias=np.where(np.isinf(BIAS), 0, BIAS)).weights]
        weights.append(fa.attend(X, X, X, score=fa.cosine).weights)
        fa.attend(X[:, :0], X, X)
    own = (
        fa.scaled_dot(jnp.asarray(QUERY), jnp.asarray(KEY))
        + np.where(np.isinf(BIAS), 0, BIAS)[None]
    )
    assert [scores.shape for scores in lens.scores] == [(B, Q, K), (B, K, K), (B, 0, K)]
    visible = NOT_0[None, None]
    close(np.where(visible, lens.scores[0], 0), np.where(visible, own, 0))
    for scores, got in zip(lens.scores, weights):
        close(got, fa.masked_softmax(scores / 7.0, mask=NOT_0))
    with lens:
        assert lens.scores == []


@pytest.mark.parametrize(
    "options", [{"chunk_size": 2}, {"need_weights": False}, {"across": fa.Across(None, ring=True)}]
)
def test_kept_scores_are_there_also_in_blocks(options):
    query, key = draw(0, B, 2, 4, D), draw(1, B, 300, 2, D)
    mesh = jax.make_mesh((1,), ("sequence",), (AxisType.Auto,))
    if "across" in options:
        options = {"across": fa.Across(mesh, ring=True)}
    context, _ = fa.dot_product_attention(query, key, key)
    with Lens(keep_scores=True) as lens:
        got, weights = fa.dot_product_attention(query, key, key, **options)
    assert weights is None
    close(got, context)
    (scores,) = lens.scores
    close(scores, jnp.einsum("bqhd,bkhd->bhqk", query, jnp.repeat(key, 2, axis=2)) / D**0.5)


# --- nested lenses, and what is refused ---


def test_only_the_innermost_lens_counts():
    look = lambda: fa.attend(X, X, X).weights
    plain = look()
    with Lens(temperature=2.0, mask=NOT_0):
        outer = look()
        with Lens(temperature=3.0):
            close(look(), expected_weights(3.0, None, X))
        with Lens():
            np.testing.assert_array_equal(look(), plain)
        np.testing.assert_array_equal(look(), outer)
    np.testing.assert_array_equal(look(), plain)
