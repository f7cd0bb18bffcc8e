"""Every cell of the grid of inputs and targets: from arrays and from files, to every output."""

import functools
import json
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from PIL import Image

import flax_attn
from flax_attn.__main__ import main
from flax_attn.explore.answers import Answers
from flax_attn.models.forward import apply_together
from flax_attn.runs import reading
from flax_attn.tasks import TASKS
from flax_attn.tasks.figures import draw_run
from flax_attn.tasks.replies import numbers_of
from tests import tiny

RANDOM = np.random.default_rng(0)
SIGNALS = RANDOM.normal(size=(60, 12)).astype(np.float32) * 3 + 1
SERIES = RANDOM.normal(size=(60, 12, 3)).astype(np.float32)
IMAGES = RANDOM.integers(0, 256, (60, 8, 8), np.uint8)
COLOURS = RANDOM.integers(0, 256, (60, 8, 8, 3), np.uint8)
TEXTS = [f"{word} cats and a {word} hat" for word in ("one", "two", "old", "four", "red")] * 12
NUMBERS = np.arange(60, dtype=np.float32) % 7 / 2
CLASSES = ["no", "yes", "no"] * 20
SIGNAL_MODEL = tiny.ATTENTION | {"optimizer.schedule": "constant"}
SERIES_MODEL = tiny.STEPS | {"optimizer.schedule": "constant", "model.features": 8}
IMAGE_MODEL = tiny.STEPS | {"model.num_blocks": 1, "model.features": 8, "model.num_heads": 2}
IMAGE_MODEL |= {"model.hidden_features": 8, "data.size": 0}
TEXT_MODEL = tiny.TEXTS | {"optimizer.schedule": "constant"}


class Case(NamedTuple):
    """A tiny training: the name of the task, a config, data, and what makes the model small."""

    task: str
    config: str
    inputs: Any
    targets: Any
    model: dict[str, Any]


CASES = {
    "signals": Case("signal-signal", "signals_npz", SIGNALS, SIGNALS[:, ::-1], SIGNAL_MODEL),
    "classes of signals": Case("signal-classes", "signals_classes", SIGNALS, CLASSES, SIGNAL_MODEL),
    "classes of series": Case("signal-classes", "series_classes", SERIES, CLASSES, SERIES_MODEL),
    "numbers of signals": Case("signal-number", "numbers_shapes", SIGNALS, NUMBERS, SIGNAL_MODEL),
    "classes of images": Case("image-classes", "images_folder", IMAGES, CLASSES, IMAGE_MODEL),
    "classes of colours": Case("image-classes", "images_folder", COLOURS, CLASSES, IMAGE_MODEL),
    "numbers of images": Case("image-number", "images_numbers", IMAGES, NUMBERS, IMAGE_MODEL),
    "classes of texts": Case("text-classes", "text_csv", TEXTS, CLASSES, TEXT_MODEL),
    "numbers of texts": Case("text-number", "numbers_csv", TEXTS, NUMBERS, TEXT_MODEL),
}
FILES = {name: case for name, case in CASES.items() if case.config != "numbers_shapes"}


