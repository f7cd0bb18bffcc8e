"""Heads by name: what is cut, scaled or patched is so to the last bit, and what is measured of them
is what a longer way says, in models with other norms, positions and trees of modules.
"""

import functools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from flax_attn import heads
from flax_attn.attention import (
    Attended,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    Lens,
    MultiHeadAttention,
)
from flax_attn.models import (
    GPT,
    PatchAttention,
    PatchTransformer,
    TranslationTransformer,
    by_block,
    language,
)
from flax_attn.models.generation import NEVER, Sampling, generate
from flax_attn.published.modules import Encoder, EncoderDecoder
from tests.models.variables import draw

close = functools.partial(assert_allclose, rtol=1e-4, atol=1e-5)


class Post(nn.Module):
    """A post-norm encoder of texts, which classifies them by their first token."""

    num_blocks: int = 2

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        for i in range(self.num_blocks):
            parts = MultiHeadAttention(3, name=f"attention{i}"), FeedForward(7, name=f"network{i}")
            x = EncoderBlock(*parts, pre_norm=False, name=f"layer{i}")(x).context
        return nn.Dense(5, name="classes")(x[:, 0])  # alone, without a dict beside it


class Block(nn.Module):
    """A block with its own names and RMS norms, before its parts and after them."""

    attend: nn.Module
    mix: nn.Module

    @nn.compact
    def __call__(self, x):
        context, weights = self.attend(nn.RMSNorm(name="before")(x), causal=True)
        x = x + nn.RMSNorm(name="after")(context)
        return Attended(x + self.mix(nn.RMSNorm(name="own")(x)), weights)


class Rms(nn.Module):
    """A decoder with logits that are not products with the embeddings."""

    num_blocks: int = 2
    gated: bool = False

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        options = {"num_key_heads": 2, "key_features": 16, "rotary": True}
        for i in range(self.num_blocks):
            attention = MultiHeadAttention(4, **options, output_gate=self.gated)
            x = Block(attention, FeedForward(7, nn.silu), name=f"block{i}")(x).context
        return nn.Dense(11, name="logits")(nn.RMSNorm(name="norm")(x)), {}


SIZES = {"vocabulary_size": 11, "max_length": 8, "features": 12, "num_blocks": 2}
TOKENS = np.random.default_rng(0).integers(2, 11, (3, 8))
IMAGES = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
PATCHES = {"num_classes": 5, "features": 8, "num_heads": 2, "hidden_features": 6}
MODELS = {
    "GPT": (GPT(**SIZES, num_heads=3), TOKENS),
    "rotary, grouped": (GPT(**SIZES, num_heads=6, num_key_heads=2, positions="rotary"), TOKENS),
    "post-norm": (Post(), TOKENS),
    "images": (PatchTransformer(**PATCHES, num_blocks=2), IMAGES),
    "RMS norms": (Rms(), TOKENS),
    "gated": (Rms(gated=True), TOKENS),
    "hybrid": (GPT(**SIZES, num_heads=3, attention="gated_delta full"), TOKENS),
}


@functools.cache
def model_of(name):
    """A model, its parameters and inputs, in NumPy."""
    model, inputs = MODELS[name]
    params = draw(model, inputs)["params"]
    ones = lambda path, leaf: np.asarray(leaf + 1 if path[-1].key == "scale" else leaf)
    return model, jax.tree.map_with_path(ones, params), inputs


@functools.partial(jax.jit, static_argnums=0)
def outputs_of(model, params, inputs):
    outputs = model.apply({"params": params}, inputs)
    return outputs[0] if isinstance(outputs, tuple) else outputs


@functools.partial(jax.jit, static_argnums=0)
def patched(model, params, inputs, contexts, shares):
    with heads.patched(contexts, shares):
        return outputs_of(model, params, inputs)


def at(params, path):
    return functools.reduce(lambda tree, name: tree[name], path.split("/"), params)


def without(params, cut):
    """The parameters with zeros in the rows of `out` that belong to heads."""
    params = jax.tree.map(np.array, params)
    for path, numbers in cut.items():
        at(params, path)["out"]["kernel"][list(numbers)] = 0
    return params


