"""What a published model answers a page: cuts, their effects, and the path of a token."""

import base64
import json
import zlib

import jax
import numpy as np
import pytest

import flax_attn
from flax_attn import circuits, heads
from flax_attn.errors import UsageError, escaped
from flax_attn.experiment.loading import Model
from flax_attn.explore.published import (
    VECTORS,
    PublishedAnswers,
    name_of,
    page_data,
    pooled,
    trimmed,
)
from flax_attn.published.modules import Decoder, EncoderDecoder
from flax_attn.published.tasks import Prepared
from flax_attn.tasks.asking import read
from flax_attn.tasks.replies import numbers_of
from tests.published import tiny

TEXT = "The cat sat on the mat"
WRITES = {
    "gpt2": tiny.write_gpt2,
    "hybrid": tiny.write_hybrid,
    "words": tiny.write_bert,
    "t5": tiny.write_t5,
    "classes": lambda folder: tiny.write_bert(folder, "classes"),
    "vit": tiny.write_vit,
}
SOURCE = "the cat sat on a dog"
ASKS = {
    "t5": {"text": SOURCE},
    "gpt2": {"text": TEXT},
    "hybrid": {"text": TEXT},
    "words": {"text": "the cat [MASK] on the mat"},
    "classes": {"text": "the cat sat on the mat"},
    "vit": {"inputs": {"shape": [8, 8], "data": [i / 64 for i in range(64)]}},
}


@pytest.fixture(scope="module", params=WRITES)
def model(request, tmp_path_factory):
    run = flax_attn.load(WRITES[request.param](tmp_path_factory.mktemp("published") / "own"))
    return run, PublishedAnswers(run), ASKS[request.param]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    run = flax_attn.load(tiny.write_gpt2(tmp_path_factory.mktemp("published") / "gpt2"))
    return run, PublishedAnswers(run), {"text": TEXT}


def ask(answers, inputs, settings=None, **further):
    return answers({"inputs": inputs, "settings": settings or {}} | further)


def predicted(run, inputs):
    """The classes of an input in falling order, by `predict`."""
    if isinstance(run.model, EncoderDecoder):  # the first token that is written
        made = run.predict(inputs["text"])
        sources = run.task.inputs.encode([inputs["text"]])
        pair = sources | {"target": np.zeros((1, 1), np.int32)}
        logits, _ = jax.jit(run.model.apply)({"params": run.params[0]}, pair)
        shares = np.asarray(jax.nn.softmax(logits[0, 0])).tolist()
        return made, dict(zip(map(escaped, run.task.target.class_names()), shares))
    if "text" in inputs:
        made = run.predict(inputs["text"])
    else:
        made = run.predict(np.reshape(inputs["inputs"]["data"], (1, 8, 8)))
    return made, dict(zip(map(escaped, made.names), made.outputs[0].tolist()))


def without_head(run, num_heads, block, head):
    """The model whose head adds nothing, since its rows of `out` are 0."""
    params = jax.tree.map(np.array, run.params[0])
    kernel = params[f"blocks_{block}"]["attention"]["out"]["kernel"]
    kernel.reshape(num_heads[block], -1)[head] = 0  # (heads, e, d), or (heads e, d)
    return Model(run.path, run.task, run.model, {0: params})


def test_the_answer_and_the_weights_are_those_of_predict(model):
    run, answers, inputs = model
    made, shares = predicted(run, inputs)
    reply = ask(answers, inputs, view={"attention": 1, "head": 1})
    for name, share in reply["classes"]:
        assert share == pytest.approx(shares[name], abs=1e-6)
    row = numbers_of(reply["attention"][answers.layers[1].name])[0, 0]
    token = reply["view"]["token"]
    name = "encoder1" if isinstance(run.model, EncoderDecoder) else "block1"
    weights = np.asarray(made.attention[name][0])[1]
    np.testing.assert_allclose(row, weights[min(token, len(weights) - 1)], atol=1e-6)


def test_the_token_of_a_teacher_is_no_patch(tmp_path):
    run = flax_attn.load(tiny.write_vit(tmp_path / "own", teacher=True))
    images = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 8, 8)
    looks = run.predict(images).attention["block0"]
    own = {"params": run.params[0]}
    _, aux = jax.jit(run.model.apply)(own, 2 * images[..., None] - 1)
    np.testing.assert_allclose(looks, aux["attention"]["block0"][..., :1, 2:], atol=1e-6)


