"""A number for each text or signal: data, training, predictions, pages and what strangers give."""

import json
import shutil

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn
from configs import numbers_csv, numbers_words
from flax_attn import kinds
from flax_attn.__main__ import main
from flax_attn.data.sets import DATA
from flax_attn.errors import UsageError
from flax_attn.experiment.config import Config
from flax_attn.explore.answers import Answers
from flax_attn.kinds import numbers
from flax_attn.kinds.numbers import LargestCount, Numbers, NumbersOfTexts, TextNumbers
from flax_attn.kinds.replies import numbers_of
from flax_attn.page.report import report
from tests import tiny
from tests.written_runs import vouch, write_run

RNG = np.random.default_rng(0)
WORDS = ["one cat", "two old cats", "three cats and a hat", "four hats", "one hat"] * 12
OF_WORDS = [1.5, 2.5, 3.5, 4.5, 1.5] * 12
SIGNALS = RNG.normal(size=(60, 12)).astype(np.float32) * 3 + 1
OF_SIGNALS = SIGNALS.max(axis=1)
TEXTS_GIVEN = dict.fromkeys(("train", "test"), (WORDS, OF_WORDS))
SIGNALS_GIVEN = dict.fromkeys(("train", "test"), (SIGNALS, OF_SIGNALS))
ATTENTION = tiny.ATTENTION | {"optimizer.schedule": "constant"}


