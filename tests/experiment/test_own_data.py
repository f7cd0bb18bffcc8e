"""Data of the user's own from files: the same figures as from memory, and predictions from both."""

import contextlib
import hashlib
import inspect
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import flax_attn
from flax_attn.__main__ import main
from flax_attn.data import contents
from flax_attn.data.sets import ImageFiles, PairsTSV, SignalsNPZ
from flax_attn.data.sets.memory import digest
from flax_attn.errors import UsageError
from flax_attn.kinds.images import ImageClasses
from flax_attn.kinds.series import Series
from flax_attn.kinds.signals import check_signals
from flax_attn.kinds.user_files import read_csv, write_signals
from tests import tiny

RANDOM = np.random.default_rng(0)
IMAGE_MODEL = {"model.num_blocks": 1, "model.features": 8, "model.num_heads": 2}
IMAGE_MODEL |= tiny.STEPS | {"model.hidden_features": 8, "model.patch_size": 4}
IMAGE_MODEL |= {"data.height": 0, "data.width": 0}  # as they are
PAIR_MODEL = tiny.PAIRS | {"data.tokenizer": "word"}


def signals(number, channels=2, length=13):
    inputs = RANDOM.normal(size=(number, length, channels)).astype(np.float32)
    return inputs, inputs.sum(axis=2)


def images(number, height=8, width=12):
    pixels = RANDOM.integers(0, 256, (number, height, width), np.uint8)
    return pixels, ["cat"] * (number // 2) + ["dog"] * (number - number // 2)


def write_images(folder, pixels, labels):
    """Pictures by class, whose names are in the order of the rows."""
    for i, (image, label) in enumerate(zip(pixels, labels)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / label / f"{i:03}.png")


def train(name, folder, overrides, data=None):
    """A run, with its pictures where the data are in files."""
    workdir = folder / ("memory" if data else "file")
    with tiny.no_pictures() if data else contextlib.nullcontext():
        return flax_attn.train(name, data=data, num_epochs=1, workdir=workdir, overrides=overrides)


def check_same(by_file, in_memory):
    assert by_file.rows == in_memory.rows
    assert by_file.summary["metrics"] == in_memory.summary["metrics"]


def by_name(data):
    """The arrays of a file for data by split."""
    return {
        f"{split}_{name}": array
        for split, rows in data.items()
        for name, array in zip(("inputs", "targets"), rows)
    }


def test_signals_from_a_file_give_the_figures_of_memory_and_predictions(tmp_path, capsys):
    data = {"train": signals(60), "test": signals(11)}
    path = tmp_path / "own.npz"
    np.savez(path, **by_name(data))
    by_file = train("signals_npz", tmp_path, tiny.ATTENTION | {"data.file": str(path)})
    check_same(by_file, train("signals_npz", tmp_path, tiny.ATTENTION, data))
    derived = json.loads((by_file.path / "config.json").read_text())["derived"]
    assert derived["files"] == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    assert derived["shape"] == [13, 2]
    path.unlink()  # a run needs its data no more
    inputs, run = data["test"][0], flax_attn.load(by_file.path)
    for some, name in ((inputs, "rows"), (inputs[0], "one")):
        np.save(tmp_path / f"{name}.npy", some)
        arguments = ["--input", f"{tmp_path / name}.npy", "--figure", f"{tmp_path / name}.png"]
        assert main(["predict", str(by_file.path), *arguments]) == 0
        outputs = np.load(tmp_path / f"{name}.predictions.npy")
        assert outputs.shape == (len(inputs) if name == "rows" else 1, 13, 1)
        np.testing.assert_array_equal(outputs, run.predict(some).outputs)
    assert main(["predict", str(by_file.path)]) == 2
    assert "signals of 13 points" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(5,), (2, 5), (1, 5), (2, 5, 1)])
def test_a_csv_file_of_predictions_has_one_signal_a_line(tmp_path, shape):
    signals = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    write_signals(tmp_path / "own.csv", signals)
    np.testing.assert_array_equal(read_csv(tmp_path / "own.csv"), signals.reshape(-1, 5))


