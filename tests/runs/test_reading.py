"""Finished runs as they are read, and curves over their epochs."""

import json

import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.kinds import form_of, read
from flax_attn.runs import examples, reading, sums, untrusted
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
    return reading.Record("some run", None, config, rows, {}, {"measured": "mse"})  # pyright: ignore


def test_curves_and_late_median():
    run = make_run()
    steps, values = reading.curve(run.rows, "train/mse")
    np.testing.assert_array_equal(steps, [10, 20, 30])
    assert values.shape == (2, 3)
    late = reading.late_median(run.rows, "valid/mse", epochs=2)
    np.testing.assert_allclose(late, np.median([1 / 3, 1 / 4, 1 / 4, 1 / 5]))
    trained = [1 / (e + 1 + s) for e in (1, 2, 3) for s in (0, 1)]
    np.testing.assert_allclose(reading.late_median(run.rows, "valid/mse"), np.median(trained))


SUMMARY = {
    "config": "some",
    "task": "regression",
    "model": "cnn",
    "parameters": 3,
    "seeds": [0, 1],
    "epochs": 1,
    "stopped": False,
    "steps": 10,
    "train_seconds": 1.5,
    "measured": "mse",
    "pictures": "signals",
    "metrics": {"test/mse": {"mean": 1.0, "std": 0.0, "values": [1.0, 1.0]}},
}
FILES = ["config.json", "metrics.jsonl", "summary.json", "examples.npz"]


@pytest.fixture
def finished(tmp_path):
    """A directory with all that a finished run has."""

    def write(**changes):
        config = {"name": "some", "num_epochs": 1}
        config |= {"model": {}, "data": {"name": "shapes"}}
        rows = [
            {"epoch": e, "seed": s, "step": 10 * e, "test/mse": 1.0} for e in (0, 1) for s in (0, 1)
        ]
        contents = {"config": config, "rows": rows, "summary": SUMMARY} | changes
        (tmp_path / "config.json").write_text(json.dumps(contents["config"]))
        lines = "".join(json.dumps(row) + "\n" for row in contents["rows"])
        (tmp_path / "metrics.jsonl").write_text(lines)
        (tmp_path / "summary.json").write_text(json.dumps(contents["summary"]))
        arrays = {name: np.zeros((2, 3, 1)) for name in ("inputs", "targets", "predictions")}
        np.savez(tmp_path / "examples.npz", **(arrays | changes.get("examples", {})))
        sums.write(tmp_path, FILES)
        return tmp_path

    return write


def test_a_finished_run_is_read(finished):
    run = read(finished())
    assert run.measured == "mse"
    assert [row["seed"] for row in run.rows] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"epoch": 0, "seed": 0, "step": 0, "test/mse": 1.0}] * 4,
        [{"epoch": e, "seed": s, "step": 0} for e in (0, 1) for s in (0, 1)],
    ],
    ids=["none", "of one seed", "without the metric"],
)
def test_rows_that_do_not_fit_the_summary_are_told(finished, rows):
    with pytest.raises(UsageError, match=r"do not fit its summary|test/mse is missing"):
        read(finished(rows=rows))


@pytest.mark.parametrize("name", ["test/mse", "ensemble/test/mse"])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_metric_has_one_value_a_seed_and_one_of_an_ensemble(finished, name, number):
    values = {"mean": 1.0, "std": 0.0, "values": [1.0] * number}
    summary = SUMMARY | {"metrics": SUMMARY["metrics"] | {name: values}}
    if number == (1 if name.startswith("ensemble") else 2):
        assert read(finished(summary=summary)).summary["metrics"][name] == values
    else:
        with pytest.raises(UsageError, match="does not fit its seeds"):
            read(finished(summary=summary))


