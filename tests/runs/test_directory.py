import errno
import json
import os
import shutil
from pathlib import Path

import jax.numpy as jnp
import pytest

from flax_attn.errors import UsageError, unknown
from flax_attn.files import replacing
from flax_attn.runs import checkpoints, lock, sums, untrusted
from flax_attn.runs.checkpoints import Progress
from flax_attn.runs.directory import RunDirectory, read_config
from flax_attn.schema import flatten

CONFIG = {
    "name": "some",
    "num_epochs": 5,
    "batch_size": 128,
    "model": {"name": "cnn"},
    "data": {},
    "evaluate": ("valid", "test"),
    "reference": {"test/mse": 0.5},
}
METADATA = {"train_seconds": 0.0, "config": {}}


@pytest.fixture
def directory(tmp_path):
    run = RunDirectory.open(tmp_path / "run", CONFIG)
    run.begin(CONFIG | {"derived": {"mean": 3.3}})
    return run


def files(path):
    return {path: path.read_bytes() for path in path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", [{}, {"num_epochs": 6}, {"reference": {"test/mse": 0.4}}])
def test_the_same_config_opens_it_again_and_more_epochs_or_another_reference_do(directory, change):
    before = files(directory.path)
    RunDirectory.open(directory.path, CONFIG | change)
    assert files(directory.path) == before


def test_a_run_is_finished_until_it_goes_on(directory):
    directory.write_json("summary.json", {"epochs": 5})
    before = files(directory.path)
    directory.begin(CONFIG | {"num_epochs": 6})
    assert files(directory.path) == before
    directory.go_on(CONFIG | {"num_epochs": 6}, [])
    assert {path.name for path in directory.path.iterdir()} == {"config.json", "sums.json"}
    assert read_config(directory.path)["num_epochs"] == 6
    assert sums.changes(directory.path) == {}


def test_a_run_that_goes_on_and_is_cut_before_its_sums_are_written_is_known(directory, monkeypatch):
    sums.write(directory.path, ["config.json"])
    replace, lines = os.replace, []

    def fill_the_disk(partial, path):
        if Path(path).name == sums.SUMS:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(partial, path)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", fill_the_disk)
        with pytest.raises(OSError, match="No space"):
            directory.go_on(CONFIG | {"num_epochs": 6}, [])
    again = RunDirectory.open(directory.path, CONFIG | {"num_epochs": 6}, lines.append)
    assert again.stored["num_epochs"] == 6
    assert lines == []


def test_a_finished_run_lists_its_figures(directory):
    (directory.path / "figures").mkdir()
    for name in ("metrics.jsonl", "summary.json", "examples.npz", "figures/loss.png"):
        (directory.path / name).touch()
    directory.end([])
    assert sums.changes(directory.path) == {}
    (directory.path / "figures" / "loss.png").write_text("another")
    assert sums.changes(directory.path) == {"figures/loss.png": "has changed"}


def test_what_a_stopped_start_leaves_is_no_foreign_directory(tmp_path):
    (tmp_path / ".config.0123.partial.json").write_text("{")
    RunDirectory.open(tmp_path, CONFIG).begin(CONFIG)
    assert read_config(tmp_path)["name"] == "some"


def test_a_file_is_replaced_whole_or_not_at_all(directory):
    before = files(directory.path)

    def fail_halfway():
        with replacing(directory.path / "config.json") as partial:
            partial.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert files(directory.path) == before


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
    before = files(directory.path)
    with pytest.raises(UsageError, match=said):
        RunDirectory.open(directory.path, CONFIG | change)
    assert files(directory.path) == before


def test_a_run_whose_rate_falls_to_zero_does_not_grow(tmp_path):
    config = CONFIG | {"optimizer": {"schedule": "cosine"}}
    RunDirectory.open(tmp_path / "run", config).begin(config)
    RunDirectory.open(tmp_path / "run", config)
    with pytest.raises(
        UsageError,
        match=r"'num_epochs' was 5 .* now 6 \(the rate of that run "
        r"falls to 0 by then\)",
    ):
        RunDirectory.open(tmp_path / "run", config | {"num_epochs": 6})


def test_foreign_places_are_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="nothing was touched"):
        RunDirectory.open(tmp_path, CONFIG)
    with pytest.raises(UsageError, match="is a file"):
        RunDirectory.open(tmp_path / "thesis.tex", CONFIG)
    with pytest.raises(UsageError, match="cannot write"):
        RunDirectory.open(tmp_path / "thesis.tex" / "run", CONFIG).begin(CONFIG)
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UsageError, match="name is missing or of another kind"):
        RunDirectory.open(tmp_path, CONFIG)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="expected JSON"):
        RunDirectory.open(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "thesis.tex"]


def test_the_config_of_another_project_with_checkpoints_is_left_alone(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UsageError, match="name is missing or of another kind"):
        RunDirectory.open(tmp_path, CONFIG)
    (tmp_path / "config.json").unlink()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"no config\.json, .*; nothing was touched"):
        RunDirectory.open(tmp_path, CONFIG)