# --- cut, scaled, patched ---


class One(nn.Module):
    """A layer whose heads are all that its outputs depend on."""

    gated: bool

    @nn.compact
    def __call__(self, inputs):
        return MultiHeadAttention(2, output_gate=self.gated, name="attention")(inputs).context


@pytest.mark.parametrize("gated", [False, True])
def test_heads_that_all_say_what_they_say_on_other_inputs_give_its_outputs(gated):
    inputs, others = np.random.default_rng(3).normal(size=(2, 2, 5, 8)).astype(np.float32)
    model = One(gated)
    params = draw(model, inputs)["params"]
    contexts = heads.contexts_of(model, params, others)
    expected = outputs_of(model, params, others)
    ours = patched(model, params, inputs, contexts, {"attention": jnp.ones(2)})
    assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "hybrid"])
def test_a_head_that_is_cut_has_zero_rows_in_out_to_the_last_bit(name):
    """Whether its context is 0, or its weights are."""
    model, params, inputs = model_of(name)
    ones, before = heads.heads_of(model, params, inputs), outputs_of(model, params, inputs)
    first, last = list(ones)
    cut = {first: [1], last: [0, len(ones[last]) - 1]}
    expected = outputs_of(model, without(params, cut), inputs)
    assert np.abs(expected - before).max() > 1e-3
    factors = {path: ones[path].at[jnp.array(numbers)].set(0) for path, numbers in cut.items()}
    no_weights = {
        f"{path}/weights": lambda site, own, numbers=numbers: own.at[:, jnp.array(numbers)].set(0)
        for path, numbers in cut.items()
    }
    for own in (heads.cut(cut), heads.scaled(factors), Lens(change=no_weights)):
        with own:
            assert_array_equal(outputs_of(model, params, inputs), expected)
    assert_array_equal(outputs_of(model, params, inputs), before)


def test_paths_of_no_layer_are_told_where_layers_attended():
    model, params, inputs = model_of("GPT")
    contexts = heads.contexts_of(model, params, inputs)
    strange = {"block_1": jnp.ones(3)}
    known = {"blocks_1/attention": jnp.zeros(3)}
    said = "blocks_0/attention.*block_1"
    for make in (
        lambda numbers: heads.cut({path: [0] for path in numbers}),
        heads.scaled,
        lambda numbers: heads.patched(
            {path: contexts.get(path, jnp.zeros((1, 1, 3, 1))) for path in numbers}, numbers
        ),
    ):
        with pytest.raises(ValueError, match=said), make(strange):
            outputs_of(model, params, inputs)
        with make(strange | known):  # part of a model may run alone
            outputs_of(model, params, inputs)
        for none_runs in (strange, {}):
            with make(none_runs):
                pass
        with pytest.raises(RuntimeError, match="own"), make(strange):
            raise RuntimeError("own", outputs_of(model, params, inputs))


@pytest.mark.parametrize("number", [3, -1])
def test_a_head_that_there_is_not_is_told(number):
    model, params, inputs = model_of("GPT")
    cut = heads.cut({"blocks_1/attention": [0, number]})
    with pytest.raises(ValueError, match="from 0 to 2"), cut:
        outputs_of(model, params, inputs)


def test_one_program_serves_all_factors():
    chex.clear_trace_counter()
    model, params, inputs = model_of("GPT")

    @jax.jit
    @chex.assert_max_traces(n=1)
    def scaled(params, factors):
        with heads.scaled(factors):
            return outputs_of(model, params, inputs)

    ones = {path: np.ones(3, np.float32) for path in heads.heads_of(model, params, inputs)}
    assert list(ones) == ["blocks_0/attention", "blocks_1/attention"]
    # another program than without factors, in which XLA may round the last digit otherwise
    assert_allclose(scaled(params, ones), outputs_of(model, params, inputs), rtol=0, atol=1e-6)
    for path in ones:
        for head in range(3):
            expected = scaled(without(params, {path: [head]}), ones)
            factors = ones | {path: np.where(np.arange(3) == head, 0, ones[path])}
            assert_array_equal(scaled(params, factors), expected)