BAD = {"step": 4, "bad_steps": 2}
NOTHING = {"test/mse": {"mean": 0.0, "std": 0.0, "values": []}}  # of no seed
CHANGES = [{"epochs": 2}, {"steps": "ten"}, {"metrics": {}}]
CHANGES += [{"diverged": {"0": BAD, "1": BAD}, "metrics": NOTHING}, {"diverged": {"2": BAD}}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_summary_that_does_not_fit_is_told(finished, change):
    with pytest.raises(UsageError, match="is damaged"):
        read(finished(summary=SUMMARY | change))


def test_a_changed_file_is_told_by_the_list_of_sums(finished):
    path = finished()
    text = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(text.replace("1.0", "1.5", 1))
    with pytest.raises(UsageError, match=r"metrics\.jsonl has changed"):
        read(path)


def test_a_run_that_goes_on_is_not_finished(finished):
    path = finished()
    sums.write(path, ["config.json"])
    with pytest.raises(UsageError, match="is not finished"):
        read(path)


FLOATS, WHOLE, WORDS = np.zeros((2, 3)), np.zeros((2, 3), int), np.array([["a"] * 3] * 2)
TEXTS = {"inputs": WHOLE, "lengths": WHOLE[:, 0], "words": WORDS, "targets": WHOLE[:, 0]}
TEXTS |= {"predictions": np.zeros((2, 2))}


def test_examples_that_fit_together_are_taken():
    examples.check(form_of("texts"), TEXTS, ["a", "b"])
    examples.check(form_of("texts"), TEXTS | {"attention/a": np.zeros((2, 3, 3))}, ["a", "b"])


@pytest.mark.parametrize(
    ("change", "classes", "said"),
    [
        ({"words": FLOATS}, "ab", r"no words \(n, t\)"),
        ({"words": WORDS[:1]}, "ab", "words do not fit the others"),
        ({"lengths": WHOLE}, "ab", r"no lengths \(n\)"),
        ({"lengths": WHOLE[:, 0] - 1}, "ab", "lengths below 0"),
        ({"targets": WHOLE[:, 0] + 2}, "ab", "targets that are no classes"),
        ({"targets": np.array([-1, 1])}, "ab", "targets that are no classes"),
        ({}, "abc", "do not fit the classes"),
        ({}, None, "do not fit the classes"),
        ({"attention/a": WHOLE}, "ab", "no weights 'attention/a'"),
        ({"attention/a": FLOATS[:1]}, "ab", "no weights 'attention/a'"),
        ({"attention/a": np.zeros(2)}, "ab", "no weights 'attention/a'"),
        ({"confusion": np.zeros((2, 3), int)}, "ab", "confusion do not fit"),
        ({"attention/a": np.zeros((2, 2, 3))}, "ab", "'attention/a' of 2 instead of 3 queries"),
        ({"attention/a": np.zeros((2, 4, 3, 2))}, "ab", "'attention/a' of 2 instead of 3 queries"),
        ({"attention/hops": np.zeros((2, 4, 2))}, "ab", "of 2 instead of 3 queries or keys"),
        ({"lengths": WHOLE[:, 0] + 4}, "ab", "lengths above 3"),
        ({"predictions": np.full((2, 2), np.inf)}, "ab", "predictions are not finite"),
        ({"predictions": np.full((2, 2), np.nan)}, "ab", "predictions are not finite"),
    ],
)
def test_examples_that_do_not_fit_together_are_told(change, classes, said):
    with pytest.raises(ValueError, match=said):
        examples.check(form_of("texts"), TEXTS | change, None if classes is None else list(classes))


@pytest.mark.parametrize(
    ("kind", "name", "shape"),
    [
        ("signals", "attention", (3, 3, 50)),
        ("signals", "attention", (3, 50, 3)),
        ("images", "block1", (3, 4, 15, 16)),
        ("images", "pooling", (3, 15)),
        ("hops", "hops", (3, 4, 9)),
        ("series", "input", (3, 12, 4)),
        ("translation", "alignment", (2, 3, 4)),
        ("translation", "alignment", (2, 4, 3)),
        ("language", "block1", (2, 5, 6)),
    ],
)
def test_weights_of_other_queries_and_keys_are_told(tmp_path, kind, name, shape):
    """A model of the user's own may attend to anything."""
    change = {"examples": {f"attention/{name}": np.zeros(shape)}}
    patches = {"patch_size": 7} if kind == "images" else {}
    assert read(write_run(tmp_path / "right", kind, config={"model": patches})).attention
    with pytest.raises(UsageError, match=f"weights 'attention/{name}' of .* queries or keys"):
        read(write_run(tmp_path / "wrong", kind, config={"model": patches}, **change))
    own = {"model": {"name": "my_models:Mine"} | patches}
    assert read(write_run(tmp_path / "own", kind, config=own, **change)).attention


ROWS = [{"epoch": e, "seed": s, "step": 10 * e, "test/mse": 1.0} for e in (0, 1) for s in (0, 1)]


def test_numbers_that_are_not_finite_are_told_but_a_metric_may_be_nan(finished):
    assert read(finished(rows=[*ROWS[:3], ROWS[3] | {"valid/mse": float("nan")}]))
    for changes in (
        {"rows": [*ROWS[:3], ROWS[3] | {"valid/mse": float("inf")}]},
        {"summary": SUMMARY | {"train_seconds": float("inf")}},
        {"summary": SUMMARY | {"train_seconds": float("nan")}},
        {"config": {"name": "some", "num_epochs": 1, "model": {}, "data": {}, "x": -1e999}},
    ):
        with pytest.raises(UsageError, match=r"expected finite numbers, got -?(Infinity|NaN)"):
            read(finished(**changes))


@pytest.mark.parametrize("content", ["null", "3", "true", '"text"', "[]"])
@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_json_of_another_kind_is_told(finished, name, content):
    path = finished()
    (path / name).write_text(content)
    sums.write(path, FILES)
    with pytest.raises(UsageError, match="is missing or of another kind"):
        read(path)


def test_a_metric_beyond_float32_is_told(finished):
    with pytest.raises(UsageError, match="a metric that is too large for float32"):
        read(finished(rows=[*ROWS[:3], ROWS[3] | {"valid/mse": -1e308}]))


def test_a_number_that_overflows_is_told():
    assert untrusted.parse(b"[1e308, -1.5]") == [1e308, -1.5]
    with pytest.raises(ValueError, match="expected finite numbers, got 1e999"):
        untrusted.parse(b'{"a": 1e999}', may_be_nan=True)


def test_weights_that_are_too_large_are_left_out_the_largest_first(monkeypatch):
    monkeypatch.setattr(examples, "LARGEST", 1_000)
    arrays = {"inputs": np.zeros(60), "attention/a": np.zeros(60), "attention/b": np.zeros(20)}
    assert set(examples.fitting(arrays)) == {"inputs", "attention/b"}
    assert set(examples.fitting(arrays | {"inputs": np.zeros(5)})) == set(arrays)


def test_weights_that_are_too_many_are_left_out_and_are_told(finished, monkeypatch):
    monkeypatch.setattr(examples, "MOST_ATTENTIONS", 1)
    arrays = {"inputs": np.zeros(60), "attention/a": np.zeros(60), "attention/b": np.zeros(20)}
    assert set(examples.fitting(arrays)) == {"inputs", "attention/b"}
    weights = {f"attention/{name}": np.full((2, 3, 3), 1 / 3, np.float32) for name in "ab"}
    assert read(finished(examples={"attention/a": weights["attention/a"]}))
    with pytest.raises(UsageError, match="the examples have more than 1 attentions"):
        read(finished(examples=weights))