def test_a_checkpoint_is_no_run_directory(directory, tmp_path):
    """It has a log of metrics and a list of sums, too."""
    checkpoints.save(directory.checkpoints, Progress(1), {"step": jnp.int32(1)}, METADATA, b"")
    copy = shutil.copytree(directory.checkpoints / "1", tmp_path / "copy")
    assert {"metrics.jsonl", "sums.json"} < {path.name for path in copy.iterdir()}
    before = files(copy)
    with pytest.raises(UsageError, match=r"no config\.json, .*; nothing was touched"):
        RunDirectory.open(copy, CONFIG)
    assert files(copy) == before
    directory.go_on(CONFIG, [])
    for folder in (directory.checkpoints / "1" / "inside", directory.path / "inside"):
        with pytest.raises(UsageError, match=f"inside the run {directory.path};"):
            lock.check_place(folder)


def test_reading_what_is_not_there():
    with pytest.raises(
        UsageError, match=r"no run directory .* also take the folder of a published model"
    ):
        read_config(Path("/nowhere/at/all"))


def test_a_folder_of_gguf_is_told_how_it_becomes_safetensors(tmp_path):
    said = f"expected a run directory, but {tmp_path} has no config.json"
    with pytest.raises(
        UsageError, match=rf"{said}, .*; nothing was touched, choose another directory$"
    ):
        read_config(tmp_path)
    (tmp_path / "own.gguf").touch()
    read = rf"from_pretrained\('{tmp_path}', gguf_file='own.gguf'\).save_pretrained\(folder\)$"
    with pytest.raises(
        UsageError, match=rf"{said}, .*; .* writes own.gguf as safetensors: .*{read}"
    ):
        read_config(tmp_path)


def test_a_config_whose_numbers_are_beyond_the_limits_is_none_of_a_run(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_seeds": 10_001}))
    with pytest.raises(UsageError, match=r"config of a run in .* \(expected at most .*num_seeds"):
        read_config(tmp_path)


def test_flatten_and_unknown():
    assert flatten({"a": 1, "b": {"c": {"d": 2}}}) == {"a": 1, "b.c.d": 2}
    assert (
        unknown("config key", "num_head", ["num_heads", "depth"])
        == "unknown config key 'num_head'; did you mean 'num_heads'?"
    )
    assert (
        unknown("model", "zzz", ["cnn", "lstm"]) == "unknown model 'zzz'; expected one of cnn, lstm"
    )


def test_what_killed_processes_left_is_removed_and_nothing_else(directory):
    left = [
        directory.path / ".config.1.partial.json",
        directory.path / ".metrics.1.partial.jsonl",
        directory.path / "figures" / ".a.partial.png",
    ]
    (directory.path / "figures").mkdir()
    mine = [directory.path / "notes.partial.txt", directory.path / "figures" / "my.partial.png"]
    for path in (*left, *mine):
        path.touch()
    directory.begin(CONFIG)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in mine)


def test_a_config_that_has_changed_is_written_again_from_the_checkpoint(directory):
    directory.go_on(CONFIG, [])
    saved = METADATA | {"config": read_config(directory.path)}
    checkpoints.save(directory.checkpoints, Progress(1), {"step": jnp.int32(1)}, saved, b"")
    text = (directory.path / "config.json").read_text()
    (directory.path / "config.json").write_text(
        text.replace('"batch_size": 128', '"batch_size": 64')
    )
    lines = []
    stored = RunDirectory.open(directory.path, CONFIG, lines.append).stored
    assert stored["batch_size"] == 128
    assert "config.json has changed since training wrote it; it is written again" in lines[0]


def test_a_finished_run_vouches_for_its_newest_checkpoint(directory):
    checkpoints.save(directory.checkpoints, Progress(1), {"step": jnp.int32(1)}, METADATA, b"")
    for name in ("metrics.jsonl", "summary.json", "examples.npz"):
        (directory.path / name).touch()
    directory.end([])
    assert sums.changes(directory.path) == {}
    (directory.checkpoints / "1" / sums.SUMS).write_text("{}")
    assert sums.changes(directory.path) == {f"checkpoints/1/{sums.SUMS}": "has changed"}


def test_a_link_among_the_figures_is_left_alone(directory):
    """One of the user's own does not end a training."""
    for name in ("metrics.jsonl", "summary.json", "examples.npz"):
        (directory.path / name).touch()
    (directory.path / "figures").mkdir()
    (directory.path / "figures" / "loss.png").touch()
    (directory.path / "figures" / "best.png").symlink_to("loss.png")
    directory.end([])
    assert "figures/loss.png" in sums.read(directory.path)
    assert "figures/best.png" not in sums.read(directory.path)


def test_json_that_could_not_be_read_again_is_not_written(directory, monkeypatch):
    monkeypatch.setattr("flax_attn.runs.directory.LARGEST_JSON", 1_000)
    directory.write_text("translations.tsv", "x" * 2_000)
    with pytest.raises(UsageError, match="expected at most 1,000 bytes"):
        directory.write_json("tokenizer.json", ["x" * 2_000])
    assert not (directory.path / "tokenizer.json").exists()


def test_a_file_in_the_place_of_a_directory_is_called_one(tmp_path):
    (tmp_path / "figures").touch()
    with pytest.raises(UsageError, match=r"^expected a directory in .*figures, got a file; remove"):
        untrusted.check_folder(tmp_path / "figures")