def test_signals_of_other_contents_are_refused_by_a_run_that_goes_on(tmp_path, no_pictures):
    path, said = tmp_path / "own.npz", []
    files = {"data.file": str(path), "optimizer.schedule": "constant"}
    np.savez(path, **by_name({"train": signals(60), "test": signals(11)}))
    train("signals_npz", tmp_path, tiny.ATTENTION | files)
    options = {"workdir": tmp_path / "file", "overrides": tiny.ATTENTION | files}
    flax_attn.train("signals_npz", num_epochs=1, say=said.append, **options)
    assert said == ["this run is finished; its results:"]
    np.savez(path, **by_name({"train": signals(60), "test": signals(11)}))
    flax_attn.train("signals_npz", num_epochs=1, say=said.append, **options)
    changed = f"{path} has changed since this run; to train on it, choose another --workdir"
    assert said[1:] == [changed, "this run is finished; its results:"]
    with pytest.raises(UsageError, match=r"began with other contents of .*own.npz"):
        flax_attn.train("signals_npz", num_epochs=2, **options)


def test_signals_in_one_piece_are_split_in_three(tmp_path):
    inputs, targets = signals(41, channels=1)
    np.savez(tmp_path / "own.npz", inputs=inputs[..., 0], targets=targets)
    data = SignalsNPZ(file=str(tmp_path / "own.npz"), valid_fraction=0.2, test_fraction=0.1)
    splits = data.load(None)
    assert {name: len(rows.inputs) for name, rows in splits.items()} == {
        "valid": 8,
        "test": 4,
        "train": 29,
    }
    together = np.concatenate([rows.inputs for rows in splits.values()])
    assert {row.tobytes() for row in together} == {row.tobytes() for row in inputs}
    for rows in splits.values():
        np.testing.assert_array_equal(rows.targets, rows.inputs)


