"""What the page on language models promises, by its commands, with optimised programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs"


def command(*arguments):
    """What `flax-attn` prints, with programs that are optimised, as a user's are."""
    quick = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    done = subprocess.run(
        [sys.executable, "-m", "flax_attn", *map(str, arguments)],
        env={name: value for name, value in os.environ.items() if name not in quick},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_one_head_finds_the_token_after_the_last_occurrence(tmp_path):
    command("train", "induction:quick", "--workdir", tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"]["test/induction"]["mean"] > 0.7  # 0.9 of the full config
    assert summary["induction_head"].startswith("block 2")


@pytest.mark.full
def test_a_text_of_20_kilobytes_is_enough_to_write_words_like_it(tmp_path):
    text = "".join(path.read_text() for path in sorted(PAGES.glob("*.md")))[:20_000]
    (tmp_path / "own.txt").write_text(text)
    file = f"--data.file={tmp_path / 'own.txt'}"
    command("train", "text_file:quick", file, "--workdir", tmp_path / "run")
    written = command("generate", tmp_path / "run", "The ", "--length", 600)
    known = set(text.split())
    words = written.split()[1:-1]  # the last may be cut
    assert len(words) > 60
    assert sum(word in known for word in words) / len(words) > 0.3
