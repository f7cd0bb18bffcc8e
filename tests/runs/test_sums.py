"""Lists of sums."""

import json
import os
from pathlib import Path

import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import sums
from tests.runs.conftest import as_on_disk


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("config.json", "figures/loss.png"):
        (tmp_path / name).write_text("as it was")
    sums.write(tmp_path, ["config.json", "figures/loss.png"])
    return tmp_path


def test_what_was_written_is_unchanged(listed):
    assert sums.changes(listed) == {}
    sums.check(listed)


def test_another_byte_is_a_change_and_so_is_a_file_that_is_gone(listed):
    (listed / "config.json").write_text("as it wss")
    with pytest.raises(UsageError, match=r"config\.json has changed since training wrote it"):
        sums.check(listed)
    (listed / "config.json").unlink()
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        sums.check(listed)
    assert sums.changes(listed) == {"config.json": "is missing"}


def test_a_folder_that_is_a_link_is_not_followed(listed):
    (listed / "figures").rename(listed / "moved")
    (listed / "figures").symlink_to("moved")
    assert (listed / "figures" / "loss.png").read_text() == "as it was"
    assert sums.changes(listed) == {"figures/loss.png": "has changed"}


def test_a_link_above_the_folder_of_a_file_is_not_followed(listed):
    (listed / "checkpoints" / "1").mkdir(parents=True)
    (listed / "checkpoints" / "1" / "sums.json").write_text("as it was")
    sums.write(listed, ["checkpoints/1/sums.json"])
    assert sums.changes(listed) == {}
    (listed / "checkpoints").rename(listed / "moved")
    (listed / "checkpoints").symlink_to("moved")
    assert sums.changes(listed) == {"checkpoints/1/sums.json": "has changed"}


def test_figures_decide_nothing(listed):
    (listed / "figures" / "loss.png").write_text("another")
    assert sums.changes(listed) == {"figures/loss.png": "has changed"}
    sums.check(listed)


def test_a_file_with_more_bytes_than_may_be_is_told_and_not_read(listed, monkeypatch):
    assert sums.changes(listed, largest=9) == {}
    monkeypatch.setattr(sums, "sum_of", None)
    said = "has 9 bytes, more than 8"
    assert sums.changes(listed, largest=8) == {"config.json": said, "figures/loss.png": said}
    for name in ("config.json", "figures/loss.png"):
        (listed / name).write_text("longer than it was")
    assert set(sums.changes(listed, largest=9).values()) == {"has changed"}


def test_all_is_on_the_disk_before_a_list_refers_to_it(tmp_path, synced, monkeypatch):
    (tmp_path / "config.json").write_text("as it is")
    files, replace = [tmp_path / "config.json"], os.replace

    def check(partial, path):
        for file in (*files, Path(partial)):
            assert synced[file.stat().st_ino] == as_on_disk(file), file
        assert synced[tmp_path.stat().st_ino] >= {file.name for file in files}
        replace(partial, path)

    monkeypatch.setattr(os, "replace", check)
    sums.write(tmp_path, ["config.json"])
    with open(tmp_path / "metrics.jsonl", "a") as file:  # it grows, and is not replaced
        file.write("a row")
    files.append(tmp_path / "metrics.jsonl")
    sums.write(tmp_path, ["config.json", "metrics.jsonl"])
    assert sums.read(tmp_path).keys() == {"config.json", "metrics.jsonl"}
    assert synced[tmp_path.stat().st_ino] == as_on_disk(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"config.json": 1}', "[" * 100_000])
def test_a_list_that_is_none_is_told(listed, content):
    (listed / sums.SUMS).write_text(content)
    with pytest.raises(UsageError, match=r"expected JSON in .*sums\.json|sums\.json is damaged"):
        sums.check(listed)


def test_a_run_that_has_not_begun_has_no_list(tmp_path):
    assert sums.read(tmp_path) == {}
    sums.check(tmp_path)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "figures/../../x", "figures/a/b.png", "a\\..\\b", "c:x", ""]
)
def test_a_name_that_leads_elsewhere_is_refused(listed, name):
    (listed / sums.SUMS).write_text(json.dumps({name: {"bytes": 1, "sha256": "x"}}))
    with pytest.raises(UsageError, match="expected the names of files of a run"):
        sums.changes(listed)
