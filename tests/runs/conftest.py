"""What reached the disk."""

import os
import stat

import pytest


@pytest.fixture
def synced(monkeypatch):
    """What each file and folder was when it was last synced, by inode, as `as_on_disk` says it."""
    states, fsync = {}, os.fsync

    def record(descriptor):
        fsync(descriptor)
        states[os.fstat(descriptor).st_ino] = as_on_disk(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return states


def as_on_disk(file):
    """Size and time of change of a file, or the names in a folder."""
    now = os.stat(file)
    return set(os.listdir(file)) if stat.S_ISDIR(now.st_mode) else (now.st_size, now.st_mtime_ns)