def parts(case):
    """The rows of a case by split."""
    rows = {"train": slice(0, 40), "valid": slice(40, 48), "test": slice(48, 60)}
    return {name: (case.inputs[part], case.targets[part]) for name, part in rows.items()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains a case from arrays, once; two seeds, whose predictions are joined."""

    @functools.cache
    def train(name):
        case, folder = CASES[name], tmp_path_factory.mktemp("grid") / "run"
        options = {"data": parts(case), "overrides": case.model, "workdir": folder}
        return flax_attn.train(case.config, num_epochs=1, num_seeds=2, **options)

    return train


def write(name, folder):
    """Writes the data of a case as files; returns the keys of a config that name them."""
    case, file = CASES[name], folder / "own.npz"
    if name == "numbers of images":
        rows = [f"{i}.png,{number}\n" for i, number in enumerate(case.targets)]
        (folder / "numbers.csv").write_text("file,number\n" + "".join(rows))
        for i, image in enumerate(case.inputs):
            Image.fromarray(image).save(folder / f"{i}.png")
        return {"data.file": str(folder)}
    if isinstance(case.inputs, list):
        column = "label" if name == "classes of texts" else "number"
        for split, rows in parts(case).items():
            lines = "".join(f"{text},{target}\n" for text, target in zip(*rows))
            (folder / f"{split}.csv").write_text(f"text,{column}\n{lines}")
        return {"data.file": f"{folder}/train.csv", "data.test_file": f"{folder}/test.csv"}
    names = ("images", "labels") if case.config.startswith("images") else ("inputs", "targets")
    arrays = {
        f"{split}_{key}": array
        for split, rows in parts(case).items()
        for key, array in zip(names, rows)
    }
    np.savez(file, **arrays)
    return {"data.file": str(file)}


@pytest.mark.parametrize("name", FILES)
def test_files_train_as_arrays_do(name, trained, tmp_path, no_pictures):
    case, files = CASES[name], write(name, tmp_path)
    options = {"overrides": case.model | files, "workdir": tmp_path / "run", "num_seeds": 2}
    run = flax_attn.train(case.config, num_epochs=1, **options)
    assert run.task.name == case.task
    if name not in ("numbers of images", "classes of texts", "numbers of texts"):  # split at random
        assert run.rows == trained(name).rows
    derived = json.loads((run.path / "config.json").read_text())["derived"]
    assert [len(digest) for digest in derived["files"].values()] == [64] * len(derived["files"])


@pytest.mark.parametrize("name", CASES)
def test_predictions_are_those_of_the_loaded_run_of_the_program_and_of_the_page(name, trained):
    run, few = trained(name), CASES[name].inputs[:3]
    prediction = run.predict(few)
    again = flax_attn.load(run.path).predict(few)
    np.testing.assert_array_equal(prediction.outputs, again.outputs)
    arrays, params = run.task.inputs.read(few).arrays, list(run.params.values())
    program = jax.jit(run.task.compute, static_argnums=0)
    computed = jax.device_get(program(run.model, params, arrays))["outputs"]
    np.testing.assert_allclose(computed.reshape(prediction.outputs.shape), prediction.outputs, 1e-5)
    shape = {"signal": (3, 12), "number": (3,), "classes": (3, 2)}[run.task.target.name]
    assert prediction.outputs.shape == shape
    if run.task.target.name == "classes":
        np.testing.assert_allclose(prediction.outputs.sum(axis=1), 1, rtol=1e-6)
        assert prediction.classes == [prediction.names[i] for i in computed.argmax(axis=1)]
    one = few[0] if isinstance(few, list) else np.asarray(few[0], np.float64)
    array = lambda: one / 255 if few.dtype == np.uint8 else one
    asked = (
        {"text": one}
        if isinstance(one, str)
        else {"input": {"shape": list(one.shape), "data": array().ravel().tolist()}}
    )
    reply = Answers(run)({"inputs": asked})
    np.testing.assert_allclose(
        numbers_of(reply["outputs"]).ravel(), prediction.outputs[0].ravel(), 1e-4
    )
    assert reply["attention"].keys() == prediction.attention.keys()


@pytest.mark.parametrize("name", CASES)
def test_predict_prints_writes_and_draws(name, trained, tmp_path, capsys):
    run, few = trained(name), CASES[name].inputs[:2]
    expected, picture = run.predict(few), str(tmp_path / "picture.png")
    source, output = tmp_path / "own.npy", str(tmp_path / "predicted.npy")
    given = few if isinstance(few, list) else ["--input", str(source)]
    if not isinstance(few, list):
        np.save(source, few)
    command = ["predict", str(run.path), *given, "--figure", picture]
    assert main([*command, "--output", output]) == 0
    np.testing.assert_allclose(np.load(output).squeeze(), expected.outputs.squeeze(), 1e-5)
    with Image.open(picture) as drawn:
        assert min(drawn.size) > 200
    capsys.readouterr()
    assert main([*command, "--json", "--output", output]) == 0
    rows = json.loads(capsys.readouterr().out.partition("\nwrote")[0])
    if expected.classes:
        assert [next(iter(row["classes"])) for row in rows] == expected.classes
    elif run.task.target.name == "number":
        np.testing.assert_allclose([row["number"] for row in rows], expected.outputs, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_report_and_figures_show_the_test_split(name, trained):
    draw_run(trained(name).path)
    run, task = reading.read(trained(name).path), TASKS[CASES[name].task]
    assert (run.task, len(run.examples["inputs"])) == (task.name, 12)
    figures = {path.stem for path in (run.path / "figures").iterdir()}
    assert {
        "loss",
        "predictions" if task.target_class.measured != "accuracy" else "confusion",
    } <= figures
    assert figures >= run.attention.keys()
    inputs, target = task.input_class, task.target_class
    example, weights = inputs.example(run, 1) | target.example(run, 1), inputs.weights(run, 1)
    assert {matrix.ndim for matrix in weights.values()} == {3}
    page = flax_attn.show(str(run.path)).html
    assert '"input":"{}","target":"{}"'.format(*task.name.split("-")) in page
    assert example.keys() >= ({"target"} if task.target_class.name != "signal" else {"targets"})


@pytest.mark.usefixtures("symbolic_sizes")
@pytest.mark.parametrize("name", ["classes of series", "classes of colours", "classes of texts"])
def test_an_export_predicts_as_the_run_does(name, trained, tmp_path):
    run, few = trained(name), CASES[name].inputs[:5]
    folder = flax_attn.export(run, tmp_path / "export")
    program = jax.export.deserialize((folder / "prediction.jax").read_bytes())
    outputs = program.call(run.task.inputs.read(few).arrays)["outputs"]
    np.testing.assert_allclose(outputs, run.predict(few).outputs, rtol=1e-5, atol=1e-6)


def test_texts_of_any_number_and_length_wait_for_no_program_that_was_compiled_ahead(trained):
    run = trained("classes of texts")
    run.warm(32)
    before, words = apply_together._cache_size(), " ".join(TEXTS[:8]).split()
    for number, length in ((1, 3), (2, 11), (16, 16), (17, 30), (40, 19)):
        texts = [" ".join(words[: 1 + i % length]) for i in range(number)]
        together = run.predict(texts)
        alone = [run.predict(text).outputs[0] for text in texts[:3]]
        np.testing.assert_allclose(together.outputs[:3], alone, atol=1e-6)
        (weights,) = together.attention.values()
        assert weights.shape[-1] == max(map(len, together.tokens))
    assert apply_together._cache_size() == before


def test_series_may_have_another_length_than_in_training(trained):
    run = trained("classes of series")
    assert run.predict(np.concatenate([SERIES[:2]] * 2, axis=1)).outputs.shape == (2, 2)
    assert run.predict(SERIES[0, :5]).outputs.shape == (1, 2)
    with pytest.raises(TypeError, match="beam"):  # of translations
        run.predict(SERIES[:2], beam=2)


def test_a_table_gets_columns_with_predictions(trained, tmp_path, capsys):
    table = tmp_path / "own.csv"
    table.write_text("id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(TEXTS[:4])))
    for name, column in (("classes of texts", "predicted_class"), ("numbers of texts", "number")):
        assert main(["predict", str(trained(name).path), "--input", str(table)]) == 0
        written = (tmp_path / "own.predictions.csv").read_text().splitlines()
        assert len(written) == 5
        assert column in written[0]
    assert "4 texts: " in capsys.readouterr().out


BAD = {
    "as many targets as inputs": ("signals_npz", SIGNALS, SIGNALS[:3]),
    "finite numbers": ("signals_npz", np.where(SIGNALS > 1, np.nan, SIGNALS), SIGNALS),
    "real numbers": ("signals_npz", np.full((60, 12), "a"), SIGNALS),
    "as long as the signals": ("signals_npz", SIGNALS, SIGNALS[:, :5]),
    "data.target": ("signals_npz", SIGNALS, NUMBERS),
    "vary": ("signals_npz", SIGNALS * 0, SIGNALS * 0),
    "as class": ("signals_classes", SIGNALS, NUMBERS),
    "at least two classes": ("signals_classes", SIGNALS, ["a"] * 60),
    "images (n": ("images_folder", np.stack([IMAGES] * 2, -1), CLASSES),
    "[0, 1]": ("images_folder", IMAGES / 2.0, CLASSES),
    "numbers that vary": ("images_numbers", IMAGES, NUMBERS * 0),
    "a list in": ("text_csv", "abc", CLASSES),
    "expected texts": ("text_csv", list(range(60)), CLASSES),
    "preprocessing": ("numbers_csv", [""] * 60, NUMBERS),
}


@pytest.mark.parametrize("word", BAD)
def test_data_that_make_no_task_are_one_line(word, tmp_path):
    config, inputs, targets = BAD[word]
    rows = {"train": (inputs, targets), "test": (inputs, targets)}
    with pytest.raises(flax_attn.errors.UsageError) as error:
        flax_attn.train(config, data=rows, workdir=tmp_path / "run", overrides=CASES_OF[config])
    assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


CASES_OF = {case.config: case.model for case in CASES.values()}
