"""What the page on language models promises, by its commands, with optimised programs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from flax_attn.data import toy


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
    assert summary["metrics"]["test/induction"]["mean"] > 0.7  # 0.98 of the full config
    assert summary["induction_head"].startswith("block2, head ")


@pytest.mark.full
def test_a_text_of_20_kilobytes_is_enough_to_write_words_like_it(tmp_path):
    random = np.random.default_rng(0)
    words = [name.lower() for name in toy.names(1, 40)]
    lines = [" ".join(random.choice(words, size=6)) for _ in range(450)]
    (tmp_path / "own.txt").write_text("\n".join(lines)[:20_000])
    file = f"--data.file={tmp_path / 'own.txt'}"
    command("train", "text_file:quick", file, "--num_epochs=4", "--workdir", tmp_path / "run")
    written = command("generate", tmp_path / "run", words[0], "--length", 600).split()
    assert len(written) > 40
    assert np.mean([word in words for word in written]) > 0.5