def test_heads_that_say_what_they_say_on_a_source_restore_what_it_has():
    """From position 3 on, tokens are equal. There nothing but the heads can differ."""
    model, params, source = model_of("GPT")
    inputs = source.copy()
    inputs[:, :3] = inputs[:, 2::-1]
    contexts, own = (heads.contexts_of(model, params, tokens) for tokens in (source, inputs))
    ones = heads.heads_of(model, params, inputs)
    expected, before = (outputs_of(model, params, tokens) for tokens in (source, inputs))
    assert np.abs(expected - before)[:, 3:].max() > 1e-2
    look = functools.partial(patched, model, params, inputs)
    close(look(contexts, ones)[:, 3:], expected[:, 3:])
    assert_array_equal(look(contexts, {path: 0 * one for path, one in ones.items()}), before)
    between = {path: (contexts[path] + own[path]) / 2 for path in ones}
    last = list(ones)[-1]
    halves = {path: one / 2 if path == last else 0 * one for path, one in ones.items()}
    close(look(contexts, halves), look(between, {p: jnp.round(2 * s) for p, s in halves.items()}))


@pytest.mark.parametrize("is_large", [False, True])
def test_heads_of_one_block_are_cut_there_alone_however_a_model_is_compiled(is_large, monkeypatch):
    monkeypatch.setattr(by_block, "is_large", lambda model, params: is_large)
    model, params, tokens = model_of("GPT")
    before = language.logits_of(model, params, tokens)
    with heads.cut({"blocks_1/attention": [0]}):
        expected = outputs_of(model, params, tokens)
        close(language.logits_of(model, params, tokens), expected)
        prompts = tokens[:1, :4].tolist()
        written = np.concatenate(list(generate(model, params, prompts, 3, Sampling(0.0))), axis=1)
    assert np.abs(expected - before).max() > 1e-2
    row = tokens[:1, :4]
    for _ in range(3):
        with heads.cut({"blocks_1/attention": [0]}):
            last = outputs_of(model, params, row)[:, -1, NEVER:]
        row = np.concatenate([row, last.argmax(axis=-1)[:, None] + NEVER], axis=1)
    assert_array_equal(written, row[:, 4:])


# --- what heads do ---


def squares(outputs):
    return jnp.sum(outputs**2)


def test_the_effect_of_a_head_is_what_a_cut_or_a_patch_of_it_alone_does():
    model, params, inputs = model_of("images")
    source, whole = inputs[::-1].copy(), squares(outputs_of(model, params, inputs))
    contexts = heads.contexts_of(model, params, source)
    cuts = heads.effects(model, params, inputs, squares)
    patches = heads.effects(model, params, inputs, squares, source)
    assert list(cuts) == list(patches) == list(contexts)
    for path, head in zip(cuts, (0, 1)):
        rest = squares(outputs_of(model, without(params, {path: [head]}), inputs))
        close(cuts[path][head], whole - rest, atol=1e-3)
        shares = {at: np.zeros(len(own), np.float32) for at, own in cuts.items()}
        shares[path][head] = 1
        rises = squares(patched(model, params, inputs, contexts, shares)) - whole
        close(patches[path][head], rises, atol=1e-3)
        assert np.abs([cuts[path][head], patches[path][head]]).min() > 5e-3


def test_all_heads_are_one_program():
    chex.clear_trace_counter()
    model, params, inputs = model_of("GPT")
    counted = chex.assert_max_traces(squares, n=1)
    first = heads.effects(model, params, inputs, counted)
    again = heads.effects(model, jax.tree.map(lambda leaf: leaf * 1.5, params), inputs, counted)
    assert np.abs(first["blocks_0/attention"] - again["blocks_0/attention"]).max() > 0


