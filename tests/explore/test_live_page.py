"""A worker answers as the page does."""

import json
import subprocess

from flax_attn.page.joining import join
from tests.explore import living

pytestmark = living.needs_node

WORKER = "engine/worker.mjs"


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
