"""What the page on language models promises, by its commands, with optimised programs."""

import json
import os
import subprocess
import sys

import pytest


def command(*arguments):
    """Returns what `flax-attn` prints, with programs that are optimised, as a user's are."""
    quick = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    done = subprocess.run(
        [sys.executable, "-m", "flax_attn", *map(str, arguments)],
        env={name: value for name, value in os.environ.items() if name not in quick},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_one_head_finds_the_token_after_the_last_occurrence(tmp_path):
    command("train", "induction:quick", "--workdir", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"]["test/induction"]["mean"] > 0.7  # 0.98 of the full config
    assert summary["induction_head"].startswith("block1, head ")
