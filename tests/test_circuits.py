"""Edges and parts of scores: what is derived is what patching by hand gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flax_attn import circuits, heads
from flax_attn.attention import Lens
from flax_attn.published.modules import Decoder
from tests.test_heads import close, model_of, outputs_of

measure = lambda logits: logits[0, -1, 3] - logits[1, 2, 4]
GROUPED = "rotary, grouped"


def normed(x, norm, x_own):
    """A layer norm whose deviation is that of other inputs."""
    centred = lambda x: x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred(x_own) ** 2).mean(axis=-1, keepdims=True) + 1e-6)
    return np.asarray(centred(x) / deviation) * np.asarray(norm["scale"])


@pytest.mark.parametrize("name", ["GPT", GROUPED, "hybrid"])
def test_parts_add_up_to_a_score(name):
    model, params, inputs = model_of(name)
    layer, head = "blocks_1/attention", 2
    parts = circuits.score_parts(model, params, inputs, layer, head, query=6, key=3)
    scores = heads.read(model, params, inputs, ("*/scores",))[f"{layer}/scores"]
    close(parts.pairs.sum(axis=(1, 2)), scores[:, head, 6, 3])
    of_heads = [f"blocks_0/attention[{i}]" for i in range(model.num_heads)]
    assert parts.names == ("bias", "embedding", *of_heads, "blocks_0/feed_forward")
    largest = parts.largest(2)
    assert abs(largest[0][2]) >= abs(largest[1][2]) == sorted(np.abs(parts.pairs[0].ravel()))[-2]
    is_bias = lambda path: path[-1].key == "bias"
    no_biases = jax.tree.map_with_path(lambda path, leaf: leaf * (not is_bias(path)), params)
    pairs = circuits.score_parts(model, no_biases, inputs, layer, head, query=6, key=3).pairs
    close(pairs[:, 0], 0)
    close(pairs[:, :, 0], 0)


def test_a_pair_of_parts_is_the_product_of_what_two_layers_added():
    model, params, inputs = model_of("GPT")
    sites = heads.read(model, params, inputs)
    (q, k), block = (6, 3), params["blocks_1"]
    context, state = sites["blocks_0/attention/context"], sites["blocks_1/before"]
    of_head = context[:, k, 1] @ params["blocks_0"]["attention"]["out"]["kernel"][1]  # (b, d)
    of_network = sites["blocks_0/feed_forward/output"][:, q]
    norm, attention = block["attention_norm"], block["attention"]
    query = normed(of_network, norm, state[:, q]) @ attention["query"]["kernel"][:, 2]
    key = normed(of_head, norm, state[:, k]) @ attention["key"]["kernel"][:, 2]
    parts = circuits.score_parts(model, params, inputs, "blocks_1/attention", 2, query=q, key=k)
    pair = [parts.names.index(f"blocks_0/{name}") for name in ("feed_forward", "attention[1]")]
    close(parts.pairs[:, *pair], (query * key).sum(axis=-1) / np.sqrt(query.shape[-1]))


@pytest.mark.parametrize("target", ["attention/key[2]", "feed_forward"])
@pytest.mark.parametrize("source", ["attention[1]", "feed_forward"])
def test_an_edge_that_is_patched_is_one_part_that_reads_other_states(source, target):
    model, params, inputs = model_of("GPT")
    own, other = (heads.read(model, params, x) for x in (inputs, inputs[::-1]))
    change = lambda site: other[f"blocks_0/{site}"] - own[f"blocks_0/{site}"]
    kernel = params["blocks_0"]["attention"]["out"]["kernel"]
    added = change("attention/context")[:, :, 1] @ kernel[1]  # (b, t, d)
    added = change("feed_forward/output") if source == "feed_forward" else added
    part, site = ("before", "attention/key"), slice(2, 3)
    if target == "feed_forward":
        part, site = ("middle", "feed_forward/output"), slice(None)
    read, made = (f"blocks_1/{name}" for name in part)
    with Lens(change={read: lambda site, own: own + added}):
        moved = heads.read(model, params, inputs, (made,))[made]
    replace = lambda _, own: own.at[:, :, site].set(moved[:, :, site])
    with Lens(change={made: replace}):
        expected = measure(outputs_of(model, params, inputs))
    expected = expected - measure(outputs_of(model, params, inputs))
    edges = circuits.edges(model, params, inputs, measure, inputs[::-1], exact=True)
    row = edges.sources.index(f"blocks_0/{source}")
    close(edges.effects[row, edges.targets.index(f"blocks_1/{target}")], expected)


@pytest.mark.parametrize("name", ["images", "GPT"])
def test_edges_are_derivatives(name):
    """They are those of small changes: of images, or of embeddings."""
    model, params, inputs = model_of(name)
    number = lambda outputs: outputs.ravel()[3] - outputs.ravel()[-2]
    draw = np.random.default_rng(0).normal
    if name == "images":
        source = inputs + 1e-3 * draw(size=inputs.shape).astype(np.float32)
        found = [
            circuits.edges(model, params, inputs, number, source, **options).effects
            for options in ({}, {"steps": 2}, {"exact": True})
        ]
        *derived, exact = found
        largest = np.abs(exact).max()
        assert largest > 0
        for effects in derived:
            np.testing.assert_allclose(effects, exact, rtol=0, atol=0.03 * largest)
        return
    edges = circuits.edges(model, params, inputs, number, inputs[::-1])
    column = edges.targets.index("blocks_0/attention/value[0]")
    assert not edges.effects[1:, column].any()  # the embedding alone comes before
    assert edges.effects[0, column]


def test_models_whose_states_are_normed_have_no_edges():
    model, params, inputs = model_of("post-norm")
    with pytest.raises(ValueError, match="pre-norm"):
        circuits.edges(model, params, inputs, lambda logits: logits[0, 0], inputs[::-1])
    model, params, inputs = model_of("GPT")
    with pytest.raises(ValueError, match="blocks_1/attention"):
        circuits.score_parts(model, params, inputs, "block2", 0, query=1, key=0)


@pytest.mark.parametrize("name", ["GPT", "hybrid"])
def test_jacobians_are_those_of_all_positions_together(name):
    model, params, inputs = model_of(name)
    maps = heads.jacobians(model, params, inputs)
    close(maps["blocks_1"], np.eye(model.features))
    direction = jnp.arange(model.features)[None, None] / 10

    def total(step):
        with Lens(change={"blocks_0/after": lambda _, own: own + step * direction}):
            last = heads.read(model, params, inputs, ("blocks_1/after",))["blocks_1/after"]
        return last.sum(axis=(0, 1))  # (d,)

    _, slope = jax.jvp(total, (0.0,), (1.0,))
    close(maps["blocks_0"] @ direction[0, 0], slope / inputs.size)
    logits = heads.logits_by_block(model, params, inputs, maps)
    plain = heads.logits_by_block(model, params, inputs)
    close(logits[1], plain[1])
    assert np.abs(logits[0] - plain[0]).max() > 1e-2


def test_positions_count_from_the_end_and_what_is_not_there_is_refused():
    model, params, inputs = model_of(GROUPED)
    split = lambda head=2, query=6, key=3: circuits.score_parts(
        model, params, inputs, "blocks_1/attention", head, query=query, key=key
    )
    length = inputs.shape[1]
    close(split(query=6 - length).pairs, split().pairs)  # one of them turned
    for wrong in ({"head": model.num_heads}, {"head": -1}, {"query": length}, {"key": -length - 1}):
        with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} from"):
            split(**wrong)
    with Lens(mask=np.arange(length) != 1):  # of all tokens, where blocks get two
        layer = "blocks_1/attention/scores"
        scores = heads.read(model, params, inputs, (layer,))[layer]
        close(split().pairs.sum(axis=(1, 2)), scores[:, 2, 6, 3])
    add = lambda site, own: own.at[:, -1].add(1.0)
    with Lens(change={"blocks_1/before": add}), pytest.raises(ValueError, match="change"):
        split()
    with pytest.raises(ValueError, match=r"'[*]' reads all, got 'query'"):
        heads.read(model, params, inputs, ("query",))


def test_sources_of_another_shape_are_refused():
    model, params, inputs = model_of("GPT")
    for source in (inputs[:1], inputs[:, :1]):
        with pytest.raises(ValueError, match="shape"):
            circuits.edges(model, params, inputs, measure, source)
    with pytest.raises(ValueError, match="step"):
        circuits.edges(model, params, inputs, measure, inputs[::-1], steps=0)
    site = "blocks_0/after"
    longer = {site: np.zeros((3, *np.shape(inputs), model.features))}
    with pytest.raises(ValueError, match="shape"):
        heads.attributed(model, params, inputs, measure, longer)


def test_what_a_part_adds_goes_through_the_norm_of_outputs():
    sizes = {"vocabulary_size": 9, "max_length": 8, "features": 8, "num_heads": 2}
    model = Decoder(**sizes, num_blocks=2, hidden_features=16, output_norm=True)
    tokens = jnp.array([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])
    params = model.init(jax.random.key(0), tokens)["params"]
    own, other = (heads.read(model, params, x) for x in (tokens, tokens[:, ::-1]))
    site, last = "blocks_0/feed_forward", "blocks_1/feed_forward/output"
    with Lens(change={f"{site}/output": lambda *_: other[f"{site}/output"]}):
        added = heads.read(model, params, tokens)["blocks_0/after"] - own["blocks_0/after"]
    with Lens(change={"blocks_1/middle": lambda _, own: own + added}):
        moved = heads.read(model, params, tokens)[last]
    with Lens(change={last: lambda *_: moved}):
        expected = measure(outputs_of(model, params, tokens))
    expected = expected - measure(outputs_of(model, params, tokens))
    edges = circuits.edges(model, params, tokens, measure, tokens[:, ::-1], exact=True)
    close(edges.effects[edges.sources.index(site), -1], expected)


def test_parts_and_jacobians_in_half_precision():
    model, params, inputs = model_of(GROUPED)
    half = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
    maps, wide = (heads.jacobians(model, own, inputs)["blocks_0"] for own in (half, params))
    np.testing.assert_allclose(np.float32(maps), wide, atol=0.1 * np.abs(wide).max())
    arrays, at = (inputs, "blocks_1/attention", 2), {"query": 6, "key": 3}
    parts, wide = (circuits.score_parts(model, own, *arrays, **at).pairs for own in (half, params))
    np.testing.assert_allclose(np.float32(parts), wide, atol=0.1 * np.abs(wide).max())
