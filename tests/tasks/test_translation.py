"""Measures of translations, and the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import dates_bahdanau, reverse_bahdanau, translate_tsv
from flax_attn.data.sets import PairLists
from flax_attn.experiment import programs
from flax_attn.experiment.config import Config
from flax_attn.models.decoding import Translation
from flax_attn.tasks.targets import texts as targets
from flax_attn.tasks.translation import TextsOfTexts


def load(config):
    config = config if isinstance(config, Config) else Config.of(config)
    return TextsOfTexts.load(config.data, config.recipe, None)


def test_translations_are_measured_against_references():
    sacrebleu = pytest.importorskip("sacrebleu")
    references = ["A man is sleeping.", "Two dogs run through the snow, it's cold."]
    texts = ["a man is sleeping.", "two dogs run through snow, it's cold."]
    scores, signature = targets.corpus_scores(
        texts, references, str.lower, PairLists(splits=(), sha256="")
    )
    assert scores["exact_match"] == 0.5
    np.testing.assert_allclose(
        scores["bleu"], sacrebleu.corpus_bleu(texts, [references], lowercase=True).score
    )
    assert 80 < scores["chrf"] < 100
    assert "case:lc" in signature[0]
    assert "tok:13a" in signature[0]


def test_no_batch_cuts_a_target_that_is_longer_than_its_source(tmp_path):
    pytest.importorskip("sacrebleu")
    words = lambda number, length: " ".join([f"w{number}", *["w"] * (length - 1)])
    lines = [f"{words(i, 1 + i % 7)}\t{words(i, 9 - i % 9)}" for i in range(60)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    config = translate_tsv.get_config()
    config.data.update({"file": str(tmp_path / "pairs.tsv"), "tokenizer": "word"})
    config.data.update({"num_buckets": 3, "valid_fraction": 0.3})
    config, task = Config.of(config), load(config)
    in_batches = sum(
        int((stack["targets"] > 0).sum()) for stack in programs.make_batches(config, task)["valid"]
    )
    assert in_batches == (task.rows.splits["valid"]["targets"] > 0).sum() > 0
    _, fetches = programs.make_plan(config, task, 1)
    rows = jnp.arange(len(jax.tree.leaves(task.rows.train)[0]))
    whole = fetches[-1](task.rows.train, rows)
    assert whole["targets"].shape == task.rows.train["targets"].shape


def test_padding_has_no_part_in_the_loss_and_smoothing_none_in_evaluation():
    config = dates_bahdanau.get_config()
    config.data.update({"num_train": 50, "num_valid": 5, "num_test": 5, "num_buckets": 1})
    config.label_smoothing = 0.1
    loss_of = load(config).loss
    rng = np.random.default_rng(0)
    logits, labels, mask = (
        rng.normal(size=(3, 4, 5)).astype(np.float32),
        rng.integers(1, 5, (3, 4)),
        np.array([True, True, False]),
    )
    labels[0, 2:] = 0
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    real = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    plain = -np.mean([log_p[i, j, labels[i, j]] for i, j in real])
    smooth = np.mean([-0.9 * log_p[i, j, labels[i, j]] - 0.1 * log_p[i, j].mean() for i, j in real])
    for train, expected in ((False, plain), (True, smooth)):
        loss, metrics = loss_of(
            jnp.asarray(logits),
            {},
            {"targets": jnp.asarray(labels), "mask": jnp.asarray(mask)},
            train,
        )
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        np.testing.assert_allclose(metrics["loss"].compute(), plain, rtol=1e-5)
        hits = np.mean([logits[i, j].argmax() == labels[i, j] for i, j in real])
        np.testing.assert_allclose(metrics["accuracy"].compute(), hits, rtol=1e-6)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_page_gets_as_many_translations_as_the_beam_holds_and_three_at_most(beam):
    config = reverse_bahdanau.get_config()
    config.data.update({"num_train": 50, "num_valid": 5, "num_test": 2, "num_buckets": 1})
    config.decoding.beam = beam
    config, task = Config.of(config), load(config)
    model = programs.build_model(config, task.kept.sizes)
    params = jax.eval_shape(model.init, jax.random.key(0), task.sample())["params"]
    sources = jax.tree.map(jnp.asarray, task.inputs.encode(["a b c"]))
    looked = jax.eval_shape(lambda own: task.look(model, [own], sources), params)
    assert looked["tokens"].shape == (1, min(beam, 3), task.inputs.max_length)


def test_where_attention_points_is_measured_on_the_translations_by_beam():
    config = reverse_bahdanau.get_config()
    config.data.update({"num_train": 50, "num_valid": 5, "num_test": 2, "num_buckets": 1})
    row = lambda weights: [Translation([2, 3, 4], 0.0, True, weights)] * 2
    mirrored, even = np.eye(3, dtype=np.float32)[::-1], np.full((3, 3), 1 / 3, np.float32)
    examples = load(config).evaluate([row(mirrored)], [row(even)])
    assert examples.metrics["test/anti_diagonal"] == [1.0]


def test_weights_of_the_month_on_its_name():
    read = np.zeros((10, 13))  # 2006-07-11
    read[5, 3:7] = 0.2
    read[6, 6], read[6, 7], read[4, 5] = 0.5, 0.5, 1.0
    assert targets.month_from_name(
        ["11 july 2006", "2 may 1999"], [read, read[:6]]
    ) == pytest.approx((0.8 + 0.5) / 2)


def test_weights_on_the_anti_diagonal():
    sharp, flat = np.eye(3)[::-1], np.full((4, 4), 0.25)
    assert targets.anti_diagonal([sharp]) == 1
    assert targets.anti_diagonal([np.eye(4)]) == 0
    np.testing.assert_allclose(targets.anti_diagonal([sharp, flat]), (3 + 4 * 0.25) / 7)
