"""Runs on a user's signals: of several lengths, evaluated on other files, and why they decide."""

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

import flax_attn
from flax_attn.__main__ import main
from flax_attn.errors import UsageError
from flax_attn.tasks import comparison, evidence
from flax_attn.tasks.targets.classes import recalls
from tests import tiny


def peaks(number, seed, points=30):
    """Signals of noise with a peak or a dip, the class of each, and where it is."""
    random = np.random.default_rng(seed)
    signals, places = random.normal(0, 0.1, (number, points)), random.integers(4, 18, number)
    for i, place in enumerate(places):
        signals[i, place : place + 3] += 3 if i % 2 else -3
    return signals, ["peak" if i % 2 else "dip" for i in range(number)], places


def wide(path, signals, labels, lengths):
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["label", *range(signals.shape[1])])
        for signal, label, length in zip(signals, labels, lengths):
            rows.writerow([label, *signal[:length], *[""] * (signals.shape[1] - length)])
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on peaks and dips of 24 to 30 points, that has learned."""
    folder = tmp_path_factory.mktemp("peaks")
    signals, labels, _ = peaks(200, 0)
    lengths = np.random.default_rng(1).integers(24, 31, 200)
    lengths[:2] = 30, 24
    file = wide(folder / "own.csv", signals, labels, lengths)
    changed = {"data.file": file, "model.features": 16, "model.key_features": 8, "num_epochs": 2}
    changed |= {"steps_per_epoch": 60, "optimizer.warmup_steps": 10}
    with tiny.no_pictures():
        return flax_attn.train("signals_classes", workdir=folder / "run", overrides=changed)


def test_signals_of_several_lengths_are_learned_whatever_stands_behind_their_ends(run):
    signals, labels, _ = peaks(60, 2)
    alone = run.predict(list(signals))
    assert np.mean([a == b for a, b in zip(alone.classes, labels)]) > 0.95
    cut = [signal[:25] for signal in signals[:4]]
    padded = [np.concatenate([signal, np.full(5, np.nan)]) for signal in cut]
    longer = [np.concatenate([signal, np.full(9, np.nan)]) for signal in cut]
    expected = run.predict([*cut, signals[5]]).outputs[:4]
    for others in (padded, longer, [*padded, np.zeros(30)]):
        np.testing.assert_allclose(run.predict(others).outputs[:4], expected, atol=1e-5)
    with pytest.raises(UsageError, match="at most 30 points"):
        run.predict([*padded, np.zeros(40)])
    weights = run.predict(padded).attention["attention1"]
    assert np.abs(weights[:, :25, 25:]).max() == 0
    np.testing.assert_allclose(weights[:, :25, :25].sum(axis=-1), 1, atol=1e-5)


def test_a_run_is_measured_on_a_file_with_labels(run, tmp_path, capsys):
    signals, labels, _ = peaks(50, 3)
    labels[0] = "dip" if labels[0] == "peak" else "peak"  # one that is wrong
    file = wide(tmp_path / "new.csv", signals, labels, [30] * 50)
    assert main(["evaluate", str(run.path), str(file)]) == 0
    out = capsys.readouterr().out
    right = np.mean([a == b for a, b in zip(run.predict(list(signals)).classes, labels)])
    assert f"test accuracy {right:.4g} (95 % interval " in out
    assert "recall: " in out
    file.write_text(file.read_text().replace("label", "kind"))
    flags = ["--data.label_column=kind", "--json"]
    assert main(["evaluate", str(run.path), str(file), *flags]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["examples"] == 50
    assert told["figures"][0]["run"]["mean"] == pytest.approx(right)
    assert set(told["classes"]) == {"dip", "peak"}
    file.write_text(file.read_text().replace("dip", "hill"))
    assert main(["evaluate", str(run.path), str(file), *flags]) == 2
    assert "'hill'" in capsys.readouterr().err


def test_what_decides_is_where_the_peak_is(run):
    signals, _, places = peaks(20, 4)
    names = [f"signal {i}" for i in range(len(signals))]
    rows = run.task.target.describe(names, run.predict(list(signals)))
    evidence.add_parts(rows, run.task, run.predict, list(signals))
    decided = 0
    for row, place in zip(rows, places):
        part = min(row["parts"], key=lambda one: one["change"])
        if part["change"] < -0.1:  # where a part of the peak is left, the class is as sure
            decided += 1
            _, first, _, last = part["token"].split()
            assert int(first) <= place + 2
            assert int(last) >= place
    assert decided >= 5
    file = io.StringIO()
    evidence.print_why(rows[0], Console(file=file, width=100))
    assert "without the part, the probability of" in file.getvalue()


def test_each_cell_of_an_image_is_covered(tmp_path):
    random = np.random.default_rng(0)
    rows = random.uniform(size=(40, 8, 8)).astype(np.float32), [str(i % 2) for i in range(40)]
    changed = tiny.STEPS | {"model.patch_size": 4}
    with tiny.untrained():
        made = flax_attn.train(
            "mnist_attention",
            workdir=tmp_path / "run",
            overrides=changed,
            data={"train": rows, "test": rows},
        )
    covered = made.task.inputs.covered(rows[0][0])
    assert len(covered) == 16
    np.testing.assert_array_equal(
        np.argwhere(covered["row 1, column 2 of 4 x 4"] != rows[0][0])[:, 1].clip(2, 3), [2, 3] * 2
    )


def test_the_block_of_a_run_names_what_is_never_predicted(run):
    (accuracy,) = run.summary["comparisons"]
    assert accuracy["metric"] == "accuracy"
    assert [one["name"] for one in accuracy["beside"]][-1] == "the largest class alone"
    lines = comparison.lines([accuracy])
    assert lines[0].startswith("test accuracy ")
    assert lines[-1].startswith("  so the run is ")


def test_a_class_that_is_never_predicted_is_named():
    counts = np.array([[8, 2, 0], [1, 9, 0], [3, 3, 0]])  # of two seeds
    told = recalls(counts, ["a", "b", "c"], 2)
    assert told == ["recall: c: 0.00, a: 0.80, b: 0.90", "never predicted: c (3 test examples)"]
    many = recalls(np.eye(20, dtype=int), [*map(str, range(20))], 1)
    assert many[0].startswith("recall of the lowest 10 of 20 classes: 0: 1.00, ")


def test_predictions_for_a_table_with_labels_are_scored(run, tmp_path, capsys):
    signals, labels, _ = peaks(12, 5)
    labels = ["", "unknown", *labels[2:]]
    file = wide(tmp_path / "new.csv", signals, labels, [30] * 12)
    assert main(["predict", str(run.path), "--input", str(file)]) == 0
    out = capsys.readouterr().out
    assert "test accuracy " in out
    assert "(2 rows without a label that the run knows left out)" in out


def test_a_file_that_was_trained_on_is_told(run, capsys):
    own = run.config.data.file
    assert main(["evaluate", str(run.path), own]) == 0
    assert "trained on this file" in capsys.readouterr().err
