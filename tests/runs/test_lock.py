"""The lock of a run directory."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from flax_attn.errors import UsageError
from flax_attn.runs import directory


def test_one_holds_it_and_the_next_is_told_who(tmp_path):
    run = tmp_path / "run"
    with directory.held(run):
        who = (run / directory.LOCK).read_text()
        assert who.startswith(f"process {os.getpid()} on ")
        with pytest.raises(UsageError, match=f"in use by {who}"):
            directory.held(run).__enter__()
        assert (run / directory.LOCK).exists()
        (run / "config.json").touch()
    assert [path.name for path in run.iterdir()] == ["config.json"]
    with directory.held(run):  # it is free again
        pass


def test_the_file_of_the_lock_is_closed_at_the_end(tmp_path, monkeypatch):
    opened, closed, open_file, close = [], [], os.open, os.close
    monkeypatch.setattr(os, "open", lambda *args: opened.append(open_file(*args)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda number: closed.append(number) or close(number))
    with directory.held(tmp_path / "run"):
        assert len(opened) == 1
        assert closed == []
    assert closed == opened


def test_a_directory_that_stays_empty_is_not_left(tmp_path):
    with directory.held(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_in_the_file_is_overwritten(tmp_path):
    (tmp_path / directory.LOCK).write_text("process 1 on gone" * 50)
    with directory.held(tmp_path):
        assert (tmp_path / directory.LOCK).read_text().startswith(f"process {os.getpid()} ")


def test_a_run_goes_on_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with directory.held(tmp_path / "run"):
        assert (tmp_path / "run" / directory.LOCK).read_text().startswith(f"process {os.getpid()} ")


def test_what_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("a/" + "x" * 300, "a/../b/" + "x" * 300):
        with pytest.raises(UsageError, match="File name too long"), directory.held(Path(path)):
            pass
        assert list(tmp_path.iterdir()) == []
    with directory.held(Path("a/../b")):
        assert (tmp_path / "b").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_place_inside_a_run_is_refused_and_beside_one_is_not(tmp_path):
    """Other projects may have a config.json and checkpoints, too."""
    (tmp_path / "config.json").touch()
    (tmp_path / "checkpoints").mkdir()
    run = tmp_path / "runs" / "run"
    with directory.held(run):
        (run / "config.json").touch()
        with directory.held(run / "early"):
            pass
        (run / "metrics.jsonl").touch()
    with directory.held(run):
        pass
    with directory.held(run.parent / "other"):
        pass
    for place in (run / "figures", run / "checkpoints", run / "a" / "b"):
        with pytest.raises(UsageError, match=f"is inside the run {run}"), directory.held(place):
            pass
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "metrics.jsonl"]


def test_a_lock_that_its_holder_removes_meanwhile_is_made_anew(tmp_path, monkeypatch):
    run, opened, open_file = tmp_path / "run", [], os.open

    def open_and_lose(path, *args):
        descriptor = open_file(path, *args)
        if not opened:
            os.unlink(path)
        opened.append(path)
        return descriptor

    monkeypatch.setattr(directory.os, "open", open_and_lose)
    with directory.held(run):
        assert len(opened) == 2
        assert (run / directory.LOCK).read_text().startswith(f"process {os.getpid()} ")
