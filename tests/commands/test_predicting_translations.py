"""Runs on translation, from training to predictions by the command line."""

import errno
import gzip
import itertools
import json
import shutil

import flax.linen as nn
import numpy as np
import pytest

from configs import dates_bahdanau, reverse_bahdanau, translate_multi30k, translate_tsv
from flax_attn import experiment
from flax_attn.__main__ import main
from flax_attn.experiment.config import Config
from flax_attn.models.decoding import Translation
from flax_attn.runs import reading
from flax_attn.tasks import translation
from flax_attn.tasks.requests import write_all


@pytest.fixture(scope="module")
def reverse(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "reverse"
    config = reverse_bahdanau.get_config("quick")
    config.data.update({"max_letters": 6, "num_train": 2_000, "num_test": 100, "num_buckets": 1})
    config.model.update({"features": 32, "embedding_features": 16, "attention_features": 32})
    config.num_epochs, config.learning_rate = 8, 2e-2
    experiment.run(Config.of(config), workdir)
    return workdir


def predict(capsys, *arguments):
    assert main(["predict", *map(str, arguments)]) == 0
    return capsys.readouterr()


def test_a_run_learns_to_reverse_and_says_where_it_looked(reverse):
    run = reading.read(reverse)
    metrics = run.summary["metrics"]
    assert metrics["test/exact_match"]["mean"] > 0.9
    assert metrics["greedy/test/exact_match"]["mean"] > 0.9
    assert metrics["test/anti_diagonal"]["mean"] > 0.5  # of one in four to six
    assert "test/bleu" not in metrics
    written = (reverse / "translations.tsv").read_text().splitlines()
    header, *lines = [line.split("\t") for line in written]
    assert header == ["source", "reference", "translation 0"]
    assert len(lines) == 100
    assert all(reference == source[::-1] for source, reference, _ in lines)
    np.testing.assert_allclose(
        np.mean([a == b for _, a, b in lines]), metrics["test/exact_match"]["mean"]
    )
    assert {path.name for path in (reverse / "figures").iterdir()} == {"loss.png", "alignment.png"}
    for i in range(16):
        num_source = run.examples["source_lengths"][i]
        num_target = run.examples["prediction_lengths"][i]
        weights = run.examples["attention/alignment"][i]
        np.testing.assert_allclose(weights[:num_target, :num_source].sum(axis=-1), 1, atol=1e-5)
        assert (weights[num_target:] == 0).all()
        assert (weights[:, num_source:] == 0).all()
        assert " ".join(run.examples["source_words"][i, :num_source]) == lines[i][0]
        assert " ".join(run.examples["predicted_words"][i, :num_target]) == lines[i][2]


def test_texts_are_translated_with_their_alignment(reverse, tmp_path, capsys):
    flags = ["--json", "--beam", "3", "--best", "2", "--figure", tmp_path / "map.png"]
    out, _ = predict(capsys, reverse, "c a b d", *flags)
    (answer,) = json.loads(out)
    best, second = answer["translations"]
    assert best["text"] == "d b a c"
    assert best["score"] > second["score"]
    assert best["tokens"] == ["d", "b", "a", "c"]
    assert np.shape(best["alignment"]) == (4, 4)
    assert np.argmax(best["alignment"], axis=1).tolist() == [3, 2, 1, 0]
    assert answer["source_tokens"][0] == {"token": "c", "known": True}
    assert (tmp_path / "map.png").stat().st_size > 5_000
    _, err = predict(capsys, reverse, "c a ? b")
    assert "text 1 has what the run does not know: ?" in err


def test_letters_need_no_spaces_and_files_no_ending(reverse, tmp_path, capsys):
    spaced, unspaced = (
        predict(capsys, reverse, text, "--json").out for text in ("c a b d", "cabd")
    )
    assert json.loads(unspaced)[0]["translations"] == json.loads(spaced)[0]["translations"]
    (tmp_path / "in.de").write_text("cab\n")
    predict(capsys, reverse, "--input", tmp_path / "in.de", "--output", tmp_path / "out.en")
    assert (tmp_path / "out.en").read_text() == "b a c\n"
    (tmp_path / "in.csv").write_text('\ufeffid;text\n1;"cab"\n2;d e f\n', encoding="utf-8")
    predict(capsys, reverse, "--input", tmp_path / "in.csv", "--output", tmp_path / "out.en")
    assert (tmp_path / "out.en").read_text() == "b a c\nf e d\n"


def test_a_file_of_texts_in_a_run_moved_elsewhere_becomes_a_file(reverse, tmp_path, capsys):
    shutil.copytree(reverse, tmp_path / "moved")
    (tmp_path / "in.txt").write_text("a b c\n\nd e f g\n? !\nb ? a c\n")
    files = ["--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt"]
    out, err = predict(capsys, tmp_path / "moved", *files, "--beam", "1")
    lines = (tmp_path / "out.txt").read_text().split("\n")
    assert lines[:4] == ["c b a", "", "g f e d", ""]
    assert (len(lines[4].split()) > 2, lines[5:]) == (True, [""])
    assert out == f"wrote {tmp_path / 'out.txt'}\n"
    first, second = err.splitlines()
    assert ("line 4" in first, "line 5" in second) == (True, True)


def test_a_source_longer_than_any_is_translated_with_a_warning(reverse, capsys):
    out, err = predict(capsys, reverse, "a b c d e f", "a b c d e f g")
    assert err.startswith("warning: text 2 has 7 tokens")
    assert len(out.splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected a text"),
        (("",), "expected a text"),
        (("?! --",), "word"),
        (("a b", "--beam", "2", "--best", "3"), "--best"),
        (("a b", "--beam", "0"), "--beam"),
        (("a b", "--output", "x.npy"), "x.npy"),
        (("a b", "--figure", "gone/x.png"), "gone/x.png"),
        (("--input", "gone.txt"), "gone.txt"),
    ],
)
def test_bad_texts_are_one_line(reverse, capsys, arguments, said):
    assert main(["predict", str(reverse), *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err


def test_a_picture_that_shows_nothing_is_refused_before_the_work(reverse, tmp_path, capsys):
    assert main(["predict", str(reverse), "a b " * 101, "--figure", str(tmp_path / "map.png")]) == 2
    assert "202" in capsys.readouterr().err


def test_a_tokenizer_of_another_run_is_told(reverse, tmp_path, capsys):
    shutil.copytree(reverse, tmp_path / "run")
    content = json.loads((reverse / "target_tokenizer.json").read_text())
    (tmp_path / "run" / "target_tokenizer.json").write_text(
        json.dumps(content | {"entries": [*content["entries"], "new"]})
    )
    assert main(["predict", str(tmp_path / "run"), "a b"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def changed(run, copy, change):
    """A copy of a run with a change of its config."""
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    change(config)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def test_a_translation_has_twice_the_tokens_of_the_longest_and_is_said_to_be_cut(
    reverse, tmp_path, capsys
):
    shorten = lambda config: config["derived"]["longest"].update(target=1)
    out, err = predict(capsys, changed(reverse, tmp_path / "run", shorten), "c a b d")
    assert "2 tokens" in err
    assert out.splitlines()[1].split() == ["d", "b"]


def test_scores_have_the_length_penalty_of_the_run(reverse, tmp_path, capsys):
    no_penalty = lambda config: config["decoding"].update(length_penalty=0.0)
    run = changed(reverse, tmp_path / "run", no_penalty)
    for beam in (1, 2):
        plain, penalised = (
            json.loads(predict(capsys, directory, "c a b d", "--json", "--beam", beam)[0])[0]
            for directory in (run, reverse)
        )
        (plain,), (penalised,) = plain["translations"], penalised["translations"]
        assert plain["ended"]
        # four letters and the end
        np.testing.assert_allclose(plain["score"] / penalised["score"], (5 + 5) / 6, rtol=1e-4)


def test_of_two_files_both_are_written_or_none(tmp_path):
    def fill_the_disk(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    text, picture = tmp_path / "out.txt", tmp_path / "map.png"
    text.write_text("before")
    with pytest.raises(OSError, match="No space left on device"):
        write_all({text: lambda path: path.write_text("after"), picture: fill_the_disk})
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert text.read_text() == "before"
    both = {text: lambda path: path.write_text("after"), picture: lambda path: path.touch()}
    assert write_all(both) == [text, picture]
    assert text.read_text() == "after"


def load(config):
    config = Config.of(config)
    return config.task.load(config.data, config.recipe, None)


def test_the_test_is_of_the_beam_and_greedy_beside_it(monkeypatch):
    config = dates_bahdanau.get_config()
    config.data.update({"num_train": 50, "num_valid": 5, "num_test": 5, "num_buckets": 1})
    task, asked = load(config), []

    def fake(model, params, inputs, decoding, **options):
        asked.append((decoding, options))
        texts = task.raw.splits["test"].targets if decoding.beam == 5 else ["1999-01-01"] * 5
        flat = np.ones((10, inputs["source"].shape[1]))
        return [[Translation(task.inputs.target.encode(text), 0.0, True, flat)] for text in texts]

    monkeypatch.setattr(translation, "translate", fake)
    metrics = task.examples(nn.Module(), [{}]).metrics
    assert (metrics["test/exact_match"], metrics["greedy/test/exact_match"]) == ([1.0], [0.0])
    assert [decoding.beam for decoding, _ in asked] == [5, 1]
    assert asked[0][0].length_penalty == 1.0
    assert asked[0][1]["max_length"] == 2 * task.kept.derived["longest"]["target"]
    assert metrics["test/month_from_name"][0] > 2.9  # every letter has the weight 1 here


def test_pairs_of_one_source_stay_together_and_come_once(tmp_path):
    lines = [f"{i}\tsource {i % 60}\ttarget {i % 120}" for i in range(240)]
    (tmp_path / "own.tsv").write_text("\n".join(lines))
    config = translate_tsv.get_config()
    columns = {"source_column": 2, "target_column": 3, "test_fraction": 0.2}
    config.data.update(columns | {"file": str(tmp_path / "own.tsv")})
    splits = Config.of(config).data.load(None).splits
    sizes = {name: len(some.inputs) for name, some in splits.items()}
    assert sizes == {"valid": 6, "test": 24, "train": 90}
    assert sum(len(set(some.inputs)) for some in splits.values()) == 60


@pytest.mark.slow
def test_pairs_of_ones_own_train_and_are_translated(tmp_path, capsys):
    words = {"ein": "a", "zwei": "two", "hund": "dog", "katze": "cat"}
    words |= {"schläft": "sleeps", "läuft": "runs"}
    three = [list(words)[i : i + 2] for i in (0, 2, 4)]
    lines = [
        f"{' '.join(some)} {n}.\t{' '.join(words[word] for word in some)} {n}."
        for n in range(10)
        for some in itertools.product(*three)
    ]
    (tmp_path / "own.tsv").write_text("\n".join(lines), encoding="utf-8")
    config = translate_tsv.get_config("quick")
    config.data.update({"preprocessing": "words", "tokenizer": "word"})
    config.data.file = str(tmp_path / "own.tsv")
    config.num_epochs, config.learning_rate, config.model.dropout_rate = 2, 1e-2, 0.0
    config.model.update({"features": 32, "embedding_features": 16, "attention_features": 16})
    summary = experiment.run(Config.of(config), tmp_path / "run")
    assert summary["metrics"]["test/bleu"]["mean"] > 90
    assert "tok:13a" in summary["signatures"][0]
    out, _ = predict(capsys, tmp_path / "run", "Zwei Hund schläft 7.")
    assert "two dog sleeps 7." in out


@pytest.mark.slow
def test_the_real_sentences_train(manual_dir, tmp_path, no_pictures):
    """The first lines of each file."""
    pytest.importorskip("tokenizers")
    (tmp_path / "multi30k").mkdir()
    for split, number in (("train", 200), ("val", 30), ("test_2016_flickr", 20)):
        for language in ("de", "en"):
            name = f"multi30k/{split}.{language}.gz"
            with gzip.open(manual_dir / name) as lines, gzip.open(tmp_path / name, "w") as some:
                some.writelines(itertools.islice(lines, number))
    config = translate_multi30k.get_config("quick")
    config.data.update({"vocabulary_size": 300, "num_buckets": 1, "max_words": 0})
    config.model.update({"features": 16, "embedding_features": 8, "attention_features": 8})
    # greedy alone, the rest is tried elsewhere
    config.num_epochs, config.batch_size, config.decoding.beam = 1, 32, 1
    config.optimizer.warmup_steps = 2
    summary = experiment.run(Config.of(config), tmp_path / "run", manual_dir=tmp_path)
    assert summary["metrics"]["test/bleu"]["mean"] >= 0
    assert {"greedy/test/bleu", "greedy/test/chrf", "test/chrf"} <= set(summary["metrics"])
    assert len((tmp_path / "run" / "translations.tsv").read_text().splitlines()) == 21