def train(name, folder, data=None, num_epochs=1, **changes):
    """A run that is trained little; its schedule does not depend on the number of epochs."""
    overrides = tiny.TEXTS if name == "numbers_words" else ATTENTION
    overrides = overrides | {"optimizer.schedule": "constant"} | changes
    if data is None:
        overrides |= {"data.num_train": 120, "data.num_test": 40}
    config, options = f"{name}:quick", {"data": data, "workdir": folder}
    return flax_attn.train(config, num_epochs=num_epochs, overrides=overrides, **options)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A run on texts of two seeds."""
    with tiny.no_pictures():
        return train(
            "numbers_words", tmp_path_factory.mktemp("n") / "texts", TEXTS_GIVEN, 2, num_seeds=2
        )


@pytest.fixture(scope="module")
def signals(tmp_path_factory):
    with tiny.no_pictures():
        return train("numbers_shapes", tmp_path_factory.mktemp("n") / "signals", SIGNALS_GIVEN)


def test_a_text_has_the_largest_of_its_numbers():
    values = {word: i for i, word in enumerate(numbers.COUNTS, 1)}
    texts, right = numbers.texts_with_counts(3, 200)
    for text, number in zip(texts, right):
        assert number == max(values.get(word, 0) for word in text.split())
    assert set(right.tolist()) == set(range(1, 13))


def test_a_signal_has_the_sum_of_the_heights_of_its_boxes():
    inputs, sums = DATA["box_sums"](num_train=40, num_test=5).load(None).splits["train"]
    for signal, number in zip(inputs[..., 0], sums):
        steps = np.abs(np.diff(signal))
        assert signal.max() <= 25.2
        assert 2 <= number <= 50
        assert steps.max() > 0.5
    assert np.corrcoef(inputs.mean(axis=(1, 2)), sums)[0, 1] > 0.5


def test_the_splits_are_apart_and_of_their_sizes():
    data = LargestCount(num_train=50, num_test=7, valid_fraction=0.2)
    splits = data.load(None).splits
    assert {name: len(rows) for name, (_, rows) in splits.items()} == {
        "train": 40,
        "valid": 10,
        "test": 7,
    }
    again = numbers.texts_with_counts(data.seed, 57)[0]
    assert splits["test"][0] == again[50:]
    assert sorted(splits["train"][0] + splits["valid"][0]) == sorted(again[:50])


def test_normalisation_is_that_of_the_training_split_alone():
    rows = {"train": (WORDS, OF_WORDS), "valid": (WORDS[:2], [1e3, 2e3]), "test": (WORDS, OF_WORDS)}
    checked = {name: TextNumbers.checked(name, *pair) for name, pair in rows.items()}
    config = Config.of(numbers_words.get_config())
    data = TextNumbers(splits=tuple(rows), sha256="", content=checked)
    task = Numbers.load(data, config.recipe, None)
    assert task.normalization.mean == pytest.approx(np.mean(OF_WORDS))
    assert task.normalization.std == pytest.approx(np.std(OF_WORDS))
    again = Numbers.restore(data, config.recipe, task.kept)
    assert again.normalization == task.normalization
    targets = task.rows.train["targets"]
    assert (targets.mean(), targets.std()) == pytest.approx((0, 1), abs=1e-6)


class Told(nn.Module):
    """Gives what it is told, `(b, 1)` or `(b, t, 1)`."""

    @nn.compact
    def __call__(self, inputs, train=False):
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * inputs, {}


def task_of(std=3.0):
    task = object.__new__(Numbers)
    object.__setattr__(task, "normalization", numbers.Normalization(10.0, std))
    return task


def test_the_error_is_in_normalised_units_and_the_distance_in_the_users():
    batch = {"targets": jnp.array([1.0, -1.0, 5.0]), "mask": jnp.array([True, True, False])}
    loss, metrics = task_of().measure(jnp.array([[2.0], [1.0], [0.0]]), {}, batch, True)
    assert float(loss) == pytest.approx((1 + 4) / 2)
    assert float(metrics["mse"].compute()) == pytest.approx(2.5)
    assert float(metrics["mae"].compute()) == pytest.approx(3 * (1 + 2) / 2)
    loss, _ = task_of().measure(jnp.zeros((3, 1)), {"penalty": jnp.array([2.0, 4, 9])}, batch, True)
    assert float(loss) == pytest.approx(1 + 3)


def test_the_number_of_a_signal_is_the_mean_over_its_positions():
    outputs = np.array([[[1.0], [2.0], [6.0]], [[0.0], [0.0], [3.0]]])
    np.testing.assert_allclose(numbers.number_of(outputs), [3, 1])
    np.testing.assert_allclose(numbers.number_of(outputs[:, 0]), [1, 0])


def test_a_run_predicts_the_mean_of_its_seeds_in_the_users_units(texts):
    one, both = texts.predict(WORDS[1]), texts.predict(WORDS)
    assert both.outputs.shape == (60,)
    np.testing.assert_allclose(one.outputs[0], both.outputs[1], atol=1e-5)
    assert one.tokens == [["two", "old", "cats"]]
    alone = [
        texts.task.predict(texts.model, [params], WORDS).outputs for params in texts.params.values()
    ]
    np.testing.assert_allclose(both.outputs, np.mean(alone, axis=0), rtol=1e-5)
    assert np.abs(alone[0] - alone[1]).max() > 1e-3
    inputs = jax.tree.map(jnp.asarray, texts.task.reader.read(WORDS)[0])
    computed = texts.task.compute(texts.model, list(texts.params.values()), inputs)
    np.testing.assert_allclose(computed["outputs"], both.outputs, rtol=1e-5)


def test_a_run_keeps_the_numbers_of_its_test_as_it_predicts_them(texts):
    run = kinds.read(texts.path)
    np.testing.assert_allclose(run.examples["targets"], OF_WORDS, rtol=1e-6)
    said = texts.predict(WORDS).outputs
    np.testing.assert_allclose(run.examples["predictions"], said, atol=1e-5)
    assert len(run.examples["inputs"]) == 16
    error = np.abs(said - OF_WORDS).mean()
    assert run.summary["metrics"]["ensemble/test/mae"]["mean"] == pytest.approx(error, rel=1e-4)
    assert run.measured == "mae"
    mean = texts.task.normalization.mean
    distance = np.abs(np.array(OF_WORDS) - mean).mean()
    assert Numbers.sentence(run).endswith(f"off by {run.mean('mae'):.2g} on average")
    said = Numbers.comparison(run)
    assert said == f"One that always says {mean:.3g}, the mean, is off by {distance:.2g}."
    assert Numbers.remarks(run, texts.task.data) == [said]
    assert set(Numbers.figures(run)) == {"predictions", "attention"}
    beside = Numbers.beside_examples(run)
    np.testing.assert_allclose(beside["targets"], OF_WORDS, rtol=1e-4)
    assert Numbers.example(run, 1)["tokens"] == ["two", "old", "cats"]
    assert Numbers.weights(run, 0)["attention"].shape == (1, 1, 2)


def test_signals_train_and_predict_and_are_drawn(signals, tmp_path, capsys):
    run = kinds.read(signals.path)
    assert set(Numbers.figures(run)) == {"predictions", "attention"}
    assert Numbers.weights(run, 2)["attention"].shape == (1, 12, 12)
    np.save(tmp_path / "own.npy", SIGNALS[:3])
    files = [str(tmp_path / name) for name in ("own.npy", "said.npy", "said.csv", "own.png")]
    command = ["predict", str(signals.path), "--input", files[0]]
    assert main([*command, "--output", files[1], "--figure", files[3]]) == 0
    assert "signal 2" in capsys.readouterr().out
    expected = signals.predict(SIGNALS[:3]).outputs
    np.testing.assert_allclose(np.load(files[1]), expected, rtol=1e-6)
    assert main([*command, "--output", files[2], "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.partition("\nwrote")[0])
    np.testing.assert_allclose([row["number"] for row in rows], expected, rtol=1e-5)
    np.testing.assert_allclose(np.loadtxt(files[2]), expected, rtol=1e-5)
    assert (tmp_path / "own.png").stat().st_size > 5_000


def test_texts_are_printed_with_their_numbers(texts, tmp_path, capsys):
    command = ["predict", str(texts.path), "two old zebras"]
    assert main([*command, "--figure", str(tmp_path / "own.png")]) == 0
    out = capsys.readouterr().out
    number = float(texts.predict("two old zebras").outputs[0])
    assert f"\n  {number:.4g}\n" in out
    assert "(zebras)" in out
    assert main([*command, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["number"] == pytest.approx(number, rel=1e-5)
    assert [token["known"] for token in row["tokens"]] == [True, True, False]


def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path, no_pictures):
    whole = train("numbers_words", tmp_path / "whole", TEXTS_GIVEN, 2)
    train("numbers_words", tmp_path / "half", TEXTS_GIVEN)
    again = train("numbers_words", tmp_path / "half", TEXTS_GIVEN, 2)
    assert again.rows == whole.rows
    other = dict.fromkeys(("train", "test"), (WORDS, [2 * x for x in OF_WORDS]))
    with pytest.raises(UsageError, match=r"config key 'data\.sha256' was"):
        train("numbers_words", tmp_path / "half", other, 2)


def test_python_gives_data_for_either_config(texts, signals):
    held = json.loads((texts.path / "config.json").read_text())["data"]
    assert (held["name"], len(held["sha256"])) == ("text_numbers", 64)
    held = json.loads((signals.path / "config.json").read_text())["data"]
    assert (held["name"], held["length"], held["channels"]) == ("signal_numbers", 12, 1)


def test_an_answer_is_that_of_the_run(texts, signals):
    reply = Answers(texts)({"inputs": {"text": "two old cats"}})
    np.testing.assert_allclose(
        numbers_of(reply["outputs"]), texts.predict("two old cats").outputs, rtol=1e-5
    )
    assert reply["tokens"] == ["two", "old", "cats"]
    own = {"shape": [12], "data": SIGNALS[0].tolist()}
    reply = Answers(signals)({"inputs": {"input": own}})
    expected = signals.predict(SIGNALS[0]).outputs
    np.testing.assert_allclose(numbers_of(reply["outputs"]), expected, rtol=1e-5)
    with pytest.raises(UsageError, match=r"^its texts become tokens in Python; "):
        texts.task.live_inputs()
    (live,) = signals.task.live_inputs().values()
    assert live.shape == (1, 12, 1)


def test_a_text_is_tried_in_the_terminal_and_a_signal_in_the_explorer(texts, signals):
    assert Numbers.to_try(texts.task.data, nn.Module)[0] == "predict"
    assert Numbers.to_try(signals.task.data, nn.Module) == ("explore", "")


@pytest.mark.usefixtures("symbolic_sizes")
@pytest.mark.parametrize("name", ["texts", "signals"])
def test_an_export_says_what_the_run_says(name, request, tmp_path):
    pytest.importorskip("safetensors")
    run = request.getfixturevalue(name)
    folder = flax_attn.export(run, tmp_path / "export")
    program = jax.export.deserialize((folder / "prediction.jax").read_bytes())
    own = WORDS[:5] if name == "texts" else SIGNALS[:5]
    inputs = run.task.reader.read(own)[0] if name == "texts" else own[..., None]
    np.testing.assert_allclose(
        program.call(inputs)["outputs"], run.predict(own).outputs, rtol=1e-5, atol=1e-5
    )


def test_a_report_has_every_number_of_the_test(texts):
    page = report([kinds.read(texts.path)])
    assert '"beside":{"targets":[1.5,2.5,' in page


LONG = np.ones((3, 4, 5, 6), np.float32)
BAD = {
    "as many": ("numbers_words", (WORDS, OF_WORDS[:3]), "as many targets as inputs .* 60 and 3"),
    "text": ("numbers_words", ([1, 2], [1.0, 2.0]), "expected texts in the train split.*got 1"),
    "nan": ("numbers_words", (WORDS[:2], [1.0, np.nan]), "expected finite numbers in the train"),
    "large": ("numbers_words", (WORDS[:2], [1.0, 1e300]), "expected finite numbers in the train"),
    "word": ("numbers_words", (WORDS[:2], ["a", "b"]), "expected real numbers in the train"),
    "flat": ("numbers_words", (WORDS[:2], [[1.0], [2.0]]), r"for each input \(n,\) .* \(2, 1\)"),
    "same": ("numbers_words", (WORDS, [2.0] * 60), "that vary, got 2 everywhere; nothing"),
    "empty": ("numbers_words", (["", " "], [1.0, 2.0]), "preprocessing leaves nothing of any"),
    "axes": ("numbers_shapes", (LONG, [1.0, 2, 3]), r"expected signals .* \(3, 4, 5, 6\)"),
    "signal": ("numbers_shapes", (SIGNALS * np.nan, OF_SIGNALS), "expected finite numbers in the"),
    "flat signals": ("numbers_shapes", (SIGNALS * 0, OF_SIGNALS), "signals to train on that vary"),
}


@pytest.mark.parametrize("name", BAD)
def test_data_that_make_no_task_are_told_in_one_line(name, tmp_path):
    config, rows, said = BAD[name]
    with pytest.raises(UsageError, match=said) as error:
        train(config, tmp_path / "run", {"train": rows, "test": rows})
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").glob("*/"))


def csv(folder, text, **options):
    file = folder / "own.csv"
    file.write_text(text, encoding="utf-8")
    config = numbers_csv.get_config()
    config.data.update({"file": str(file)} | options)
    return Config.of(config).data.load(None)


ROWS = "".join(f'"a text, of {i}",{i}.5\n' for i in range(20))


def test_a_table_of_texts_and_numbers_is_split_in_three(tmp_path):
    splits, sums = csv(tmp_path, f"text,number\n{ROWS}")
    sizes = {name: len(rows) for name, (_, rows) in splits.items()}
    assert sizes == {"train": 14, "valid": 3, "test": 3}
    for texts, rows in splits.values():
        assert texts == [f"a text, of {number - 0.5:g}" for number in rows]
    assert list(sums) == [str(tmp_path / "own.csv")]
    by_place, _ = csv(tmp_path, ROWS, text_column="1", number_column="2")
    assert by_place["test"][0] == splits["test"][0]
    (tmp_path / "test.csv").write_text("text,number\nnew,1\nother,2\n")
    both, sums = csv(tmp_path, f"text,number\n{ROWS}", test_file=str(tmp_path / "test.csv"))
    sizes = {name: len(rows) for name, (_, rows) in both.items()}
    assert sizes == {"train": 17, "valid": 3, "test": 2}  # nothing is set aside twice
    assert list(sums) == [str(tmp_path / "own.csv"), str(tmp_path / "test.csv")]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("text,number\na,seven\n", {}, "expected a finite number in .*, line 2, got 'seven'"),
        ("text,number\na,nan\n", {}, "expected a finite number in .*, line 2, got 'nan'"),
        ("text;number\na;3,5\n", {}, r"number \(with a point, as in 3.5\) in .*, got '3,5'"),
        ("text,number\na,3e38\n", {}, r"in .*, line 2, got '3e38', beyond 1e\+30; mend it"),
        ("text,number\na,1e99\n", {}, "expected a finite number in .*, line 2, got '1e99'"),
        ("text,number\na,\n", {}, "expected a number in .*, line 2"),
        ("text,number\na,1\n", {}, "expected enough rows in .* got 1"),
        ("text,number\na,1\na,2\n", {}, "expected texts that differ in .*, got 'a' in every row"),
        (f"text,number\n{ROWS}", {"test_fraction": 0.0}, "data.test_fraction"),
        ("text,stars\na,1\n", {}, "no column 'number' in .*data.number_column"),
        ("", {}, "expected rows of texts and numbers in .* got an empty file"),
        (f"text,number\n{ROWS}", {"text_column": "number"}, "of texts and another of numbers"),
    ],
)
def test_a_bad_table_is_told_in_one_line(tmp_path, text, options, said):
    with pytest.raises(UsageError, match=said) as error:
        csv(tmp_path, text, **options)
    assert "\n" not in str(error.value)


def test_a_test_file_of_the_texts_of_training_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"expected texts in data.test_file=.* got none"):
        csv(tmp_path, f"text,number\n{ROWS}", test_file=str(tmp_path / "own.csv"))


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("texts", [], "expected a text"),
        ("texts", ["zebra"], "at least one word that the run has seen"),
        ("texts", ["two cats", "--output", "own.txt"], "--output to end in .npy or .csv"),
        ("signals", ["two cats"], "expected --input FILE with signals of 12 points"),
        ("signals", ["--input", "none.npy"], "cannot read --input"),
    ],
)
def test_a_bad_request_is_told_in_one_line(name, arguments, said, request, capsys):
    assert main(["predict", str(request.getfixturevalue(name).path), *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("kind", ["numbers", "numbers of signals"])
@pytest.mark.parametrize(
    ("examples", "said"),
    [
        ({"targets": np.ones((40, 1))}, "have no targets"),
        ({"targets": np.ones(39)}, "predictions do not fit the others"),
        ({"predictions": np.full(40, np.nan)}, "predictions are not finite"),
        ({"inputs": np.full((3, 10, 1), np.nan)}, "not finite|do not fit"),
        ({"lengths": np.array([99, 1, 1])}, "have lengths above"),
        ({"targets": np.ones(2), "predictions": np.ones(2)}, "have more inputs than targets"),
        ({"attention/attention": np.ones((3, 4, 4))}, "have weights"),
    ],
)
def test_a_strangers_run_is_told_in_one_line(kind, examples, said, tmp_path, capsys):
    run = write_run(tmp_path / "run", kind, examples=examples)
    with pytest.raises(UsageError, match=said):
        kinds.read(run)
    assert main(["report", str(run), "--output", str(tmp_path / "own.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda derived: derived | {"std": 0.0},
        lambda derived: derived | {"inputs": {"mean": 0.0}},
        lambda derived: derived | {"inputs": [1, 2]},
    ],
)
def test_what_a_strangers_run_keeps_is_checked(change, signals, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(signals.path, copy)
    config = json.loads((copy / "config.json").read_text())
    config["derived"] = change(config["derived"])
    (copy / "config.json").write_text(json.dumps(config))
    vouch(copy)
    with pytest.raises(UsageError, match="expected what the data decided under 'derived'"):
        flax_attn.load(copy)


def test_data_of_neither_texts_nor_signals_are_told():
    class Odd(numbers.NumberData):
        def load(self, manual_dir):
            return numbers.Numbered({})

    with pytest.raises(UsageError, match="a subclass of NumbersOfTexts or NumbersOfSignals as"):
        numbers.reader_class(Odd())
    assert issubclass(NumbersOfTexts, numbers.NumberData)
