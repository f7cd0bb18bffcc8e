import json
from pathlib import Path

import pytest

from flax_attn.errors import UsageError, unknown
from flax_attn.run_directory import RunDirectory, flatten, read_config

CONFIG = {"num_epochs": 5, "batch_size": 128, "model": {"name": "cnn"}, "evaluate": ("valid", "test")}


@pytest.fixture
def directory(tmp_path):
    run = RunDirectory.open(tmp_path / "run", CONFIG)
    run.write_json("config.json", CONFIG | {"derived": {"mean": 3.3}})
    return run


def test_the_same_config_opens_it_again_and_more_epochs_do(directory):
    RunDirectory.open(directory.path, CONFIG)
    RunDirectory.open(directory.path, CONFIG | {"num_epochs": 6})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_epochs": 4}, "'num_epochs' was 5 .* now 4 .*only grow"),
        ({"batch_size": 64}, "'batch_size' was 128 .* now 64"),
        ({"model": {"name": "lstm"}}, "'model.name' was 'cnn'"),
        ({"new": 1}, "'new' was None"),
    ],
)
def test_another_config_is_refused(directory, change, said):
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=said):
        RunDirectory.open(directory.path, CONFIG | change)
    assert before == {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}


def test_foreign_places_are_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="nothing was touched"):
        RunDirectory.open(tmp_path, CONFIG)
    with pytest.raises(UsageError, match="is a file"):
        RunDirectory.open(tmp_path / "thesis.tex", CONFIG)
    with pytest.raises(UsageError, match="cannot write"):
        RunDirectory.open(tmp_path / "thesis.tex" / "run", CONFIG)
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UsageError, match="something else"):
        RunDirectory.open(tmp_path, CONFIG)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="expected JSON"):
        RunDirectory.open(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "thesis.tex"]


def test_metrics_after_an_epoch_are_dropped_and_a_torn_line_too(directory):
    for epoch in range(4):
        directory.append_metrics([{"epoch": epoch, "seed": seed} for seed in (0, 1)])
    with open(directory.path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "se')
    directory.keep_metrics_until(2)
    rows = [json.loads(line) for line in (directory.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 0, 1, 1, 2, 2]


def test_reading_what_is_not_there():
    with pytest.raises(UsageError, match="no run directory"):
        read_config(Path("/nowhere/at/all"))


def test_flatten_and_unknown():
    assert flatten({"a": 1, "b": {"c": {"d": 2}}}) == {"a": 1, "b.c.d": 2}
    assert unknown("config key", "num_head", ["num_heads", "depth"]) == "unknown config key 'num_head'; did you mean 'num_heads'?"
    assert unknown("model", "zzz", ["cnn", "lstm"]) == "unknown model 'zzz'; expected one of cnn, lstm"