def test_a_cut_head_is_one_that_adds_nothing(model):
    run, answers, inputs = model
    ask(answers, inputs)
    compiled = answers.block._cache_size()
    for block, head in ((0, 1), (1, 0)):
        reply = ask(answers, inputs, {"cut": [[block, head]]})
        _, shares = predicted(without_head(run, answers.heads, block, head), inputs)
        for name, share in reply["classes"]:
            assert share == pytest.approx(shares[name], abs=1e-6)
    assert answers.block._cache_size() == compiled


def test_what_each_change_does_is_the_answer_with_it_less_that_without(model):
    _, answers, inputs = model
    settings = {"temperature": 2.0, "cut": [[0, 0]]}
    [[best, share], *_] = ask(answers, inputs, settings)["classes"]
    changes = [{"cut": [[1, 0]]}, {"cut": [[1, 1]]}, {"hidden": [2]}, {"cut": [[0, 0]]}]
    changes += [{"hidden": [0]}]  # more than go through the program at once
    told = ask(answers, inputs, settings, changes=changes)["effects"]
    for change, value in zip(changes, told, strict=True):
        both = settings | change | {"cut": [*settings["cut"], *change.get("cut", [])]}
        after = dict(ask(answers, inputs, both)["classes"])
        assert value == pytest.approx(after[best] - share, abs=1e-6)
    assert told[3] == pytest.approx(0, abs=1e-7)  # it is cut already
    assert abs(told[0] - told[1]) > 1e-6


def test_an_encoder_and_decoder_has_three_attentions_and_one_query_of_each(tmp_path):
    """Of a token of the source, or of one that is written; heads that are cut add nothing."""
    run = flax_attn.load(tiny.write_t5(tmp_path))
    answers, asked = PublishedAnswers(run), {"text": "a dog sat"}
    made = run.predict(asked["text"])
    ((best,),) = made.translations
    assert best.ended
    names = {"encoder 0": "encoder0", "encoder 1": "encoder1"}
    names |= {"decoder 0": "decoder0", "cross 0": "cross0"}
    assert [own["name"] for own in page_data(run)["attention"]] == [*names]
    for i, (title, name) in enumerate(names.items()):
        reply = ask(answers, asked, view={"attention": i, "head": 1, "token": 1, "source": 2})
        own = made.attention[name][0][1]  # (q, k)
        row = numbers_of(reply["attention"][title])[0, 0]
        np.testing.assert_allclose(row, own[1 + (i < 2)], atol=1e-6)
        np.testing.assert_allclose(unpacked(reply["map"])[0], own, atol=0.01)
        path = reply["path"]
        assert ("key" in path) == (name != "cross0")
        if i < 2:
            assert path["after"] is None
        else:
            assert path["after"][-1][0][1] == pytest.approx(reply["classes"][0][1], abs=1e-6)
    words = made.target_tokens[0][0]
    assert reply["tokens"] == made.tokens[0]
    assert (reply["target"], reply["read"]) == ([*words, "</s>"], ["<pad>", *words])
    shares = dict(reply["classes"])
    for name, i in (("attention", 2), ("cross_attention", 3)):
        params = jax.tree.map(np.array, run.params[0])
        params["blocks_2"][name]["out"]["kernel"][0] = 0  # (heads, e, d)
        other = PublishedAnswers(Model(run.path, run.task, run.model, {0: params}))
        other.written = answers.written  # the text stays as it is
        view = {"token": 1}
        expected = dict(ask(other, asked, view=view)["classes"])
        assert dict(ask(answers, asked, {"cut": [[i, 0]]}, view=view)["classes"]) == pytest.approx(
            expected, abs=1e-6
        )
        assert expected != pytest.approx(shares, abs=1e-3)
    hidden = ask(answers, asked, {"hidden": [1]}, view={"attention": 3, "token": 1})
    assert numbers_of(hidden["attention"]["cross 0"])[0, 0, 1] == 0
    hidden = ask(answers, asked, {"hidden": [1]}, view={"attention": 2, "token": 1})
    assert numbers_of(hidden["attention"]["decoder 0"])[0, 0, 1] > 0


def test_all_settings_are_cut_and_hidden_as_one_program_each(gpt2):
    _, answers, inputs = gpt2
    for changed in ([{"cut": [[0, 0]]}], [{"hidden": [1]}] * 5, [{"cut": [[1, 1]]}] * 4):
        ask(answers, inputs, changes=changed)
    assert answers.blocks._cache_size() == 1


def test_a_hidden_token_has_no_weight(model):
    _, answers, inputs = model
    reply = ask(answers, inputs, {"hidden": [1]})
    row = numbers_of(next(iter(reply["attention"].values())))[0, 0]
    assert row[1] == 0
    assert np.abs(row).sum() > 0.01


