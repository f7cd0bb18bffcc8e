"""The modules of the interpreter: each is sound, and a worker answers as the page does."""

import json
import subprocess

import pytest

from flax_attn.page.joining import DEFINED, FOLDER, join
from tests.explore import living

pytestmark = living.needs_node

MODULES = sorted((FOLDER / "engine").glob("*.mjs"))
WORKER = "engine/worker.mjs"
FORBIDDEN = ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_is_sound(path):
    subprocess.run([living.NODE, "--check", str(path)], check=True)
    text = path.read_text()
    assert len(text.splitlines()) < 300
    assert max(map(len, text.splitlines())) <= 100
    assert not [word for word in FORBIDDEN if word in text]


def test_no_name_is_defined_twice_and_the_joined_script_is_sound(tmp_path):
    script = tmp_path / "joined.js"
    script.write_text(join([WORKER]))  # a name twice is an error of syntax, or overwrites
    subprocess.run([living.NODE, "--check", str(script)], check=True)
    texts = [path.read_text() for path in MODULES]
    names = [own[1] for text in texts for line in text.splitlines() if (own := DEFINED.match(line))]
    assert len(names) == len(set(names)) > 80


def test_the_newest_is_answered_first_by_a_worker_or_without_one(tmp_path):
    _, _, content = living.programs("mnist_attention")
    paths = tmp_path / "live.json", tmp_path / "joined.js"
    paths[0].write_text(json.dumps(content))
    paths[1].write_text(join([WORKER]))
    command = [living.NODE, str(living.SCRIPT.parent / "check_worker.mjs"), *map(str, paths)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    rounds = json.loads(done.stdout)
    newest_first = [0, *range(69, 5, -1)]  # the first is being answered when the others come
    for name, workers in (("without", 0), ("within", 1), ("broken", 1)):
        assert rounds[name]["made"] == workers
        assert rounds[name]["order"] == newest_first
        assert rounds[name]["refused"] == [1, 2, 3, 4, 5]
        assert rounds[name]["last"] == rounds["without"]["last"] is not None
        assert rounds[name]["wrong"].startswith("expected one of as trained, softmax, ")
