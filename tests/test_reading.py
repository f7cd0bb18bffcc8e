"""What a reader must hold: the walk of a batch, the files of a kind, the words of the project."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flax_attn.kinds import ALL
from tests.walk import Walk, count

ROOT = Path(__file__).parent.parent
FOLDERS = ["flax_attn", "configs"]
WALK = {"stays": 274, "returns": 229, "files": 45}  # at most
MOST_WORDS = 25

Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.full
def test_the_walk_of_a_batch_is_no_longer_than_it_was():
    command = [sys.executable, "-m", "tests.walk"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    walk = json.loads(done.stdout.splitlines()[-1])
    assert all(walk[name] <= most for name, most in WALK.items()), walk
    stays = done.stderr.splitlines()[-walk["stays"] :]
    assert stays[0] == "train.py"
    assert {"flax_attn/models/cnn.py", "flax_attn/training/metrics.py"} <= set(stays)


def test_the_walk_counts_a_file_again_where_its_caller_goes_on():
    walk = Walk()
    walk.stays += ["a.py", "b.py", "a.py"]
    assert count(walk.stays) == {"stays": 4, "returns": 1, "files": 3}


def test_a_kind_of_task_is_a_file_and_a_view_of_its_name():
    """Nothing else asks which kind it has: no table and no chain of conditions is keyed by it."""
    files = [path for path in (ROOT / "flax_attn").rglob("*.py") if path.parent.name != "kinds"]
    for kind in ALL:
        module = sys.modules[kind.__module__]
        assert Path(module.__file__).stem == kind.name
        assert (ROOT / "flax_attn" / "page" / "views" / f"{kind.name}.mjs").exists()
        asks = rf'isinstance\([^)]*\b{kind.__name__}\b|"{kind.name}": \w+,|[!=]= "{kind.name}"'
        asking = [str(path) for path in files if re.search(asks, path.read_text())]
        assert not asking, f"{kind.name}: {asking}"


def test_the_words_of_the_project_are_few_and_each_has_its_sentence():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    _, _, listed = text.partition("## The project's own words\n")
    words = re.findall(r"^- \*\*(.+?)\*\*: (.+)$", listed, re.MULTILINE)
    assert 10 < len(words) <= MOST_WORDS
    code = "\n".join(path.read_text() for path in (ROOT / "flax_attn").rglob("*.py")).lower()
    for word, sentence in words:
        assert sentence[0].isupper(), word
        assert sentence.endswith("."), word
        assert re.search(rf"\b{word.replace(' ', '.')}", code), word


VAGUE = {"found", "seen", "joined", "given", "each"}  # names that say nothing of the thing


def bound_names(tree):
    """The names that code gives to values, arguments, functions and classes, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, Function | ast.ClassDef | ast.ExceptHandler | ast.alias):
            yield (node.asname if isinstance(node, ast.alias) else node.name) or "", node.lineno


def vague_names(source):
    """Words in names that no value has as its own; names of tests are sentences."""
    return [
        f"line {line}: {name}"
        for name, line in bound_names(ast.parse(source))
        if VAGUE & set(name.split("_")) and not name.startswith("test_")
    ]


@pytest.mark.parametrize("folder", [*FOLDERS, "tests", "benchmarks", "docs"])
def test_a_name_says_what_the_thing_is(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    vague = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in vague_names(path.read_text())
    ]
    assert not vague, "\n".join(vague)


def test_vague_names_are_noticed_wherever_they_are_bound():
    for code in (
        "found = 1",
        "found: int = 1",
        "for i, each in pairs: pass",
        "with open(path) as given: pass",
        "def f(*, seen=None): pass",
        "rows = [joined for joined in parts]",
        "(first, *found) = row",
        "if (seen := f()): pass",
        "f = lambda found_x: 1",
        "import numpy as found",
    ):
        assert len(vague_names(code)) == 1, code
    assert vague_names("# each\nrows = {'found': given.seen(each=1)}") == []


def test_any_is_rare():
    """A type says more than `Any`. An alias in `flax_attn.types` says why there is none."""
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "flax_attn").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"\bAny\b", line) and "import" not in line and "configs" not in path.parts
    ]
    assert len(lines) <= 40, "\n".join(lines)
