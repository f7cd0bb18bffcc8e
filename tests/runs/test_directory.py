"""The run directory as it is written and opened."""

import json

import pytest

from flax_attn.errors import UsageError
from flax_attn.files import replacing
from flax_attn.runs import checkpoints, directory, stored
from flax_attn.runs.checkpoints import Note
from flax_attn.runs.directory import begin, check_no_file_of_run, held, read_config, read_stored

CONFIG = {
    "name": "some",
    "num_epochs": 5,
    "batch_size": 128,
    "model": {"name": "cnn"},
    "data": {},
    "evaluate": ("valid", "test"),
    "reference": {"test/mse": 0.5},
}
ROWS = [{"epoch": 0, "seed": 0, "step": 0, "mse": 1 / 3}]


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    begin(path, CONFIG | {"derived": {"mean": 3.3}}, {"labels.json": ["a"]})
    stored.write_rows(path, ROWS)
    return path


def files(path):
    return {path: path.read_bytes() for path in path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", [{}, {"num_epochs": 6}, {"reference": {"test/mse": 0.4}}])
def test_the_same_config_opens_it_again_and_more_epochs_or_another_reference_do(run, change):
    before = files(run)
    assert read_stored(run, CONFIG | change, print)["derived"] == {"mean": 3.3}
    assert files(run) == before


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_epochs": 4}, "num_epochs"),
        ({"batch_size": 64}, "batch_size"),
        ({"model": {"name": "lstm"}}, "model.name"),
        ({"new": 1}, "new"),
    ],
)
def test_another_config_is_refused(run, change, key):
    before = files(run)
    with pytest.raises(UsageError, match=f"'{key}' was .* when .* and is now"):
        read_stored(run, CONFIG | change, print)
    assert files(run) == before


def test_a_run_from_before_a_key_goes_on_with_its_default(tmp_path):
    begin(tmp_path, CONFIG, {})
    assert read_stored(tmp_path, CONFIG | {"precision": "float32"}, print)
    with pytest.raises(UsageError, match="'precision' was 'float32'"):
        read_stored(tmp_path, CONFIG | {"precision": "bfloat16"}, print)


def test_a_run_whose_rate_falls_to_zero_does_not_grow(tmp_path):
    config = CONFIG | {"optimizer": {"schedule": "cosine"}}
    begin(tmp_path, config, {})
    read_stored(tmp_path, config, print)
    with pytest.raises(UsageError, match=r"'num_epochs' was 5 .* now 6"):
        read_stored(tmp_path, config | {"num_epochs": 6}, print)


def test_a_run_that_goes_on_has_no_results_and_no_half_written_files(run):
    (run / "figures").mkdir()
    stored.write_json(run / "summary.json", {"epochs": 5})
    half = [run / ".config.1.partial.json", run / "figures" / ".a.partial.png"]
    mine = [run / "notes.partial.txt", run / "figures" / "my.partial.png"]
    for path in (*half, *mine):
        path.touch()
    begin(run, CONFIG | {"num_epochs": 6}, {})
    assert not any(path.exists() for path in (*half, run / "summary.json"))
    assert all(path.exists() for path in mine)
    assert read_config(run)["num_epochs"] == 6


def test_what_a_stopped_start_leaves_is_no_foreign_directory(tmp_path):
    (tmp_path / ".config.0123.partial.json").write_text("{")
    assert read_stored(tmp_path, CONFIG, print) is None


def test_a_file_is_replaced_whole_or_not_at_all(run):
    before = files(run)

    def fail_halfway():
        with replacing(run / "config.json") as partial:
            partial.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert files(run) == before


def test_foreign_places_are_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "checkpoints").mkdir()
    for content in (None, '{"mine": 1}', "{", "[]", "[" * 100_000):
        if content is not None:
            (tmp_path / "config.json").write_text(content)
        before = files(tmp_path)
        with pytest.raises(UsageError):
            read_stored(tmp_path, CONFIG, print)
        assert files(tmp_path) == before
    with pytest.raises(UsageError, match=r"thesis\.tex"), held(tmp_path / "thesis.tex"):
        pass
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", ["checkpoints", "figures"])
def test_training_writes_through_no_link(run, tmp_path, name):
    (tmp_path / "outside").mkdir()
    (run / name).symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match=f"{name}, got a link"):
        read_stored(run, CONFIG, print)


def test_a_damaged_config_is_read_from_the_checkpoint(run):
    note = Note(1, 0, 0.0, ROWS, json.loads(json.dumps(CONFIG)))
    checkpoints.save(run / "checkpoints", note, {})
    (run / "config.json").write_text("{")
    lines = []
    assert read_stored(run, CONFIG, lines.append) == note.config
    assert len(lines) == 1
    with pytest.raises(UsageError, match=r"config\.json"):
        read_config(run)


def test_reading_what_is_not_there(tmp_path, run):
    for path, advice in ((tmp_path / "none", "no run directory"), (tmp_path, f"such as {run}")):
        with pytest.raises(UsageError, match=advice):
            read_config(path)
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "own.gguf").touch()
    with pytest.raises(UsageError, match=r"own\.gguf as safetensors: .*from_pretrained"):
        read_config(tmp_path / "gguf")


def test_an_output_never_replaces_a_file_of_a_run(run):
    for name in ("config.json", "labels.json", "checkpoints/x.png"):
        with pytest.raises(UsageError, match="none of the files that training wrote"):
            check_no_file_of_run(run / name, "--output")
    check_no_file_of_run(run / "mine.png", "--output")
    check_no_file_of_run(run / "figures" / "mine.png", "--output")
    for folder in (run / "checkpoints" / "inside", run / "inside"):
        with pytest.raises(UsageError, match=f"inside the run {run};"):
            directory.check_place(folder)


def test_a_directory_in_place_of_a_file_is_told(run):
    (run / "figures").mkdir()
    with pytest.raises(UsageError, match=r"cannot read .*figures"):
        stored.read_json(run / "figures")


def test_the_rows_are_read_as_they_were_appended(run):
    more = [ROWS[0] | {"epoch": 1, "mse": 0.1}]
    stored.append_rows(run, more)
    assert stored.read_rows(run) == ROWS + more
    for line in ("[]", '{"epoch": "1"}', '{"torn'):
        (run / "metrics.jsonl").write_text(line + "\n")
        with pytest.raises(UsageError, match=r"metrics\.jsonl is damaged"):
            stored.read_rows(run)