@pytest.mark.full
def test_images_from_a_folder_or_file_give_the_figures_of_memory_and_predictions(tmp_path, capsys):
    data = {"train": images(40), "valid": images(9), "test": images(11)}
    for name, rows in data.items():
        write_images(tmp_path / "own" / name, *rows)
    in_memory = train("images_folder", tmp_path, IMAGE_MODEL, data)
    path = str(tmp_path / "own")
    by_folder = train("images_folder", tmp_path, IMAGE_MODEL | {"data.file": path})
    check_same(by_folder, in_memory)
    arrays = {
        f"{split}_{name}": array
        for split, rows in data.items()
        for name, array in zip(("images", "labels"), rows)
    }
    np.savez(tmp_path / "own.npz", **arrays)
    for one, other in zip(
        jax.tree.leaves(ImageFiles(file=path, height=0, width=0).load(None)[:2]),
        jax.tree.leaves(ImageFiles(file=f"{path}.npz", height=0, width=0).load(None)[:2]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    pixels = data["test"][0]
    expected = flax_attn.load(by_folder.path).predict(pixels)
    np.save(tmp_path / "own.npy", pixels)
    picture = tmp_path / "own" / "test" / "cat" / "000.png"
    for source in (picture, tmp_path / "own.npy"):
        arguments = ["--input", str(source), "--json", "--figure", str(tmp_path / "map.png")]
        assert main(["predict", str(by_folder.path), *arguments]) == 0
        row = json.loads(capsys.readouterr().out)[0]
        np.testing.assert_allclose(
            [row["classes"][name] for name in ("cat", "dog")], expected.outputs[0], rtol=1e-5
        )


def test_images_in_one_piece_are_split_in_every_class_and_scaled(tmp_path):
    pixels, labels = images(20)
    write_images(tmp_path / "own", pixels, labels)
    write_images(tmp_path / "own", *images(10, height=9))  # ten of another size
    data = ImageFiles(file=str(tmp_path / "own"), height=4, width=5, valid_fraction=0.2)
    splits, classes, files = data.load(None)
    assert (classes, list(files)) == (["cat", "dog"], [str(tmp_path / "own")])
    number = {name: np.bincount(rows).tolist() for name, (_, rows) in splits.items()}
    assert {name: sum(counts) for name, counts in number.items()} == {
        "train": 18,
        "valid": 5,
        "test": 2,
    }
    assert {rows.shape[1:] for rows, _ in splits.values()} == {(4, 5)}


@pytest.mark.full
def test_a_run_that_scales_the_images_of_a_folder_scales_those_to_predict(
    tmp_path, capsys, no_pictures
):
    pixels, labels = images(40)
    write_images(tmp_path / "own", pixels, labels)
    size = {"data.height": 4, "data.width": 8, "data.file": str(tmp_path / "own")}
    run = train("images_folder", tmp_path, IMAGE_MODEL | size)
    (small,) = run.task.prepare(pixels[:1])
    assert small.shape == (4, 8)
    (expected,) = run.predict(pixels[0]).outputs
    np.testing.assert_array_equal(run.predict(small).outputs, [expected])
    picture = tmp_path / "own" / "cat" / "000.png"
    assert main(["predict", str(run.path), "--input", str(picture), "--json"]) == 0
    classes = json.loads(capsys.readouterr().out)[0]["classes"]
    np.testing.assert_allclose([classes[name] for name in ("cat", "dog")], expected, rtol=1e-5)


def test_images_of_a_folder_are_those_of_a_file(tmp_path):
    data = {"train": images(40), "valid": images(9), "test": images(11)}
    arrays = {}
    for name, (pixels, labels) in data.items():
        write_images(tmp_path / "own" / name, pixels, labels)
        arrays |= {f"{name}_images": pixels, f"{name}_labels": labels}
    np.savez(tmp_path / "own.npz", **arrays)
    path = tmp_path / "own"
    loaded = [
        ImageFiles(file=str(of), height=0, width=0).load(None)[:2]
        for of in (path, path.with_suffix(".npz"))
    ]
    for one, other in zip(*map(jax.tree.leaves, loaded), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.full
def test_pairs_from_a_csv_file_give_the_figures_of_memory(tmp_path):
    rows = [(" ".join("abcde"[: 1 + i % 5] + "fgh"[i % 3]), f"{i % 5} {i % 3}") for i in range(60)]
    for name, between in (("own.csv", ","), ("own.tsv", "\t")):
        (tmp_path / name).write_text("".join(between.join(row) + "\n" for row in rows))
    options = {"valid_fraction": 0.2, "test_fraction": 0.2}
    splits, by_ending = (
        PairsTSV(file=str(tmp_path / name), **options).load(None).splits
        for name in ("own.tsv", "own.csv")
    )
    assert by_ending == splits
    data = {name: tuple(zip(*pairs)) for name, pairs in splits.items()}
    files = {f"data.{name}": value for name, value in options.items()}
    files["data.file"] = str(tmp_path / "own.csv")
    by_file = train("translate_tsv", tmp_path, PAIR_MODEL | files)
    check_same(by_file, train("translate_tsv", tmp_path, PAIR_MODEL, data))


def test_the_sum_of_contents_from_python_is_of_their_shapes_too():
    array = np.arange(12.0)
    contents = ({"train": (array.reshape(shape), ["a"])} for shape in ((2, 6), (3, 4), (3, 4)))
    one, other, same = map(digest, contents)
    assert one != other == same


X, Y = signals(20)
BAD_SIGNALS = {
    "as many targets as inputs": (X, Y[:3]),
    "no finite": (np.where(X > 1, np.nan, X), Y),
    "too large": (X.astype(float) * 1e300, Y),
    "no numbers": (np.full((20, 13), "a"), Y),
    "complex": (X * 1j, Y),
    "flat": (X[:, 0, 0], Y),
    "other length": (X, Y[:, :5]),
    "no points": (X[:, :0], Y[:, :0]),
    "several targets": (X, X),
    "one number": (X * 0, Y * 0),
    "too few": (X[:2], Y[:2]),
    "a single number": (np.float32(1), np.float32(1)),
}
SAID_OF_SIGNALS = {
    "as many targets as inputs": "as many targets as inputs in .*own.npz, .* got 20 and 3",
    "no finite": "finite numbers in .*own.npz",
    "too large": "finite numbers in .*own.npz",
    "no numbers": "real numbers in .*own.npz, got <U1",
    "complex": "real numbers in .*own.npz, got complex",
    "flat": r"targets \(n, t\) in .*own.npz, got \(20,\) and \(20, 13\)",
    "other length": r"got \(20, 13, 2\) and \(20, 5\)",
    "no points": r"got \(20, 0, 2\)",
    "several targets": r"got \(20, 13, 2\) and \(20, 13, 2\)",
    "one number": "signals to train on that vary",
    "too few": "examples in the (test|valid) split, got none",
    "a single number": r"got \(\) and \(\)",
}


@pytest.mark.parametrize("name", BAD_SIGNALS)
def test_signals_that_do_not_fit_are_told_and_nothing_is_written(tmp_path, name):
    inputs, targets = BAD_SIGNALS[name]
    np.savez(tmp_path / "own.npz", inputs=inputs, targets=targets)
    refuse("signals_npz", tmp_path, {"data.file": str(tmp_path / "own.npz")}, SAID_OF_SIGNALS[name])


def refuse(config, folder, overrides, said):
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match=said) as error:
        flax_attn.train(config, workdir=folder / "run", overrides=overrides)
    assert len(str(error.value).splitlines()) == 1
    assert sorted(folder.rglob("*")) == before


def test_signals_of_two_shapes_and_other_keys_are_told(tmp_path):
    data = {"train": signals(20), "test": signals(5, length=9)}
    np.savez(tmp_path / "own.npz", **by_name(data))
    path = {"data.file": str(tmp_path / "own.npz")}
    said = r"one shape in all splits, got \(13, 2\) in train and \(9, 2\) in test"
    refuse("signals_npz", tmp_path, path, said)
    with pytest.raises(UsageError, match=said):
        flax_attn.train("signals_npz", data=data, workdir=tmp_path / "run")
    refuse("signals_npz", tmp_path, {}, "--data.file")
    refuse("signals_npz", tmp_path, {"data.file": "gone.npz"}, "cannot read gone.npz")
    refuse("signals_npz", tmp_path, path | {"data.valid_fraction": 0.0}, "valid_fraction above 0")
    refuse("signals_npz", tmp_path, path | {"data.test_fraction": 0.95}, "together below 1")


PIXELS, LABELS = images(20)


def test_classes_of_bytes_have_the_names_that_these_spell():
    names = [b"cat", "hühner".encode(), b"cat"]
    _, classes = contents.images("here", PIXELS[:3], np.array(names))
    assert classes == ["cat", "hühner", "cat"]


FILMS, SOUNDS = ["a film", "a play"] * 8, ["good", "bad"] * 8


@pytest.mark.parametrize(
    ("texts", "others", "said"),
    [
        ("abcdabcd", SOUNDS[:8], "expected a list of texts in here, got 'abcdabcd'"),
        (FILMS[:8], "xyxyxyxy", "expected a list of texts in here, got 'xyxyxyxy'"),
        (dict.fromkeys(FILMS), SOUNDS, "expected a list of texts in here"),
        (set(FILMS), SOUNDS, "expected a list of texts in here"),
        (None, SOUNDS, "expected a list of texts in here, got None"),
        (np.array("a film"), SOUNDS, "expected a list of texts in here, got 'a film'"),
        ([b"a film"] * 16, SOUNDS, "expected texts in here, got b'a film'"),
        (FILMS, [None, "bad"] * 8, "number of a class, for each text in here, got None"),
        (FILMS, [float("nan"), "bad"] * 8, "number of a class, for each text in here, got nan"),
        (FILMS, [b"good", b"bad"] * 8, "number of a class, for each text in here, got b'good'"),
        (FILMS, ["", "bad"] * 8, "number of a class, for each text in here, got ''"),
        (["a \ud800", "b"] * 8, SOUNDS, r"whole characters in here, got 'a \\ud800'; decode"),
        (FILMS, ["\ud800", "bad"] * 8, "expected whole characters in here"),
        (FILMS, np.zeros((16, 1)), r"number of a class, for each text in here, got \[0.0\]"),
    ],
)
def test_what_are_no_texts_in_classes_is_told(texts, others, said):
    with pytest.raises(UsageError, match=said):
        contents.texts("here", texts, others)


@pytest.mark.parametrize("make", [list, tuple, iter, np.array, lambda rows: np.array(rows, object)])
def test_texts_and_classes_may_be_any_list(make):
    assert contents.texts("here", make(FILMS), make(SOUNDS)) == (FILMS, SOUNDS)
    assert contents.texts("here", make(FILMS), make([3, 4] * 8))[1] == ["3", "4"] * 8


@pytest.mark.parametrize(
    "labels", [[None, "cat", "cat"], [["cat"], "cat", "cat"], ["cat", 1, 2.5], ["", "a", "b"]]
)
def test_labels_of_another_kind_are_told(labels):
    with pytest.raises(UsageError, match="expected the class of each image"):
        contents.images("here", PIXELS[:3], np.array(labels, object))
    with pytest.raises(UsageError, match="expected the class of each image"):
        contents.images("here", PIXELS[:3], [["cat"], ["cat", "dog"], ["cat"]])


def test_rows_of_several_lengths_are_told_by_every_task():
    rows, shape = [[1.0] * 12, [2.0] * 11], SimpleNamespace(num_series=2, image_shape=(12, 12))
    series, pictures = SimpleNamespace(data=shape), SimpleNamespace(data=shape)
    for call in (
        lambda: check_signals(rows, (12, 1)),
        lambda: inspect.unwrap(Series.predict)(series, None, [], rows),
        lambda: inspect.unwrap(ImageClasses.prepare)(pictures, rows),
    ):
        with pytest.raises(UsageError, match="expected one array in the inputs"):
            call()
    with pytest.raises(UsageError, match="expected finite numbers"):
        inspect.unwrap(Series.predict)(series, None, [], np.full((1, 3, 2), 1e300))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ((PIXELS / 2.0, LABELS), r"in \[0, 1\] as pixels of .*, got float64 from 0"),
        (
            (PIXELS[:3], LABELS),
            "as many targets as inputs in .*own.npz, at least one, got 3 and 20",
        ),
        ((PIXELS[0], LABELS), r"without an axis of colours, got \(8, 12\)"),
        ((np.stack([PIXELS] * 3, axis=-1), LABELS), r"colours, got \(20, 8, 12, 3\)"),
        ((PIXELS.astype(int), LABELS), r"bytes or numbers in \[0, 1\] as pixels of .*own.npz"),
        ((PIXELS / np.nan, LABELS), r"bytes or numbers in \[0, 1\]"),
        ((PIXELS, np.linspace(0, 1, 20)), r"a name or a whole number, got float64"),
        ((PIXELS, np.zeros((20, 1), int)), r"got int64 of shape \(20, 1\)"),
        ((PIXELS, ["cat"] * 20), "at least two classes to train on, got cat"),
        ((PIXELS, ["cat"] * 19 + ["dog"]), "at least 3 rows of every class, .* got 1 of 'dog'"),
    ],
)
def test_images_that_do_not_fit_are_told_and_nothing_is_written(tmp_path, arrays, said):
    np.savez(tmp_path / "own.npz", images=arrays[0], labels=arrays[1])
    refuse("images_folder", tmp_path, {"data.file": str(tmp_path / "own.npz")}, said)


def test_folders_of_images_and_keys_that_do_not_fit_are_told(tmp_path):
    for name, labels in (("train", ["cat", "dog"]), ("test", ["cat", "fox"])):
        write_images(tmp_path / "own" / name, PIXELS, labels * 10)
    path = {"data.file": str(tmp_path / "own")}
    refuse("images_folder", tmp_path, path, "classes in the test split .* got 'fox'")
    refuse("images_folder", tmp_path, {}, "--data.file=FOLDER")
    refuse("images_folder", tmp_path, {"data.file": "gone"}, "cannot read gone")
    refuse("images_folder", tmp_path, path | {"data.height": 0}, "both above 0, or both 0")
    (tmp_path / "own" / "test" / "cat" / "000.png").write_bytes(b"words")
    refuse("images_folder", tmp_path, path, r"a picture \(PNG, .*000.png, got another kind of file")