@pytest.mark.parametrize("name", ["GPT", "hybrid", "texts", "pairs"])
def test_a_large_model_goes_block_by_block_with_the_same_effects(name, monkeypatch):
    if name == "pairs":
        model, measure = EncoderDecoder(11, 8, 12, 3, 4, 7, 1, 2), squares
        lengths = np.array([3, 8, 5], np.int32)
        inputs = {"source": TOKENS, "source_lengths": lengths, "target": TOKENS[:, :5]}
        params = draw(model, inputs)["params"]
    elif name != "texts":
        (model, params, inputs), measure = model_of(name), squares
    else:  # of two lengths, with padding that a measure of the first token does not see
        model = Encoder(11, 8, 12, 3, 2, 7, head="classes", num_classes=4)
        inputs = {"tokens": TOKENS, "lengths": np.array([3, 8, 5], np.int32)}
        params, measure = (
            draw(model, inputs)["params"],
            lambda classes: classes[0, 0] - classes[1, 2],
        )
    source = jax.tree.map(lambda array: array[::-1].copy(), inputs)
    at_once = [heads.effects(model, params, inputs, measure, other) for other in (None, source)]
    contexts = heads.contexts_of(model, params, inputs)
    monkeypatch.setattr(by_block, "is_large", lambda model, params: True)
    for other, expected in zip((None, source), at_once):
        found = heads.effects(model, params, inputs, measure, other)
        assert list(found) == list(expected)
        # differences of a measure of some thousands
        jax.tree.map(functools.partial(close, atol=1e-3), found, expected)
    jax.tree.map(close, heads.contexts_of(model, params, inputs), contexts)


@pytest.mark.parametrize("function", [heads.effects, heads.direct])
def test_seeds_that_are_mapped_have_their_own(function):
    model, params, inputs = model_of("GPT")
    seeds = [params, jax.tree.map(lambda leaf: leaf * np.float32(1.3), params)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *seeds)
    mapped = jax.vmap(lambda params: function(model, params, inputs, squares))(stacked)
    for i, params in enumerate(seeds):
        for path, own in function(model, params, inputs, squares).items():
            close(mapped[path][i], own, atol=1e-3)


def affine(norm, params, inputs, vectors):
    """What a norm makes of vectors, with the deviation of its inputs."""
    centred = lambda x: x - x.mean(-1, keepdims=True) if norm is nn.LayerNorm else x
    deviation = np.sqrt((centred(inputs) ** 2).mean(-1, keepdims=True) + 1e-6)
    return centred(vectors) / deviation * params["scale"]


def states_of(model, params, inputs, names):
    keep = lambda module, _: module.name in names
    apply = jax.jit(functools.partial(model.apply, capture_intermediates=keep))
    _, kept = apply({"params": params}, inputs)
    return kept["intermediates"]


@pytest.mark.parametrize("name", ["GPT", "hybrid"])
def test_the_direct_part_of_a_head_is_its_row_of_out_through_the_norm_and_the_embeddings(name):
    model, params, inputs = model_of(name)
    towards = inputs[:, ::-1]
    right = lambda logits: jnp.take_along_axis(logits, jnp.asarray(towards)[..., None], -1).sum()
    parts = heads.direct(model, params, inputs, right)
    last = states_of(model, params, inputs, ["blocks_1"])["blocks_1"]["__call__"][0].context
    for path, contexts in heads.contexts_of(model, params, inputs).items():
        kernel = at(params, path)["out"]["kernel"].reshape(*contexts.shape[-2:], -1)
        said = np.einsum("bqhe,hed->bqhd", contexts, kernel)
        vectors = affine(nn.LayerNorm, params["norm"], last[:, :, None], said)
        table = params["embedding"]["embedding"][towards]
        close(parts[path], np.einsum("bqhd,bqd->bqh", vectors, table))
        assert np.abs(parts[path]).max() > 1e-2


def test_norms_after_the_parts_and_logits_of_their_own_are_in_the_direct_part():
    model, params, inputs = model_of("RMS norms")
    parts = heads.direct(model, params, inputs, lambda logits: logits[..., 4].sum())
    last = states_of(model, params, inputs, ["block1"])["block1"]["__call__"][0].context
    for i, (path, contexts) in enumerate(heads.contexts_of(model, params, inputs).items()):
        out = at(params, path)["out"]
        said = np.einsum("bqhe,hed->bqhd", contexts, out["kernel"])
        together = (said.sum(2) + out["bias"])[:, :, None]
        said = affine(nn.RMSNorm, params[f"block{i}"]["after"], together, said)
        vectors = affine(nn.RMSNorm, params["norm"], last[:, :, None], said)
        close(parts[path], vectors @ params["logits"]["kernel"][:, 4])


