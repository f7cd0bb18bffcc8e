"""Finished runs as they are read, and curves over their epochs."""

import json

import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import reading, stored
from flax_attn.runs.reading import read
from tests.written_runs import write_run


def make_run(seeds=2):
    rows = [
        {"epoch": e, "seed": s, "step": 10 * e}
        | {"valid/mse": 1.0 / (e + 1 + s), "test/mse": 2.0 / (e + 1 + s)}
        | ({"train/mse": 0.5} if e else {})
        for e in range(4)
        for s in range(seeds)
    ]
    config = {"data": {"task": "by_shape"}}
    best = {"valid/mse": {"mean": 0.125, "std": 0.0, "values": [0.125] * seeds}}  # not the last
    summary = {"measured": "mse", "metrics": best}
    return reading.Record("some run", None, config, rows, {}, summary)  # pyright: ignore


def test_curves_and_late_median():
    run = make_run()
    steps, values = reading.curve(run.rows, "train/mse")
    np.testing.assert_array_equal(steps, [10, 20, 30])
    assert values.shape == (2, 3)
    late = reading.late_median(run.rows, "valid/mse", epochs=2)
    np.testing.assert_allclose(late, np.median([1 / 3, 1 / 4, 1 / 4, 1 / 5]))
    trained = [1 / (e + 1 + s) for e in (1, 2, 3) for s in (0, 1)]
    np.testing.assert_allclose(reading.late_median(run.rows, "valid/mse"), np.median(trained))


def test_a_finished_run_is_read_with_what_its_schema_does_not_name(tmp_path):
    path = write_run(tmp_path / "run", epochs=1)
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"further": [1]}))
    run = read(path)
    assert (run.name, run.measured, run.task) == ("run", "mse", "signal-signal")
    assert [row["seed"] for row in run.rows] == [0, 1, 0, 1]
    assert run.summary["further"] == [1]
    assert list(run.attention) == ["attention"]


def lines(change):
    return lambda path: path.write_text("".join(change(path.read_text().splitlines(True))))


def entry(key, value):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.jsonl", lines(lambda rows: rows[:-1])),
        ("metrics.jsonl", lines(lambda rows: rows[:1] * len(rows))),
        ("metrics.jsonl", lines(lambda rows: [])),
        ("summary.json", entry("steps", "ten")),
        ("summary.json", entry("epochs", -1)),
        ("summary.json", entry("task", 3)),
        ("summary.json", lambda path: path.write_text("[]")),
        ("config.json", entry("num_epochs", "many")),
        ("config.json", entry("derived", "wide")),
        ("examples.npz", lambda path: np.savez(path, inputs=np.array([{}]))),
        *((name, lambda path: path.unlink()) for name in ("metrics.jsonl", "examples.npz")),
        *((name, lambda path: path.unlink()) for name in ("summary.json", "config.json")),
    ],
)
def test_a_damaged_run_is_one_line_that_names_it(tmp_path, name, damage):
    path = write_run(tmp_path / "run")
    damage(path / name)
    with pytest.raises(UsageError, match=str(path)) as caught:
        read(path)
    assert len(str(caught.value).splitlines()) == 1


def test_an_array_that_is_shorter_than_what_was_written_is_damage(tmp_path):
    """NumPy then reads less than all, so the CRC-32 must be compared beforehand."""
    path = write_run(tmp_path / "run") / "examples.npz"
    np.savez(path, **(dict(np.load(path)) | {"inputs": np.zeros((9, 4000, 1), np.float32)}))
    path.write_bytes(path.read_bytes().replace(b"(9, 4000, 1)", b"(8, 4000, 1)"))
    assert len(np.load(path)["inputs"]) == 8
    with pytest.raises(UsageError, match=r"inputs\.npy has changed"):
        read(path.parent)


def test_weights_that_are_too_large_or_too_many_are_left_out_the_largest_first(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(stored, "LARGEST", 1_000)
    arrays = {"inputs": np.zeros(60), "attention/a": np.zeros(60), "attention/b": np.zeros(20)}
    assert stored.write_examples(tmp_path, arrays) == ["attention/a"]
    assert set(stored.read_arrays(tmp_path / "examples.npz")) == {"inputs", "attention/b"}
    assert stored.write_examples(tmp_path, arrays | {"inputs": np.zeros(5)}) == []
    monkeypatch.setattr(stored, "MOST_ATTENTIONS", 1)
    assert stored.write_examples(tmp_path, arrays | {"inputs": np.zeros(5)}) == ["attention/a"]