def test_the_path_ends_in_the_answer_and_a_token_is_chosen(gpt2):
    run, answers, inputs = gpt2
    reply = ask(answers, inputs)
    path = reply["path"]
    assert [len(own) for own in path["after"]] == [5] * 3  # before the first block, after two
    for one, other in zip(path["after"][-1], reply["classes"]):
        assert one[0] == other[0]
        assert one[1] == pytest.approx(other[1], abs=1e-6)
    third = ask(answers, inputs, view={"token": 2})
    begun = ask(answers, {"text": TEXT[:3]})
    assert third["path"]["after"][-1][0][0] == begun["classes"][0][0]
    params = run.params[0]
    embedded = params["embedding"]["embedding"][run.task.inputs.encoded(TEXT)[2]]
    embedded = embedded + params["position_table"]["embedding"][2]
    np.testing.assert_allclose(numbers_of(third["path"]["residual"]), embedded, atol=1e-6)


def test_the_numbers_of_a_head_follow_from_one_another(gpt2):
    _, answers, inputs = gpt2
    replies = [ask(answers, inputs, view={"head": 1, "token": i}) for i in range(4)]
    part = lambda name: numbers_of(replies[3][name]["block 0"])[0, 0, :4]
    vectors = lambda name: np.stack([numbers_of(reply["path"][name]) for reply in replies])
    weights, query = part("attention"), vectors("query")[3]
    likes = np.exp(part("scores") - part("scores").max())
    np.testing.assert_allclose(weights, likes / likes.sum(), atol=1e-6)
    scores = vectors("key") @ query / np.sqrt(len(query))
    np.testing.assert_allclose(part("scores"), scores, atol=1e-5)
    np.testing.assert_allclose(vectors("context")[3], weights @ vectors("value"), atol=1e-6)


def test_the_largest_parts_of_a_score_come_with_its_key(gpt2):
    run, answers, inputs = gpt2
    view = {"attention": 1, "head": 1, "token": 4}
    reply = ask(answers, inputs, view=view | {"key": 2})
    pairs = reply["path"]["pairs"]
    assert pairs["total"] == pytest.approx(
        numbers_of(reply["scores"]["block 1"])[0, 0, 2], abs=1e-5
    )
    tokens = np.array([run.task.inputs.encoded(TEXT)])
    where = {"query": 4, "key": 2}
    parts = circuits.score_parts(run.model, run.params[0], tokens, "blocks_1/attention", 1, **where)
    for own, expected in zip(pairs["largest"], parts.largest(3), strict=True):
        assert tuple(own[:2]) == expected[:2]
        assert own[2] == pytest.approx(expected[2], abs=1e-5)
    cut = ask(answers, inputs, {"cut": [[0, 0]]}, view=view | {"key": 2})
    score = numbers_of(cut["scores"]["block 1"])[0, 0, 2]
    assert cut["path"]["pairs"]["total"] == pytest.approx(score, abs=1e-5) != pairs["total"]
    assert ask(answers, inputs, view=view)["path"]["pairs"] is None


def test_heads_add_up_to_the_output_of_their_attention(model):
    run, answers, inputs = model
    if isinstance(run.model, EncoderDecoder):
        prepared = answers.written(inputs["text"])
    else:
        prepared = run.task.prepared(read({"inputs": inputs}))
    arrays = prepared.inputs["tokens"] if isinstance(run.model, Decoder) else prepared.inputs
    arrays = arrays if prepared.tokens else 2 * arrays - 1  # an image
    site = "blocks_0/attention/output"
    output = heads.read(run.model, run.params[0], arrays, (site,))[site][0, 1]
    views = [{"head": head, "token": 1, "source": 1} for head in range(answers.heads[0])]
    added = sum(numbers_of(ask(answers, inputs, view=own)["path"]["output"]) for own in views)
    bias = run.params[0]["blocks_0"]["attention"]["out"].get("bias", 0)
    np.testing.assert_allclose(added + bias, output, atol=1e-5)


def test_another_head_of_the_same_pass_is_not_computed_again(gpt2):
    _, answers, inputs = gpt2
    ask(answers, inputs)
    before = answers.last
    ask(answers, inputs, view={"attention": 1, "head": 1})
    assert answers.last is before
    ask(answers, inputs, {"cut": [[0, 0]]})
    assert answers.last is not before


def unpacked(own):
    roots = np.frombuffer(zlib.decompress(base64.b64decode(own["data"])), np.uint8)
    return (roots.reshape(own["shape"]) / 255.0) ** 2


