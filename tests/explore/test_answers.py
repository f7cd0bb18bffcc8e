"""Answers equal `Run.predict`, and under settings `normalizer(scores / T, mask)` by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn
from flax_attn import heads
from flax_attn.attention import masks
from flax_attn.data.tokenizers import fit_tokenizer
from flax_attn.errors import UsageError
from flax_attn.explore.answers import Answers
from flax_attn.explore.under_lens import NORMALIZERS, Traced
from flax_attn.models.translation import Seq2Seq
from flax_attn.models.translation_transformer import TranslationTransformer
from flax_attn.page.data import safe
from flax_attn.tasks.artifacts import Kept
from flax_attn.tasks.asking import AS_TRAINED, Settings
from flax_attn.tasks.replies import by_heads, numbers_of
from flax_attn.tasks.step_scores import has_scores, of_translations
from tests import tiny
from tests.explore.living import random_inputs, run_of
from tests.models.variables import draw

WORDS = ["a good film and the bad one was long"]
PARTS = ("attention", "scores")
NAMES = tiny.STEPS | {"model.features": 8, "model.num_heads": 2, "data.num_lines": 300}


def train(name, workdir, overrides, data=None):
    with tiny.no_pictures():
        options = {"workdir": workdir, "overrides": overrides, "data": data, "num_epochs": 1}
        return flax_attn.train(name, **options)


def kept_of_texts():
    """Returns the facts that texts with classes leave."""
    tokenizer = fit_tokenizer("word", WORDS, 100)
    files = {"tokenizer.json": tokenizer.to_json(), "labels.json": ["bad", "good", "neither"]}
    derived = {"classes": files["labels.json"], "class_weights": [1.0] * 3}
    return Kept(derived, {"vocabulary_size": tokenizer.size, "num_classes": 3}, files)


@pytest.fixture(scope="module")
def signals():
    run = run_of("shapes_attention", features=8, key_features=8)
    return run, Answers(run), random_inputs(run, 4)


@pytest.fixture(scope="module")
def texts():
    small = {"embedding_features": 8, "features": 8}
    run = run_of("sst_gru_attention", kept_of_texts(), **small)
    return run, Answers(run)


def test_a_reach_of_0_is_the_position_itself_and_none_is_no_bound():
    queries, keys = masks.grid(4, 4)
    distance = np.abs(np.arange(4) - np.arange(4)[:, None])
    for reach, farthest in ((0, 0), (1, 1), (None, 4)):
        visible = Traced.of(Settings(reach=reach)).visible(queries, keys, None)
        np.testing.assert_array_equal(visible, distance <= farthest)


def numbers(array, **settings):
    own = {"shape": list(array.shape), "data": [float(x) for x in array.ravel()]}
    return {"inputs": {"input": own}, "settings": settings}


def text(written, **settings):
    return {"inputs": {"text": written}, "settings": settings}


def arrays(reply, part="attention"):
    return {name: numbers_of(own) for name, own in reply[part].items()}


def test_a_signal_is_answered_as_predict_does(signals):
    run, answers, inputs = signals
    reply, expected = answers(numbers(inputs[0])), run.predict(inputs[:1])
    np.testing.assert_allclose(numbers_of(reply["outputs"]), expected.outputs[0], atol=1e-4)
    weights = arrays(reply)["attention"]
    assert weights.shape == (1, 100, 100)
    np.testing.assert_allclose(weights[0], expected.attention["attention"][0], atol=1e-5)
    assert {reply[name] for name in ("classes", "text", "note", "error")} == {None}
    brief = answers(numbers(inputs[0]) | {"brief": True})
    assert brief == reply | {"attention": {}, "scores": None}


SETTINGS = {
    "temperature": {"temperature": 3.0},
    "reach": {"reach": 4},
    "causal": {"causal": True},
    "hidden": {"hidden": [0, 17, 99]},
    "all": {"temperature": 0.5, "reach": 30, "causal": True, "hidden": [3]},
}


def mask_of(reach=None, causal=False, hidden=(), **_):
    """Who may attend to whom, by a loop."""
    far = 100 if reach is None else reach
    may = lambda q, k: abs(q - k) <= far and not (causal and k > q) and k not in hidden
    return np.array([[may(q, k) for k in range(100)] for q in range(100)])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_weights_under_settings_are_the_normalizer_of_the_scores(name, normalizer, signals):
    _, answers, inputs = signals
    settings = SETTINGS[name]
    reply = answers(numbers(inputs[1], normalizer=normalizer, **settings))
    scores = arrays(reply, "scores")["attention"]
    untouched = arrays(answers(numbers(inputs[1])), "scores")["attention"]
    mask = mask_of(**settings)
    np.testing.assert_allclose(scores[0][mask], untouched[0][mask], rtol=1e-5, atol=1e-5)
    divided = jnp.asarray(scores[0] / settings.get("temperature", 1))
    expected = NORMALIZERS[normalizer](divided, mask=jnp.asarray(mask))
    weights = arrays(reply)["attention"][0]
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert (weights[~mask] == 0).all()
    assert abs(weights - arrays(answers(numbers(inputs[1])))["attention"][0]).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_every_normalizer(normalizer, signals):
    _, answers, inputs = signals
    reply = answers(numbers(inputs[1], normalizer=normalizer, temperature=2))
    function = NORMALIZERS[normalizer] or NORMALIZERS["softmax"]  # as this model is trained
    expected = function(jnp.asarray(arrays(reply, "scores")["attention"] / 2), mask=None)
    np.testing.assert_allclose(arrays(reply)["attention"], expected, atol=1e-5)


def test_settings_compile_nothing_and_reset_gives_the_same_bits(signals):
    _, answers, inputs = signals
    first = answers(numbers(inputs[0]))
    answers(numbers(inputs[0], normalizer="softmax"))
    compiled = answers.program._cache_size()
    for settings in SETTINGS.values():
        answers(numbers(inputs[2], **settings))
        answers(numbers(inputs[3], normalizer="softmax", **settings))
    assert answers.program._cache_size() == compiled
    assert answers(numbers(inputs[0])) == first
    assert answers(numbers(inputs[0], normalizer=AS_TRAINED, temperature=1)) == first


def test_a_text_is_answered_as_predict_does(texts):
    run, answers = texts
    for written in ("a good strange film", "bad"):
        reply, expected = answers(text(written)), run.predict(written)
        assert reply["tokens"] == expected.tokens[0]
        assert reply["known"] == expected.known[0]
        np.testing.assert_allclose(numbers_of(reply["outputs"]), expected.outputs[0], atol=1e-6)
        assert reply["classes"][0][0] == expected.classes[0]
        names = [name for name, _ in reply["classes"]]
        assert sorted(names) == sorted(expected.names)
        for name, weights in arrays(reply).items():
            ours = np.asarray(expected.attention[name][0])
            assert weights.shape[-1] == len(reply["tokens"])
            np.testing.assert_allclose(weights.reshape(ours.shape), ours, atol=1e-6)


def test_texts_of_near_lengths_share_a_program_and_hidden_words_have_no_weight(texts):
    _, answers = texts
    answers(text("good film"))
    answers(text("good bad " * 4))
    compiled = answers.program._cache_size()
    for written in ("good", "a good film", "good bad good bad good", "good " * 12):
        reply = answers(text(written, hidden=[0], temperature=2))
        assert (arrays(reply)["attention"][..., 0] == 0).all()
    assert answers.program._cache_size() == compiled


@pytest.mark.parametrize("written", ["good " * 1001, "  ", "zzz yyy"])
def test_texts_that_cannot_be_shown_are_one_line(written, texts):
    answers = cut_to(2_000, texts[1])
    with pytest.raises(UsageError) as error:
        answers(text(written))
    assert "\n" not in str(error.value)


def test_what_a_model_does_not_read_is_told(texts):
    _, answers = texts
    assert answers(text("good"))["note"] is None
    reply = cut_to(3, answers)(text("a good film and a bad one"))
    assert "first 3 of 9" in reply["note"]
    assert reply["tokens"] == ["<S>", "a", "good"]


def cut_to(length, answers):
    """The same run, with another limit on the tokens that it reads."""
    inputs = answers.task.inputs
    inputs = dataclasses.replace(inputs, data=dataclasses.replace(inputs.data, max_length=length))
    task = dataclasses.replace(answers.task, inputs=inputs)
    return Answers(dataclasses.replace(answers.run, task=task))


@pytest.mark.parametrize("shape", [(99, 1), (100, 2), (100, 1, 1), (1, 100, 1)])
def test_a_signal_of_another_shape_is_one_line(shape, signals):
    _, answers, _ = signals
    request = numbers(np.zeros(shape, np.float32))
    if shape == (1, 100, 1):  # a batch of one is the same signal
        assert answers(request)["outputs"]["shape"] == [100, 1]
        return
    with pytest.raises(UsageError, match="100"):
        answers(request)
    with pytest.raises(UsageError):
        answers(text("a"))


@pytest.mark.slow
def test_a_translation_is_predicts_with_its_beam_and_best(tmp_path):
    run = train("reverse_bahdanau:quick", tmp_path / "run", tiny.PAIRS | {"decoding.beam": 3})
    answers, expected = Answers(run), run.predict("a b c", num_best=3)
    reply = answers(text("a b c"))
    assert reply["text"] == expected.outputs[0]
    assert [best["text"] for best in reply["best"]] == expected.written[0]
    (weights,) = arrays(reply)["alignment"]
    np.testing.assert_allclose(weights, expected.attention["alignment"][0], atol=1e-6)
    hidden = arrays(answers(text("a b c", hidden=[1])))["alignment"][0]
    assert (hidden[:, 1] == 0).all()
    np.testing.assert_allclose(hidden.sum(axis=-1), 1, atol=1e-5)


def test_a_hidden_word_of_the_source_hides_no_word_of_the_translation():
    """Also where the model writes as many tokens as the source is padded to, which is 8."""
    letters = fit_tokenizer("word", ["a b c"], 20)
    sizes = {"source_vocabulary_size": letters.size, "target_vocabulary_size": letters.size + 1}
    files = {"tokenizer.json": letters.to_json()}
    small = {"features": 8, "num_heads": 2, "num_blocks": 1, "hidden_features": 8}
    best = []
    for longest in (4, 5):  # of the training targets; a translation has twice as many tokens
        kept = Kept({"longest": {"source": 4, "target": longest}}, sizes, files)
        answers = Answers(run_of("translate_multi30k_transformer", kept, **small))
        best.append([own["tokens"] for own in answers(text("a b c", hidden=[0]))["best"]])
    assert any(best[0])
    assert best[0] == best[1]


SCORED = {  # what is changed of a run that translates
    "luong": {"model.decoder": "luong", "model.attention": "general"},
    "lstm": {"model.cell": "lstm", "model.attention": "scaled_dot"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORED)
def test_the_scores_of_a_translation_make_its_weights(name, tmp_path):
    longer = {"steps_per_epoch": 40, "learning_rate": 0.01}  # else it writes nothing
    options = tiny.PAIRS | longer | {"decoding.beam": 3, "data.num_train": 64} | SCORED[name]
    answers = Answers(train("reverse_bahdanau:quick", tmp_path / "run", options))
    first = answers(text("a b c d"))
    for settings in ({}, {"temperature": 3.0}, {"normalizer": "sparsemax", "hidden": [2]}):
        reply = answers(text("a b c d", **settings))
        assert len(reply["best"]) == 3
        for best in filter(lambda best: best["tokens"], reply["best"]):
            (weights,), (scores,) = (arrays(best, part)["alignment"] for part in PARTS)
            assert weights.shape == scores.shape == (len(best["tokens"]), len(reply["tokens"]))
            mask = np.isin(np.arange(weights.shape[1]), settings.get("hidden", []), invert=True)
            normalizer = NORMALIZERS[settings.get("normalizer", "softmax")]
            scaled = jnp.asarray(scores / settings.get("temperature", 1))
            expected = normalizer(scaled, mask=jnp.broadcast_to(mask, weights.shape))
            np.testing.assert_allclose(weights, expected, atol=1e-5)
        assert reply["scores"] == reply["best"][0]["scores"]
    scores = [arrays(best, "scores")["alignment"][0] for best in first["best"]]
    assert np.ptp(np.concatenate(scores)) > 1e-3


def test_the_scores_of_tokens_are_of_the_step_that_writes_them():
    model = Seq2Seq(7, 6, embedding_features=4, features=4, attention_features=4)
    end, tokens = 1, jnp.array([[2, 3, 5, 4], [4, 2, 2, 5]])
    sources = {"source": jnp.array([[2, 3, 4, 5, 6], [6, 2, 3, 0, 0]])}
    sources["source_lengths"] = jnp.array([5, 3])
    before = jnp.concatenate([jnp.full((2, 1), end), tokens[:, :-1]], axis=1)
    variables = draw(model, sources | {"target": before})
    _, aux = jax.jit(model.apply)(variables, sources | {"target": before})
    scores = of_translations(model, variables["params"], sources, tokens[:, None], end)
    mask = jnp.arange(5)[None, None] < sources["source_lengths"][:, None, None]
    weights = NORMALIZERS["softmax"](scores[:, 0], mask=mask)
    np.testing.assert_allclose(weights, aux["attention"]["alignment"], atol=1e-5)
    assert np.ptp(weights[0], axis=0).max() > 1e-3  # they differ from step to step


def test_weights_that_are_no_normaliser_of_one_score_have_none():
    of_heads, around = TranslationTransformer(9, 9), Seq2Seq(9, 9, reach=2)
    assert not has_scores(of_heads)
    assert not has_scores(around)
    assert has_scores(Seq2Seq(9, 9))


@pytest.mark.slow
def test_a_language_models_next_token_is_predicts(tmp_path):
    run = train("names", tmp_path / "run", NAMES)
    answers, expected = Answers(run), run.predict("Kal")
    reply = answers(text("Kal"))
    np.testing.assert_allclose(numbers_of(reply["outputs"]), expected.outputs[0], atol=1e-6)
    assert reply["tokens"] == safe(expected.tokens[0])
    names = [expected.names[i] for i in np.argsort(-expected.outputs[0])[:12]]
    assert [name for name, _ in reply["classes"]] == safe(names)
    wanted = [None if name.startswith("<") else [ord(name)] for name in names]
    assert reply["writes"] == wanted
    assert [ord("\n")] in wanted
    for name, weights in arrays(reply).items():
        np.testing.assert_allclose(weights[:, 0], expected.attention[name][0][:, -1], atol=1e-6)
    hidden = arrays(answers(text("Kal", hidden=[1])))
    assert all((weights[..., 1] == 0).all() for weights in hidden.values())
    long = "Kal" * 200
    assert "reads the last" in answers(text(long))["note"]


def test_heads_of_a_run_are_ablated():
    run = run_of("names", num_blocks=2, features=8, num_heads=2)
    reply = Answers(run)(text("kal", cut=[[0, 1], [1, 0], [5, 0]]))  # there is no sixth
    with heads.cut({"blocks_0/attention": [1], "blocks_1/attention": [0]}):
        expected = run.predict("kal")
    outputs = numbers_of(reply["outputs"])
    np.testing.assert_allclose(outputs, expected.outputs[0], atol=1e-6)
    assert np.abs(outputs - run.predict("kal").outputs[0]).max() > 1e-4


def test_a_text_is_cut_where_it_has_more_tokens_than_a_language_model_reads():
    run = run_of("names", num_blocks=1, features=8, num_heads=2)
    answers, most = Answers(run), run.task.data.max_length
    assert answers(text("k" * most))["note"] is None
    assert f"last {most} " in answers(text("k" * (most + 1)))["note"]


def test_a_language_model_of_several_seeds_says_the_mean():
    run = run_of("names", num_blocks=1, features=8, num_heads=2)
    (own,) = run.params.values()
    run = dataclasses.replace(run, params={0: own, 1: jax.tree.map(np.negative, own)})
    reply, expected = Answers(run)(text("kal")), run.predict("kal")
    np.testing.assert_allclose(numbers_of(reply["outputs"]), expected.outputs[0], atol=1e-6)
    for name, weights in arrays(reply).items():
        np.testing.assert_allclose(weights[:, 0], expected.attention[name][0][:, -1], atol=1e-6)


@pytest.mark.slow
def test_series_are_predicts_and_a_hidden_one_has_no_weight(tmp_path):
    run = train("series_input_attention", tmp_path / "run", tiny.STEPS | {"data.num_train": 64})
    series = np.random.default_rng(0).uniform(-1, 1, (20, 8)).astype(np.float32)
    answers, expected = Answers(run), run.predict(series[None])
    reply = answers(numbers(series))
    np.testing.assert_allclose(numbers_of(reply["outputs"]), expected.outputs[0], atol=1e-5)
    np.testing.assert_allclose(arrays(reply)["input"], expected.attention["input"], atol=1e-5)
    reply = answers(numbers(series, hidden=[3], temperature=2))
    weights, scores = (arrays(reply, part)["input"] for part in PARTS)
    assert (weights[..., 3] == 0).all()
    mask = jnp.broadcast_to(np.arange(8) != 3, weights.shape)
    expected = NORMALIZERS["softmax"](jnp.asarray(scores / 2), mask=mask)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert np.ptp(scores) > 1e-3
    with pytest.raises(UsageError, match="20"):
        answers(numbers(series[:, :7]))


def test_reach_and_causality_mean_nothing_between_two_sequences():
    traced = Traced.of(Settings(reach=1, causal=True, hidden=(2,)))
    place = jnp.arange(5)
    visible = lambda queries, number: np.broadcast_to(
        traced.visible(place[:queries, None], place[None], number), (queries, 5)
    )
    np.testing.assert_array_equal(visible(3, None), [np.arange(5) != 2] * 3)
    np.testing.assert_array_equal(visible(3, 4), np.ones((3, 5)))
    own = [[k != 2 and q - 1 <= k <= q for k in range(5)] for q in range(5)]
    np.testing.assert_array_equal(visible(5, 5), own)


def test_weights_have_heads_queries_and_keys_and_hops_are_heads():
    weights = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(by_heads("hops", weights), weights[:, None])
    np.testing.assert_array_equal(by_heads("attention", weights), weights[None])
    np.testing.assert_array_equal(by_heads("pooling", weights[0]), weights[None, :1])
    assert by_heads("blocks", np.zeros((2, 3, 4, 5))).shape == (6, 4, 5)


def test_no_text_of_a_reply_steers_what_is_shown(texts):
    reply = cut_to(9, texts[1])(text("good \u202efilm\x1b[0m \x07"))
    said = "".join(reply["tokens"])
    assert "\\u202e" in said
    assert "\\x1b" in said
    assert not {"\u202e", "\x1b", "\x07"} & set(said)