def test_the_direct_part_goes_through_the_norms_of_a_post_norm_block():
    model, (_, params, inputs) = Post(num_blocks=1), model_of("post-norm")
    block, path = params["layer0"], "attention0"
    parts = heads.direct(model, params, inputs, lambda logits: logits[:, 2].sum())
    assert list(parts) == [path]
    contexts, out = heads.contexts_of(model, params, inputs)[path], params[path]["out"]
    said = np.einsum("bqhe,hed->bqhd", contexts, out["kernel"])
    x = params["embedding"]["embedding"][inputs] + said.sum(2) + out["bias"]
    params = {name: own for name, own in params.items() if name[-1] != "1"}
    first = nn.LayerNorm().apply({"params": block["attention_norm"]}, x)
    second = first + FeedForward(7).apply({"params": params["network0"]}, first)
    for norm, into in (("attention_norm", x), ("feed_forward_norm", second)):
        said = affine(nn.LayerNorm, block[norm], into[:, :, None], said)
    expected = said @ params["classes"]["kernel"][:, 2]
    close(parts[path][:, 0], expected[:, 0])
    assert not parts[path][:, 1:].any()  # the first token alone is read


class ByHand(nn.Module):
    """A block as `DecoderBlock`, which returns an array or a tuple, with dropout as a field."""

    attention: nn.Module
    feed_forward: nn.Module
    dropout: nn.Module
    returns: str

    @nn.compact
    def __call__(self, x):
        context, weights = self.attention(nn.LayerNorm(name="attention_norm")(x), causal=True)
        x = x + self.dropout(context, deterministic=True)
        x = x + self.feed_forward(nn.LayerNorm(name="feed_forward_norm")(x))
        return {"array": x, "tuple": (x, weights), "nothing beside": (x, None)}[self.returns]


class ByHandModel(nn.Module):
    """Two blocks of the library, or of one's own."""

    returns: str

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        for i in range(2):
            attention = MultiHeadAttention(3, name=f"attention{i}")
            network = FeedForward(7, name=f"network{i}")
            if self.returns == "of the library":
                x = DecoderBlock(attention, None, network, name=f"block{i}")(x).context
            else:
                block = ByHand(attention, network, nn.Dropout(0.5), self.returns, name=f"block{i}")
                outputs = block(x)
                x = outputs[0] if isinstance(outputs, tuple) else outputs
        return nn.Dense(11, name="logits")(nn.LayerNorm(name="norm")(x))


@pytest.mark.parametrize("returns", ["array", "tuple", "nothing beside"])
def test_a_block_of_ones_own_is_as_one_of_the_library(returns):
    theirs, own = ByHandModel("of the library"), ByHandModel(returns)
    params = draw(theirs, TOKENS)["params"]
    expected = heads.logits_by_block(theirs, params, TOKENS)
    close(heads.logits_by_block(own, params, TOKENS), expected)
    assert np.abs(expected[0] - expected[1]).max() > 1e-2
    parts = (heads.direct(model, params, TOKENS, squares) for model in (theirs, own))
    chex.assert_trees_all_close(*parts, rtol=1e-4)


@pytest.mark.parametrize("name", ["GPT", "hybrid", "post-norm"])
def test_the_logit_lens_is_the_model_with_fewer_blocks(name):
    model, params, inputs = model_of(name)
    by_block = heads.logits_by_block(model, params, inputs)
    close(by_block[1], outputs_of(model, params, inputs))
    close(by_block[0], outputs_of(model.clone(num_blocks=1), params, inputs))
    assert len(by_block) == 2
    assert np.abs(by_block[0] - by_block[1]).max() > 1e-2


