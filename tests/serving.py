"""Calls the programs of an export in a process that has neither Flax nor `flax_attn`."""

import re
import subprocess
import sys

import numpy as np

from docs.draw import DOCS

(PAGE,) = re.findall(r"```python\n(.*?)```", (DOCS / "serve.md").read_text(), re.DOTALL)
ALONE = """
import sys
assert not {"flax", "flax_attn"} & sys.modules.keys()
"""
BATCH = """
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import load_file

folder, given = Path("exported"), np.load("prompts.npz")
program = lambda name: jax.jit(jax.export.deserialize((folder / name).read_bytes()).call)
prefill, step = program("prefill.jax"), program("step.jax")
params = load_file(folder / "params.safetensors")
logits, caches = prefill(params, given["tokens"], given["lengths"])
written = []
for _ in range(given["number"]):
    written.append(np.asarray(logits.argmax(axis=-1), np.int32))
    logits, caches = step(params, written[-1], caches)
np.save("written.npy", np.stack(written, axis=1))
"""


def run(code, folder):
    """Runs code in a folder, and returns what it prints."""
    command = [sys.executable, "-c", code + ALONE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(folder, prompts, number):
    """Returns the likeliest tokens `(b, number)` after prompts, by the files in `exported`."""
    lengths = np.array([*map(len, prompts)], np.int32)
    tokens = np.array([row + [0] * (max(lengths) - len(row)) for row in prompts], np.int32)
    np.savez(folder / "prompts.npz", tokens=tokens, lengths=lengths, number=number)
    run(BATCH, folder)
    return np.load(folder / "written.npy")
