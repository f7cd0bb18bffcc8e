"""How far a reader must go: the walk of one batch from the command line to its loss."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.walk import Walk, count

ROOT = Path(__file__).parent.parent
# At most. Layers ask their shell for parameters, so that linen and nnx have one computation.
WALK = {"stays": 140, "returns": 101, "files": 39}


@pytest.mark.slow
def test_the_walk_of_a_batch_is_no_longer_than_it_was():
    command = [sys.executable, "-m", "tests.walk"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    walk = json.loads(done.stdout.splitlines()[-1])
    assert all(walk[name] <= most for name, most in WALK.items()), walk
    stays = done.stderr.splitlines()[-walk["stays"] :]
    assert stays[0] == "train.py"
    assert {"flax_attn/models/cnn.py", "flax_attn/training/metrics.py"} <= set(stays)


def test_the_walk_counts_a_file_again_where_its_caller_continues():
    walk = Walk()
    walk.stays += ["a.py", "b.py", "a.py"]
    assert count(walk.stays) == {"stays": 4, "returns": 1, "files": 3}
