"""What a reader must hold: the walk of one batch to its loss, verbs, and one file for each type."""

import ast
import collections
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


def trees():
    return {path: ast.parse(path.read_text()) for path in (ROOT / "flax_attn").rglob("*.py")}


def test_docstrings_of_functions_begin_with_a_verb():
    functions = [node for tree in trees().values() for node in ast.walk(tree)]
    functions = [node for node in functions if isinstance(node, ast.FunctionDef)]
    words = [text.split()[0] for node in functions if (text := ast.get_docstring(node))]
    nouns = [word for word in words if not word.endswith("s")]  # "Returns", "Computes"
    assert len(nouns) <= 0.1 * len(words), collections.Counter(nouns).most_common(20)


def test_a_type_is_defined_in_one_file():
    """Layers of nnx, and configs of data sets, have the names of what they stand for."""
    files = collections.defaultdict(set)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                files[node.name].add(path.parent.name)
    twice = {name: rooms for name, rooms in files.items() if len(rooms) > 1}
    assert all(rooms & {"nnx", "sets"} for rooms in twice.values()), twice