def test_small_maps_have_the_largest_weight_of_each_cell(gpt2):
    run, answers, _ = gpt2
    text = "the cat sat on the mat, and the dog"  # 35 tokens of 64: four rows are one
    weights = run.predict(text).attention
    maps = np.concatenate([unpacked(own) for own in ask(answers, {"text": text})["maps"]])
    assert maps.shape == (4, 12, 12)
    own = np.asarray(weights["block1"][0])[1]
    for row, column in ((0, 0), (5, 2), (11, 8)):
        cells = own[3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        assert maps[3, row, column] == pytest.approx(cells.max(), abs=0.01)


def test_maps_are_pooled_and_lose_their_padding():
    maps = np.arange(2 * 128 * 128, dtype=np.float32).reshape(2, 128, 128)
    small = pooled(maps, 64)
    assert small.shape == (2, 64, 64)
    assert small[1, 0, 0] == maps[1, :2, :2].max()
    np.testing.assert_array_equal(pooled(-maps, 64), -small)  # weights without softmax
    prepared = Prepared({}, [], 67, 128, 66)
    assert trimmed(small, prepared, prepared).shape == (2, 34, 34)
    written = Prepared({}, [], 5, 16, 0)
    assert trimmed(pooled(maps[:, :16], 64), written, prepared).shape == (2, 5, 34)


def test_a_block_without_softmax_has_heads_and_signs_of_its_own(tmp_path):
    run = flax_attn.load(tiny.write_hybrid(tmp_path / "hybrid"))
    answers, expected = PublishedAnswers(run), run.predict(TEXT).attention["block0"][0]
    reply = ask(answers, {"text": TEXT}, view={"attention": 0, "head": 3, "token": 9})
    assert [own["shape"][0] for own in reply["maps"]] == [4, 2]
    assert ["top" in own for own in reply["maps"]] == [True, False]
    assert reply["maps"][0]["top"] == pytest.approx(np.abs(expected).max(), rel=1e-5)
    assert reply["scores"] is None
    row = numbers_of(reply["attention"]["block 0"])[0, 0]
    np.testing.assert_allclose(row, expected[3, 9], atol=1e-6)
    assert row.min() < 0 < row.max()
    sizes = [numbers_of(reply["path"][name]).size for name in VECTORS]
    assert sizes == [4, 4, 6, 6]
    assert [(own["heads"], own["signed"]) for own in page_data(run)["attention"]] == [
        *((4, True), (2, False)),
    ]


@pytest.mark.slow
def test_a_reply_of_many_heads_is_small(tmp_path):
    run = flax_attn.load(tiny.write_gpt2(tmp_path / "deep", num_blocks=40))
    reply = ask(PublishedAnswers(run), {"text": TEXT * 3})
    assert len(reply["tokens"]) > 60
    assert len(json.dumps(reply)) < 60_000


@pytest.mark.parametrize(
    "request_of",
    [
        {"settings": {"cut": [[0]]}},
        {"settings": {"cut": [[0, -1]]}},
        {"view": {"head": True}},
        {"view": {"layer": 1}},
        {"changes": [{}] * 65},
        {"inputs": {"text": " "}},
        {"inputs": {"x": {"shape": [1], "data": [1]}}},
    ],
)
def test_a_bad_request_is_a_one_line_error(request_of, gpt2):
    _, answers, inputs = gpt2
    with pytest.raises(UsageError) as caught:
        answers({"inputs": inputs} | request_of)
    assert "\n" not in str(caught.value)


def test_a_text_that_is_too_long_is_cut_and_said_so(gpt2):
    reply = ask(gpt2[1], {"text": TEXT * 5})
    assert len(reply["tokens"]) == tiny.TOKENS
    assert "64" in reply["note"]


def test_the_page_is_told_of_no_training(model):
    run, answers, _ = model
    shown = page_data(run)
    assert [own["name"] for own in shown["attention"]] == [own.name for own in answers.layers]
    assert {"block 1", "encoder 1"} & {own["name"] for own in shown["attention"]}
    assert not {"summary", "curves", "measured", "command"} & shown.keys()
    if shown["takes"] != "image":
        ask(answers, {"text": shown["text"]})  # the first question has an answer


@pytest.mark.parametrize(
    ("folder", "own", "expected"),
    [
        ("tuned", "openai-community/gpt2", "openai-community/gpt2"),
        ("tuned", "gpt2", "gpt2"),
        ("tuned", "/home/someone/checkpoint-500", "tuned"),
        ("tuned", "./gpt2", "tuned"),
        ("tuned", None, "tuned"),
        ("models--org--fine-tuned/snapshots/0123abc", "org/base", "org/fine-tuned"),
        ("models--gpt2/snapshots/0123abc", None, "gpt2"),
    ],
)
def test_a_model_has_its_real_name(folder, own, expected, tmp_path):
    assert name_of(tmp_path / folder, {"_name_or_path": own} if own else {}) == expected