def test_layers_come_in_the_order_of_blocks():
    model = GPT(**SIZES | {"num_blocks": 11}, num_heads=2)
    params = draw(model, TOKENS)["params"]
    names = [f"blocks_{i}/attention" for i in range(11)]
    assert list(heads.heads_of(model, params, TOKENS)) == names


def test_the_rollout_is_the_product_of_the_blocks_in_their_order():
    weights = np.random.default_rng(0).dirichlet(np.ones(4), (11, 2, 3, 4))  # (blocks, b, h, t, t)
    product = np.eye(4)[None]
    for own in weights:
        product = (own.mean(axis=1) + np.eye(4)[None]) / 2 @ product
    by_block = {f"block{i}": own for i, own in enumerate(weights, 1)}
    as_jax_sorts = dict(sorted(by_block.items()))
    assert list(as_jax_sorts)[1] == "block10"
    close(heads.rollout(as_jax_sorts), product)
    close(heads.rollout(jax.tree.map(jnp.asarray, by_block)), product)
    close(product.sum(axis=-1), np.ones((2, 4)))


# --- what does not fit ---


class Twice(nn.Module):
    """A model that uses its block twice, as ALBERT does."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        attention = MultiHeadAttention(3, name="attention")
        block = EncoderBlock(attention, FeedForward(7), name="block")
        return block(block(x).context).context


class Alone(nn.Module):
    """A model with attention in no block."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        return x + MultiHeadAttention(3, name="attention")(nn.LayerNorm(name="norm")(x)).context


class Made(nn.Module):
    """A block that makes its attention as it is called, before another norm."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        return MadeBlock(name="block")(x)


class MadeBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + MultiHeadAttention(3, name="made")(nn.LayerNorm()(x)).context
        return x + nn.Dense(12, name="network")(nn.relu(x))


class Grouped(nn.Module):
    """A model with another norm."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 12, name="embedding")(tokens)
        x = EncoderBlock(MultiHeadAttention(3), FeedForward(7), name="block")(x).context
        return nn.GroupNorm(3, name="norm")(x)


PAIR = {"source": TOKENS, "source_lengths": np.full(3, 8), "target": TOKENS}
TRANSLATION = TranslationTransformer(
    11, 11, features=12, num_heads=2, num_blocks=1, hidden_features=5
)
REFUSED = {
    "no heads": (heads.effects, PatchAttention(5, 4), IMAGES, "attention in heads"),
    "a block called twice": (heads.effects, Twice(), TOKENS, "one call .* 'attention'"),
    "no block, direct": (heads.direct, Alone(), TOKENS, "attention in blocks"),
    "no block, logits": (heads.logits_by_block, Alone(), TOKENS, r"one stack .* got \[\]"),
    "two stacks": (heads.logits_by_block, TRANSLATION, PAIR, r"got \['decoder_', 'encoder_'\]"),
    "attention that is made": (heads.direct, Made(), TOKENS, "attention a field of the block"),
    "another norm": (heads.direct, Grouped(), TOKENS, "norms of Flax, got GroupNorm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_does_not_fit_is_refused_in_one_line(name):
    function, model, inputs, match = REFUSED[name]
    params = draw(model, inputs)["params"]
    args = () if function is heads.logits_by_block else (squares,)
    with pytest.raises(ValueError, match=match) as caught:
        function(model, params, inputs, *args)
    assert "\n" not in str(caught.value)


def test_contexts_that_do_not_fit_are_told_and_their_mean_does():
    model, params, inputs = model_of("GPT")
    ones, contexts = (f(model, params, inputs) for f in (heads.heads_of, heads.contexts_of))
    with pytest.raises(TypeError, match="shapes"):
        heads.effects(model, params, inputs, squares, inputs[:, :6])
    means = {path: own.mean((0, 1), keepdims=True) for path, own in contexts.items()}
    whole = {path: jnp.broadcast_to(own, contexts[path].shape) for path, own in means.items()}
    outputs = [patched(model, params, inputs, own, ones) for own in (means, whole)]
    close(*outputs)
    assert np.abs(outputs[0] - outputs_of(model, params, inputs)).max() > 1e-2
