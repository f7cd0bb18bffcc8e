"""Language models: rows of a text, the loss over all of it, induction, and prompts."""

import dataclasses
import inspect
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import names, recall, text_file
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from flax_attn.experiment.programs import build_model
from flax_attn.models.generation import check_numbers
from flax_attn.models.language import attention_of, losses
from flax_attn.tasks import induction
from flax_attn.tasks.language import LanguageModel
from flax_attn.tasks.targets import next_token
from tests.models.variables import draw

SMALL = {"name": "gpt", "features": 8, "num_heads": 2, "num_blocks": 2}


def load(**data):
    config = names.get_config()
    config.data.update({"num_lines": 60, "max_length": 8} | data)
    config.model, config.batch_size = SMALL, 4
    return make(config)


def make(config):
    config = Config.of(config)
    task = LanguageModel.load(config.data, config.recipe, None)
    return task, build_model(config, task.kept.sizes)


def text_of(rows):
    """The tokens of rows of a text, one after another."""
    targets = rows["targets"].ravel()
    return [int(rows["inputs"][0, 0]), *targets[targets > 0].tolist()]


def test_rows_hold_a_text_once_and_padding_at_its_end():
    task, _ = load()
    rows, text = task.rows.splits["test"], task.data.load(None).splits["test"].inputs
    assert task.inputs.tokenizer.decode(text_of(rows)) == text
    assert rows["inputs"].shape == rows["targets"].shape == (-(-(len(text) - 1) // 8), 8)
    np.testing.assert_array_equal(rows["inputs"].ravel()[1:], rows["targets"].ravel()[:-1])


def test_only_answers_of_recall_are_targets():
    config = recall.get_config()
    config.data.update({"num_lines": 300, "max_keys": 2, "max_length": 20})
    task, _ = make(config)
    rows, decode = task.rows.splits["test"], task.inputs.tokenizer.decode
    lines = task.data.load(None).splits["test"].inputs.split("\n")
    answers = ["".join(line[line.index("?") + 2 :: 2]) for line in lines]
    assert [decode(row[row > 0].tolist()) for row in rows["targets"]] == answers
    assert [decode(row[row > 0].tolist())[1:] for row in rows["inputs"]] == lines


def test_contexts_are_drawn_from_everywhere_and_from_the_training_text_alone():
    task, _ = load()
    tokens = np.array(text_of(task.rows.train))
    draw = jax.jit(task.rows.draw)
    rows = [jax.device_get(draw(task.rows.train, jax.random.key(i))) for i in range(200)]
    starts = set()
    for row in rows:
        for inputs, targets in zip(row["inputs"], row["targets"]):
            np.testing.assert_array_equal(inputs[1:], targets[:-1])
            window = np.array([*inputs, targets[-1]])
            places = [i for i in range(len(tokens) - 8) if (tokens[i : i + 9] == window).all()]
            assert places
            starts.add(places[0])
    assert min(starts) == 0
    assert max(starts) == len(tokens) - 9


def test_the_loss_is_that_of_every_token_of_the_split():
    task, model = load()
    variables = draw(model, jnp.zeros((1, 8), jnp.int32))
    rows = task.rows.splits["test"]
    logits, aux = jax.jit(model.apply)(variables, rows["inputs"])
    _, metrics = task.loss(logits, aux, jax.tree.map(jnp.asarray, rows), False)
    shares = jax.nn.log_softmax(np.asarray(logits, np.float64))
    by_token = -np.take_along_axis(np.asarray(shares), rows["targets"][..., None], axis=-1)[..., 0]
    by_token = np.where(rows["targets"] > 0, by_token, 0)
    expected = by_token.sum() / (rows["targets"] > 0).sum()
    np.testing.assert_allclose(metrics["loss"].compute(), expected, rtol=1e-6)
    found = losses(model, variables["params"], **rows)
    np.testing.assert_allclose(found, by_token, rtol=1e-5, atol=1e-6)
    examples = task.examples(model, [variables["params"]])
    np.testing.assert_allclose(examples.arrays["losses"][0, 0], by_token[:, 0].mean(), rtol=1e-6)
    np.testing.assert_allclose(examples.scores["loss"].mean(), expected, rtol=1e-6)


def test_lines_of_their_own_are_a_row_each():
    config = names.get_config()
    config.data.update({"name": "repeats", "num_lines": 60, "max_length": 20, "max_letters": 8})
    config.model = SMALL
    task, _ = make(config)
    assert task.rows.draw is None
    lines = task.data.load(None).splits["train"].inputs.split("\n")
    for row, line in zip(task.rows.train["targets"], lines, strict=True):
        assert task.inputs.tokenizer.decode(row[row > 0].tolist()) == f"{line}\n"
    first = task.inputs.tokenizer.encode("\n")
    inputs, targets = task.rows.train["inputs"], task.rows.train["targets"]
    assert set(inputs[:, 0].tolist()) == set(first)
    before = np.where(targets[:, 1:] > 0, targets[:, :-1], 0)  # the end of a line has no next token
    np.testing.assert_array_equal(inputs[:, 1:], before)


def test_a_task_that_is_restored_predicts_the_same():
    task, model = load()
    params = [draw(model, jnp.zeros((1, 8), jnp.int32))["params"]]
    again = LanguageModel.restore(task.data, task.recipe, task.kept)
    texts = ["Ba", "Kalodun\nSevirin\nBa"]
    before, after = task.predict(model, params, texts), again.predict(model, params, texts)
    np.testing.assert_array_equal(before.outputs, after.outputs)
    np.testing.assert_allclose(before.outputs.sum(axis=1), 1, rtol=1e-5)
    assert before.tokens == [list("Ba"), list("evirin\nBa")[-8:]]
    assert [weights.shape for weights in before.attention["block0"]] == [(2, 2, 2), (2, 8, 8)]
    alone = task.predict(model, params, "Ba")
    np.testing.assert_allclose(alone.outputs[0], before.outputs[0], rtol=1e-5)
    with pytest.raises(ValueError, match="max_length 8, got 9"):
        LanguageModel.restore(dataclasses.replace(task.data, max_length=9), task.recipe, task.kept)


@pytest.mark.parametrize(
    ("prompt", "options", "line"),
    [
        ("Baß7", {}, "expected characters that the run has seen in 'Baß7', got 'ß', '7'; leave"),
        ("Ba", {"length": 0}, "length"),
        ("Ba", {"temperature": float("nan")}, "temperature .* got nan"),
        ("Ba", {"top_k": -1}, "top_k"),
        ("Ba", {"seed": -1}, "seed"),
    ],
)
def test_prompts_that_cannot_be_continued_are_told(prompt, options, line):
    task, model = load()
    params = [draw(model, jnp.zeros((1, 8), jnp.int32))["params"]]
    with pytest.raises(UsageError, match=line):
        task.generate(model, params, prompt, **options)


def test_numbers_of_numpy_are_numbers():
    inspect.unwrap(check_numbers)(np.int64(3), np.float32(0.5), np.int32(2), np.uint32(7))


def test_texts_grow_as_they_are_written():
    task, model = load()
    params = [draw(model, jnp.zeros((1, 8), jnp.int32))["params"]]
    grown = []
    generated = task.generate(model, params, ["Ba", "Ky"], length=21, seed=5, on_texts=grown.append)
    assert grown[-1] == generated.texts
    assert [len(text) for text in generated.texts] == [23, 23]
    for before, after in itertools.pairwise(grown):
        assert all(new.startswith(old) for old, new in zip(before, after))
    assert generated.texts[0].startswith("Ba")
    assert generated.tokens == list(generated.texts[0][-8:])
    np.testing.assert_allclose(generated.attention["block1"].sum(axis=-1), 1, rtol=1e-5)
    assert generated.attention["block1"].shape == (2, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a short text", "the train split for data.max_length=64, got 9;"),
        ("a text, " * 60, "the test split for data.max_length=64, got 48;"),
    ],
    ids=["of no passage", "of no passage to test"],
)
def test_a_text_that_teaches_or_tests_nothing_is_told(text, said, tmp_path):
    (tmp_path / "own.txt").write_text(text)
    config = text_file.get_config()
    config.data.file = str(tmp_path / "own.txt")
    with pytest.raises(UsageError, match=said):
        make(config)


def test_the_share_in_harmony_is_of_whole_lines():
    assert next_token.share_in_harmony("\nKalodun\nSevirin\nKalide\nBa") == pytest.approx(2 / 3)
    assert next_token.share_in_harmony("\nBa") == 0


def test_strings_come_twice_and_scores_are_of_the_token_after():
    strings = induction.repeated_strings(range(2, 13), 8, seed=0, start=[99])
    assert strings.shape == (induction.NUM_STRINGS, 17)
    assert (strings[:, 0] == 99).all()
    np.testing.assert_array_equal(strings[:, 1:9], strings[:, 9:])
    assert all(len(set(row[1:])) == 8 for row in strings.tolist())
    assert strings.min() == 2
    np.testing.assert_array_equal(induction.repeated_strings(range(2, 13), 8, 0), strings[:, 1:])
    perfect = np.zeros((3, 2, 17, 17))
    for query in range(9, 16):
        after = next(k for k in range(query - 1, -1, -1) if strings[0, k] == strings[0, query]) + 1
        perfect[:, 1, query, after] = 1
    np.testing.assert_array_equal(induction.scores(perfect, 8), [0, 1])
    without_start = induction.scores(perfect[..., 1:, 1:], 8)
    np.testing.assert_array_equal(without_start, [0, 1])
    uniform = np.tri(17) / np.arange(1, 18)[:, None]
    for weights, is_found in ((perfect, True), (uniform + np.zeros((3, 2, 1, 1)), False)):
        of_heads = induction.scores(weights, 8)[None]
        assert induction.is_found(of_heads, 17) == is_found


@pytest.mark.parametrize(
    ("data", "start", "period"),
    [
        ({"name": "repeats", "max_length": 30, "max_letters": 7}, ["\n"], 7),
        ({"max_length": 16}, [], 8),
        ({"max_length": 200, "num_lines": 400}, [], None),  # the period is the number of letters
    ],
)
def test_induction_is_measured_on_strings_that_the_data_can_hold(data, start, period):
    task, model = load(**data)
    params = [draw(model, jnp.zeros((1, 8), jnp.int32))["params"]]
    arrays, metrics, _ = task._induction(model, params)
    string = arrays["string"].tolist()
    period = period or len(set(task.data.load(None).splits["train"].inputs) - {"\n"})
    assert string[: len(start)] == start
    letters, again = string[len(start) :][:period], string[len(start) :][period:]
    assert letters == again
    assert len(set(letters)) == period
    assert len(string) <= task.data.max_length
    assert arrays["induction_weights"].shape[2:] == (len(string), len(string))
    assert arrays["induction_weights"].shape[:2] == arrays["induction"].shape
    best = arrays["induction_weights"][np.unravel_index(arrays["induction"].argmax(), (2, 2))]
    after = [best[-i, -i - period + 1] for i in range(2, period + 1)]
    assert 0 < np.mean(after) < 1
    assert metrics == {"test/induction": [arrays["induction"].max()]}


class TwelveBlocks(nn.Module):
    """Head 1 of the eleventh block looks at the token after the last occurrence of its own."""

    @nn.compact
    def __call__(self, tokens, need_weights=False):
        before = jnp.pad(tokens, ((0, 0), (1, 0)))[:, None, :-1]
        finds = (tokens[..., None] == before) & jnp.tri(tokens.shape[1], dtype=bool)[None]
        weights = jnp.stack([jnp.zeros_like(finds), finds], axis=1).astype(jnp.float32)
        looks = {f"block{i}": weights if i == 11 else 0 * weights for i in range(1, 13)}
        return jnp.zeros((*tokens.shape, 9)), {"attention": looks}


def test_blocks_stand_in_their_order_and_the_right_head_is_named():
    task, _ = load()
    in_turn = [f"block{i}" for i in range(1, 13)]
    assert list(attention_of(TwelveBlocks(), {}, np.arange(2, 8)[None])) == in_turn
    arrays, metrics, summary = task._induction(TwelveBlocks(), [{}])
    assert summary == {"induction_head": "block11, head 1"}
    assert metrics == {"test/induction": [1.0]}
    np.testing.assert_array_equal(np.argwhere(arrays["induction"]), [[10, 1]])
    np.testing.assert_array_equal(arrays["induction_weights"][10, 1, 4:], np.eye(8)[1:5])


def own_text(tmp_path, text, **data):
    (tmp_path / "own.txt").write_text(text)
    config = text_file.get_config()
    config.data.update({"file": str(tmp_path / "own.txt"), "max_length": 8} | data)
    config.model, config.batch_size = SMALL | {"num_blocks": 1}, 4
    task, model = make(config)
    return task, model, [draw(model, jnp.zeros((1, 2), jnp.int32))["params"]]


def test_a_text_without_line_ends_is_begun_with_a_character_that_is_known(tmp_path):
    text = "abcde fgh " * 36 + "zq" + "abcde fgh " * 4
    task, model, params = own_text(tmp_path, text)
    assert task.tested["inputs"][0, 0] == 1  # which training does not have
    examples = task.examples(model, params)
    assert len(examples.texts["sample.txt"]) == 502
    assert set(task.generate(model, params, "", length=50).texts[0]) <= set("abcdefgh ")


def test_pairs_of_bytes_write_any_text(tmp_path):
    pytest.importorskip("tokenizers")
    options = {"tokenizer": "bytes", "vocabulary_size": 270}
    task, model, params = own_text(tmp_path, "ein Käse für zwölf Füße\n" * 40, **options)
    generated = task.generate(model, params, "☃ ", length=30)
    assert generated.texts[0].startswith("☃ ")
    names = task.predict(model, params, "☃").names
    assert len(set(names[2:])) == len(names) - 2
    assert not any("\ufffd" in name for name in names)


def test_a_line_of_its_own_follows_the_end_of_a_line():
    config = names.get_config()
    config.data.update({"name": "repeats", "num_lines": 60, "max_length": 20, "max_letters": 8})
    config.model = SMALL | {"num_blocks": 1}
    task, model = make(config)
    params = [draw(model, jnp.zeros((1, 20), jnp.int32))["params"]]
    assert task.predict(model, params, "da").tokens == [["\n", "d", "a"]]
    options = {"length": 500, "temperature": 1000.0, "top_k": 0}  # all tokens come
    text = task.generate(model, params, "da", **options).texts[0]
    assert text.startswith("da")
    assert "\n" not in text
    assert len(text) < 200


def test_strings_too_short_for_induction_leave_it_out(tmp_path):
    task, model, params = own_text(tmp_path, "a text\n" * 50, max_length=3)
    examples = task.examples(model, params * 2)
    assert examples.metrics == examples.summary == {}
    assert examples.arrays["losses"].shape == (2, 3)


def test_a_position_without_a_token_has_no_loss():
    task, model = load()
    rows = {"inputs": np.full((2, 8), 3, np.int32), "targets": np.full((2, 8), 4, np.int32)}
    rows["targets"][:, 5:] = 0
    params = draw(model, jnp.zeros((1, 8), jnp.int32))["params"]
    found = dataclasses.replace(task, tested=rows).examples(model, [params]).arrays["losses"][0]
    np.testing.assert_array_equal(np.isnan(found), np.arange(8) >= 5)


def test_pairs_of_tokens_say_more_than_each_alone():
    task, _ = load()
    simple = task.target.baselines(task.raw)
    alone, pairs = (simple[name]["loss"].mean() for name in simple)
    assert pairs < alone < np.log(task.inputs.tokenizer.size)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"data.vocabulary_size": 10}, "data.vocabulary_size of at least .* kinds of characters"),
        ({"class_weights": True}, "class_weights"),
        (
            {"data.name": "repeats", "data.max_letters": 16},
            "data.max_length",
        ),
    ],
)
def test_configs_that_make_no_language_model_are_told(change, line):
    config = names.get_config()
    config.update_from_flattened_dict({"data.num_lines": 60} | change)
    with pytest.raises(UsageError, match=line):
        make(config)
