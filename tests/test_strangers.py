"""A sample of what `python -m tests.strangers` tries."""

import subprocess
import sys

import pytest


@pytest.mark.full
def test_no_damage_by_a_stranger_does_harm():
    command = [
        sys.executable,
        "-m",
        "tests.strangers",
        "--number=60",
        "--tasks",
        "signals",
        "texts",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
